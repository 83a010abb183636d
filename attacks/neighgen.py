"""C1, C2 and C5 on FedSage+: raw features from answers to a generator, and what offered embeddings say."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.attacks.attack import ALL, FEATURES, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.sparse_rows import Progress, RowSpace, row_space, sparse_rows
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.models.neighgen.model import FeatureGenerator
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

# Raw features from the gradient of FedSage+'s feature generator: one node (C1) and batches (C2).

Array = np.ndarray | Tensor


def single(G: Array, g: Array, W: Array, b: Array, scale: float, *, slots: int = 5) -> np.ndarray:
    """The features nearest to one node's generated neighbours, in closed form (C1).

    ``G = g h'`` gives the dropped-out, noisy ``h``, so neither noise nor dropout protects; then
    ``x = xhat - g / (2 scale (1 - xhat**2))`` with ``xhat = tanh(W h + b)``.

    Args:
        G: gradient of the last layer's matrix, ``[slots * words, width]``.
        g: gradient of its bias, ``[slots * words]``.
        W: the matrix; b: the bias, as they were sent to be answered.
        scale: the public factor c0 of ``loss = c0 * sum |xhat - x|**2``.

    Returns:
        ``[slots, words]``; NaN in slots without a gradient. Of a sum over J owners that all used the
        same noise it is their mean.

    >>> W, b, h = np.eye(2), np.zeros(2), np.array([0.5, 0.0])
    >>> g = 2 * (np.tanh(h) - [1.0, 0.0]) * (1 - np.tanh(h) ** 2)
    >>> single(np.outer(g, h), g, W, b, 1.0, slots=1).round(6).tolist()
    [[1.0, 0.0]]
    """
    weight_gradient, bias_gradient, matrix, bias = (_double(value) for value in (G, g, W, b))
    h = weight_gradient.T @ bias_gradient / bias_gradient.square().sum()
    return _invert(h[None], bias_gradient[None], matrix, bias, scale, slots)[0].numpy()


def batch(
    G: Array,
    g: Array,
    W: Array,
    b: Array,
    scale: float,
    nodes: int,
    *,
    seconds: float = 120.0,
    progress: Progress | None = None,
    slots: int = 5,
    search: str = "contrast",
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The features nearest to every generated neighbour of a batch (C2).

    The row space of ``G`` is spanned by the nodes' sparse, non-negative activations ``h_v``; the search
    finds those. For each, the direction p_v that meets only its own gradient gives the scale:
    ``h_v = G' p_v / (p_v . g)``. Least squares then splits ``G`` into the g_v, and each is inverted as in
    :func:`single`. Nodes with several slots are recovered first, in the rows of the later slots, which have
    fewer nodes. If time runs out first, g_v of a recovered node is known up to r - 1 directions; these follow
    from the fact that most features are 0 (robust regression).

    A sum over J owners, each with its own noise, is a batch of ``n * J``: pass that as ``nodes``.

    Args:
        G, g, W, b, scale, slots: as for :func:`single`; ``scale`` is the same for every owner.
        nodes: the most nodes that the gradient can be made of.
        seconds: of processor time for the search; the linear algebra around it takes more at Cora's size.
        search: "contrast" or "columns" (the published one, exponential in the batch).

    Returns:
        ``[found, slots, words]`` features, NaN in slots without a gradient (beyond the node's count);
        ``[found, width]`` the inputs of the generator's last layer; and whether every node was found in time.

    Raises:
        Blind: for a gradient of zeros.
    """
    weight_gradient, bias_gradient, matrix, bias = (_double(value) for value in (G, g, W, b))
    space, coordinates = _activations(weight_gradient, nodes, slots, seconds, search, seed, progress)
    # p_v: orthogonal to every other node's g, so that G' p_v is a multiple of h_v alone.
    directions = coordinates / space.values
    alone = directions @ (space.left.T @ bias_gradient)
    hidden = (coordinates @ space.basis.T) / alone[:, None]
    complete = len(coordinates) == space.rank
    if complete:
        coefficients = torch.linalg.pinv(hidden @ space.basis) * space.values[:, None]
        parts = (space.left @ coefficients).T
    else:
        parts = _sparse_bias_gradients(space, directions, alone, hidden, matrix, bias, scale, slots)
    x = _invert(hidden, parts, matrix, bias, scale, slots)
    return x.float().numpy(), hidden.float().numpy(), complete


def _activations(
    G: Tensor, nodes: int, slots: int, seconds: float, search: str, seed: int, progress: Progress | None
) -> tuple[RowSpace, Tensor]:
    """The row space of the whole gradient and the activations recovered in it; later slots come first."""
    deadline = time.thread_time() + seconds
    words = len(G) // slots
    known, most, space = G.new_zeros(0, G.shape[1]), 0, None
    for slot in reversed(range(slots)):
        block = G[slot * words :]
        if not bool(block.any()):
            continue
        last = slot == 0
        space = row_space(block, nodes, seed=seed)
        if space.rank <= most and not last:
            continue
        most = space.rank
        left = deadline - time.thread_time()
        # A slot whose search is slow must not use up the time of the slots after it.
        share = left if last else left / 4
        coordinates = sparse_rows(
            space, seconds=share, search=search, known=known, seed=seed + slot, progress=progress
        )
        known = coordinates @ space.basis.T
    if space is None:
        raise Blind("the gradient of the generator's last layer is zero: no node was answered for")
    return space, coordinates


def _invert(hidden: Tensor, parts: Tensor, W: Tensor, b: Tensor, scale: float, slots: int) -> Tensor:
    """Features ``[n, slots, words]`` from each node's activation and bias gradient."""
    n = len(hidden)
    xhat = torch.tanh(hidden @ W.T + b)
    slope = 1 - xhat.square()
    x = (xhat - parts / (2 * scale * slope.clamp_min(1e-12))).reshape(n, slots, len(W) // slots)
    size = parts.reshape(n, slots, len(W) // slots).norm(dim=2)
    x[size < 0.02 * size.amax(1, keepdim=True).clamp_min(1e-300)] = torch.nan
    return x


def _sparse_bias_gradients(
    space: RowSpace,
    directions: Tensor,
    alone: Tensor,
    hidden: Tensor,
    W: Tensor,
    b: Tensor,
    scale: float,
    slots: int,
) -> Tensor:
    """Each node's bias gradient without the other nodes' activations, where most features are 0.

    g_v lies in the column space, and its product with p_v is known. Its other coordinates are chosen so that
    ``2 scale (1 - xhat**2) x = gradient at x = 0 less g_v`` is zero in most places.
    """
    parts = hidden.new_zeros(len(hidden), len(W))
    for i in range(len(hidden)):
        p = directions[i] / directions[i].norm()
        others = torch.linalg.svd(p[None])[2][1:].T
        fixed = space.left @ (p * alone[i] / directions[i].norm())
        free = space.left @ others
        xhat = torch.tanh(W @ hidden[i] + b)
        at_zero = 2 * scale * xhat * (1 - xhat.square())
        # In slots beyond the node's count g_v is 0 instead; each slot takes the target that fits better.
        target = at_zero - fixed
        y = _robust(free, target)
        for _ in range(2):
            value = fixed + free @ y
            inside = _median_by_slot(value - at_zero, slots) < _median_by_slot(value, slots)
            target = at_zero * inside.repeat_interleave(len(W) // slots) - fixed
            y = _robust(free, target)
        parts[i] = fixed + free @ y
    return parts


def _median_by_slot(values: Tensor, slots: int) -> Tensor:
    return values.abs().reshape(slots, -1).median(dim=1).values


def _robust(A: Tensor, target: Tensor, steps: int = 30) -> Tensor:
    """Least absolute, then fewest, deviations: ``A y`` equal to the target in most places."""
    weights = torch.ones_like(target)
    for step in range(steps):
        weighted = A * weights[:, None]
        y: Tensor = torch.linalg.lstsq(weighted.T @ A, weighted.T @ target).solution
        deviations = (A @ y - target).abs()
        floor = deviations.median() + 1e-14 * target.abs().max()
        weights = (
            1 / (deviations + floor) if step < steps // 2 else 1 / (deviations.square() + floor.square())
        )
        weights = weights / weights.max()
    return y


def _double(value: Array) -> Tensor:
    """An array of any type as a float64 tensor."""
    return torch.as_tensor(value).detach().double()


SLOTS = 5
NEIGHBOURS, EMBEDDED_LINKS, MISSING = (
    "features of neighbours",
    "links of embeddings",
    "numbers of missing neighbours",
)
_WEIGHT, _BIAS = "outer.weight", "outer.bias"
_SHORT = {"rounds": 1, "training.generator_epochs": 2, "training.federated_epochs": 1}


def _exchange(nodes: int) -> Control:
    settings = {"training.exchange_batch": nodes, "training.minimum_batch": 1, **_SHORT}
    return Control(f"exchange batch {nodes}", settings)


@dataclass(frozen=True)
class Solved:
    """What was recovered from one gradient.

    Args:
        rows: ``[rows, words]``.
        stopped: the processor seconds after which the search was stopped; None where it finished.
    """

    rows: np.ndarray = field(repr=False)
    stopped: float | None = None


@dataclass(frozen=True)
class Question:
    """What was asked, as the adversary knows it: the last layer that was sent, and how many vectors.

    Args:
        offer: the offer's values by name: ``fgen.*``, ``z``, ``counts``, ``seed``.
        scale: the public factor of the loss.
    """

    offer: Mapping[str, np.ndarray] = field(repr=False)
    scale: float

    @property
    def counts(self) -> np.ndarray:
        """How many vectors each node of the batch asks for, ``[nodes]``."""
        return np.asarray(self.offer["counts"]).astype(int)

    def layer(self, name: str) -> np.ndarray:
        """A parameter of the generator's last layer."""
        return np.array(self.offer[f"fgen.{name}"], dtype=np.float32)


class _GeneratorFeedback(Attack):
    """What C1 and C2 share: which messages they read, of the first exchange with an answer in it.

    :meth:`run` reads the answers of single owners, :meth:`residual` the sum that was delivered to the owner
    that asked. ``values`` are rows of features, one for every vector that was asked for; rows that were not
    recovered are NaN.
    """

    family = "neighgen"
    adversaries: ClassVar[tuple[str, ...]] = (SERVER, "client")
    channel = "feedback"
    also_reads = ("generator",)
    first_rounds = 1
    depends_on = ("training.exchange_batch",)
    stops: ClassVar[Mapping[str, str]] = {
        "server": "sealed messages: masked, homomorphic, strictest",
        "client": "training.feedback=prototypes; seals and masks do not",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of each owner that answered the exchange."""
        answers = self._answers(view)
        question = self._question(view, answers[0])
        solved = {seen.clients[0]: self._rows(view, question, seen, 1) for seen in answers}
        return _guess(solved, {s.clients[0]: s.clients for s in answers}, len(answers))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of all owners that answered, from their sum."""
        first = min(self.opened_sums(view), key=lambda seen: seen.exchange)
        question = self._question(view, first)
        solved = self._rows(view, question, first, len(first.clients))
        return _guess({ALL: solved}, {ALL: first.clients}, 1)

    def recover(self, gradient: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """Rows from one gradient at the parameters."""
        raise NotImplementedError

    def _answers(self, view: View) -> list[Seen]:
        passed = [
            note.exchange
            for note in view.sent
            if note.kept
            and (note.channel, note.step) == (self.channel, ANSWER)
            and note.sender not in {SERVER, *view.parties}
        ]
        if passed:  # a server's view: the answers pass through the server
            answers = view.uploads(self.channel, min(passed))
        elif self.channel in view.public.get("channels", {}):
            answers = view.delivered(self.channel)
            answers = [seen for seen in answers if seen.exchange == min(s.exchange for s in answers)]
        else:
            answers = []
        if not answers:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        return answers

    def _question(self, view: View, answer: Seen) -> Question:
        offer = view.offer(self.channel, answer.exchange)
        if offer is None:
            raise Blind(f"{self.id}: the generator that the answers are about cannot be read in this view")
        return Question(offer.values, 1 / (len(offer.values["counts"]) * SLOTS))

    def _rows(self, view: View, question: Question, answer: Seen, owners: int) -> Solved:
        expected = int(question.counts.sum()) * owners
        words, stopped = int(view.public["schema"]["features"]), None
        if not np.any(answer.values[_BIAS]):
            rows = np.zeros((0, words))
        else:
            solved = self._solved(answer.values, question, owners)
            rows, stopped = solved.rows, solved.stopped
        missing = np.full((max(0, expected - len(rows)), words), np.nan)
        return Solved(np.concatenate([rows, missing]).astype(np.float32), stopped)

    def _solved(self, values: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """Solves a gradient; one that two adversaries see is solved once."""
        gradient = {name: np.array(values[name], dtype=np.float64) for name in (_WEIGHT, _BIAS)}
        mark = hashlib.sha256(gradient[_WEIGHT].tobytes()).digest()
        key = (self.id, owners, question.scale, self.effort, mark)
        if key not in _SOLVED:
            solved = self.recover(gradient, question, owners)
            _SOLVED[key] = Solved(_binary_rows(solved.rows), solved.stopped)
            while len(_SOLVED) > 16:
                del _SOLVED[next(iter(_SOLVED))]
        return _SOLVED[key]


_SOLVED: dict[tuple[Any, ...], Solved] = {}


def _guess(solved: Mapping[str, Solved], targets: Mapping[str, tuple[str, ...]], messages: int) -> Guess:
    stopped = {target: one.stopped for target, one in solved.items() if one.stopped is not None}
    return Guess(FEATURES, {t: one.rows for t, one in solved.items()}, targets, messages, stopped)


class _SearchStalled(Exception):
    """A search recovered no node within its patience."""


class GeneratorSingle(_GeneratorFeedback):
    """C1: all neighbours of one node, in closed form.

    The gradient of the last layer is one outer product ``g h'``: it gives ``h`` with its noise and dropout,
    so neither protects, and with the generator that was sent ``h`` gives the rest.
    """

    id = "c1-neighgen-single"
    subject = "raw features from single-node gradients"
    summary = "features of an answering owner's node, from the gradient of one node"
    controls = (_exchange(1),)

    def recover(self, gradient: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """As many rows as one node asks for, of one owner; of a sum or a batch, a mixture of theirs."""
        rows = single(*_layers(gradient, question), question.scale, slots=SLOTS)
        return Solved(rows[~np.isnan(rows).any(1)])


class GeneratorBatch(_GeneratorFeedback):
    """C2: all neighbours of a batch, by separating the nodes' sparse activations.

    Each answering owner draws its own noise, so a sum over J owners of a batch of n is one batch of n * J,
    and as open. The search is for independent components (``contrast``).
    """

    id = "c2-neighgen-batch"
    subject = "raw node features"
    summary = "features of the answering owners' nodes, from the gradient of a batch"
    controls = tuple(map(_exchange, (1, 8, 32, 64)))
    searches = True
    search: ClassVar[str] = "contrast"
    seconds: ClassVar[float] = 480.0
    """Processor seconds that a search may take where no effort is given."""
    patience: ClassVar[float] = 40.0
    """Processor seconds after which a search that has recovered no node gives up."""

    def recover(self, gradient: Mapping[str, np.ndarray], question: Question, owners: int) -> Solved:
        """Rows of every node whose activation was recovered in time."""
        words = question.layer(_WEIGHT).shape[0] // SLOTS
        seconds, patience = (self.effort or own for own in (self.seconds, self.patience))
        started = time.thread_time()

        def hopeful(count: int, rank: int) -> None:
            if not count and time.thread_time() > started + patience:
                raise _SearchStalled

        try:
            rows, _, complete = batch(
                *_layers(gradient, question),
                question.scale,
                len(question.counts) * owners,
                seconds=seconds,
                slots=SLOTS,
                search=self.search,
                progress=hopeful,
            )
        except _SearchStalled:
            return Solved(np.zeros((0, words)), patience)
        rows = rows.reshape(-1, words)
        return Solved(rows[~np.isnan(rows).any(1)], None if complete else seconds)


class GeneratorColumns(GeneratorBatch):
    """C2 with the published search, whose cost grows exponentially with the batch: where it ends."""

    id = "c2-neighgen-columns"
    subject = "raw node features, by the published search"
    summary = "the same by the published search (SPEAR), exponential in the batch"
    adversaries = (SERVER,)
    controls = tuple(map(_exchange, (8, 32, 64)))
    search = "columns"
    seconds = 90.0


Layers = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _layers(gradient: Mapping[str, np.ndarray], question: Question) -> Layers:
    return gradient[_WEIGHT], gradient[_BIAS], question.layer(_WEIGHT), question.layer(_BIAS)


def _generator(
    offer: Mapping[str, np.ndarray], words: int, settings: Mapping[str, Any], dropout: float
) -> tuple[FeatureGenerator, torch.Tensor]:
    """The generator that was offered, and the embeddings that came with it."""
    values = {name: torch.as_tensor(np.array(value), dtype=torch.float32) for name, value in offer.items()}
    z, hidden = values["z"], tuple(settings["generator_hidden"])
    fgen = FeatureGenerator(z.shape[1], words, SLOTS, hidden, dropout)
    fgen.load_state_dict({k.removeprefix("fgen."): v for k, v in values.items() if k.startswith("fgen.")})
    return fgen, z


def _binary_rows(rows: np.ndarray) -> np.ndarray:
    """Rows rounded where nearly all features are 0 or 1; rows far from that are no nodes and are dropped.

    Small dense features are near 0 too, but have no ones: such rows are returned unchanged.
    """
    near = np.abs(rows - rows.round().clip(0, 1))
    if not len(rows) or (near < 0.25).mean() < 0.9 or (rows > 0.75).any(1).mean() < 0.5:
        return rows
    return np.asarray(rows[(near < 0.25).all(1)].round().clip(0, 1) + 0.0)


class _Offers(Attack):
    """What all forms of C5 share: each owner's first offer, which every other owner opens.

    The only defence is to make no offer; sealing hides it from the server only. Offers are never summed.
    """

    family = "neighgen"
    adversaries = (SERVER, "client")
    channel = "generator"
    first_rounds = 1
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "sealed messages: sealed, masked, homomorphic, strictest",
        "client": "nothing built; local_dp blurs the answer too",
    }
    nothing_left = "embeddings are read one by one, so no sum of them is left"
    about: ClassVar[str]

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """One array for each owner, a row for each embedding of its first offer."""
        known = self.channel in view.public["channels"]
        offers = [*view.uploads(self.channel), *view.delivered(self.channel)] if known else []
        first: dict[str, Seen] = {}
        for seen in sorted(offers, key=lambda seen: seen.exchange):
            if seen.clients[0] not in view.parties:
                first.setdefault(seen.clients[0], seen)
        if not first:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        values = {owner: self._read(view, seen.values) for owner, seen in sorted(first.items())}
        return Guess.of_owners(self.about, values, len(first))

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        raise NotImplementedError


class EmbeddingDecoder(_Offers):
    """C5: the generator that comes with an embedding is its decoder: it makes the neighbours' features.

    Without noise and dropout, all slots' mean, ``[embeddings, words]``.
    """

    id = "c5-embedding-features"
    subject = "features of neighbours from offered embeddings"
    summary = "features of the neighbours of an owner's nodes, from its embeddings and generator"
    about = NEIGHBOURS

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        words = int(view.public["schema"]["features"])
        fgen, z = _generator(offer, words, view.public["settings"], dropout=0.0)
        fgen.eval()
        with torch.no_grad():
            features: np.ndarray = fgen(z, torch.zeros_like(z)).mean(1).numpy()
        return features


class EmbeddingLinks(_Offers):
    """C5: embeddings that point the same way belong to linked nodes, ``[embeddings, embeddings]``."""

    id = "c5-embedding-links"
    subject = "links from offered embeddings"
    summary = "links among an owner's nodes, from alike embeddings"
    about = EMBEDDED_LINKS

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        z = np.asarray(offer["z"], dtype=np.float64)
        unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
        return np.asarray(unit @ unit.T)


class EmbeddingCounts(_Offers):
    """C5: the counts that come with embeddings, taken for how many neighbours are missing."""

    id = "c5-embedding-counts"
    subject = "numbers of missing neighbours"
    summary = "how many neighbours an owner's nodes miss, from its counts"
    about = MISSING

    def _read(self, view: View, offer: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(offer["counts"]).round().astype(int)
