"""D1, D2 and D3 on GLASU: links from lists of sampled nodes and from rows, and the others' rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from secure_fedgraph.attacks.attack import ALL, SERVER, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.graph.sample.layers import draw_batch, public_set
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen

LINKS = "links from lists"
TRAINING, NODES, OWN_LINKS = "training nodes", "number of nodes", "own links"
ROWS, ALIKE, OWN_ROWS = "rows of another owner", "links by likeness", "own rows"
OTHERS, UNITED = "the others together", "all owners united"
WHICH = (
    "how many nodes there are and which train: every owner knows, and the server could read it from the lists"
)
PASSES = 8
_DEGREES = np.unique(np.round(np.geomspace(1, 200, 60)).astype(int))
"""The numbers of links that a node is tried with."""
_EPOCHS = Control(
    "one-hop lists", {"rounds": 17, "training.layers": 2, "training.aggregated": [1, 2], "training.hidden": 8}
)

_OWN = "the rows that it made itself in the first iteration"
_ONE_LAYER = {
    "rounds": 1,
    "training.layers": 2,
    "training.aggregated": [1, 2],
    "training.sampler": "full",
    "training.steps": 2,
}
_SUMMED, TAKE = "hidden", "take"


@dataclass(frozen=True)
class Lists:
    """Lists of one sampler, beside the nodes that it drew neighbours for.

    Args:
        centres: ``[lists, nodes]``, whether neighbours of a node were drawn.
        informative: ``[lists, nodes]``, whether being on the list says something about a node: not where the
            node is on it anyway.
        drawn: ``[lists, nodes]``, whether it was on the list, where that says something.
        draws: with replacement, a centre, all hops together.
        fanout: the same, a hop.
    """

    centres: np.ndarray = field(repr=False)
    informative: np.ndarray = field(repr=False)
    drawn: np.ndarray = field(repr=False)
    draws: int
    fanout: int

    def scores(self) -> np.ndarray:
        """How much likelier the lists are with a link than without, for each pair, ``[nodes, nodes]``.

        Where a centre ``v`` has ``d`` links, a neighbour of it comes up at the rate ``q = 1 - (1 -
        1/d)^draws`` by ``v`` alone. First pass: a node ``u`` was on ``k`` of the ``n`` lists of ``v``, and
        on others at the rate ``p0``: ``k log(p1 / p0) + (n - k) log((1 - p1) / (1 - p0))`` for ``p1 = 1 - (1
        - p0)(1 - q)``, with the ``d`` whose ``d`` best candidates are likeliest. Then, ``PASSES`` times,
        what the list's other centres explain is taken off: ``(n - k) log(1 - q) + sum over hits of log((1 -
        (1 - q) m) / (1 - m))``, where ``m`` is the chance that none of the others brought ``u``, by the
        scores so far.

        Where both ends were centres the two directions add up; where neither was, NaN.
        """
        centres, drawn = self.centres.astype(np.float32), self.drawn.astype(np.float32)
        used = np.flatnonzero(self.centres.any(0))
        c = centres[:, used]
        n, k = c.T @ self.informative.astype(np.float32), c.T @ drawn
        p0 = (drawn.sum(0) - k + 0.5) / (self.informative.sum(0, dtype=np.float32) - n + 1)
        scores, degrees = _first_pass(k, n, p0.clip(1e-5, 1 - 1e-5), self.draws)
        # one hop: nobody but the centres brings a node; two: whatever p0 says
        stray = np.full_like(p0, 1e-3) if self.draws == self.fanout else p0.clip(1e-3, 0.5)
        for _ in range(PASSES):
            # half of the way: candidates that explain each other would otherwise take turns
            further, more = self._explained(used, scores, degrees, n, k, stray)
            scores, degrees = (scores + further) / 2, (degrees + more) / 2
        return _both_ways(scores, used, centres.shape[1])

    def _explained(
        self,
        used: np.ndarray,
        scores: np.ndarray,
        degrees: np.ndarray,
        n: np.ndarray,
        k: np.ndarray,
        stray: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """One more pass: scores given what the other centres of a list explain, and degrees by them."""
        nodes = scores.shape[1]
        linked = _chance(scores, degrees)
        q = (1 - (1 - 1 / degrees) ** self.draws)[:, None]
        brings = np.log1p(-(linked * q).clip(0, 0.999))  # log chance that v does not bring u
        place = np.full(nodes, -1)
        place[used] = np.arange(len(used))
        explained = (n - k) * np.log1p(-q.clip(0, 0.999))
        for centres, hits in zip(self.centres, self.drawn, strict=True):
            rows, columns = np.ix_(place[np.flatnonzero(centres)], np.flatnonzero(hits))
            own = brings[rows, columns]
            base = np.log1p(-stray[rows, columns])
            m = np.exp((own.sum(0) - own + base).clip(-30, -1e-6))
            explained[rows, columns] += np.log((1 - (1 - q[rows[:, 0]]) * m) / (1 - m))
        return explained, _chance(explained, degrees).sum(1).clip(1, nodes)


def _chance(scores: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """That there is a link, where a centre has so many among all nodes."""
    odds = np.log(degrees / scores.shape[1])[:, None] + scores
    return np.asarray(1 / (1 + np.exp(-odds.clip(-30, 30))))


def _both_ways(scores: np.ndarray, used: np.ndarray, nodes: int) -> np.ndarray:
    one_way = np.full((nodes, nodes), np.nan, dtype=np.float32)
    one_way[used] = scores
    scored = ~np.isnan(one_way)
    both = np.nan_to_num(one_way) + np.nan_to_num(one_way.T)
    both[~(scored | scored.T)] = np.nan
    np.fill_diagonal(both, np.nan)
    return both


def _first_pass(k: np.ndarray, n: np.ndarray, p0: np.ndarray, draws: int) -> tuple[np.ndarray, np.ndarray]:
    best, degrees = np.full(len(k), -np.inf), np.ones(len(k))
    scores = np.zeros_like(k)
    for degree in _DEGREES[k.shape[1] > _DEGREES]:
        q = 1 - (1 - 1 / degree) ** draws
        p1 = (1 - (1 - p0) * (1 - q)).clip(1e-5, 1 - 1e-5)
        score = k * np.log(p1 / p0) + (n - k) * np.log((1 - p1) / (1 - p0))
        top = np.partition(score, -degree, axis=1)[:, -degree:].sum(1)
        better = top > best
        best[better], degrees[better] = top[better], degree
        scores[better] = score[better]
    return scores, degrees


class ListLinks(Attack):
    """D1: whom an owner sampled, seen by the server.

    With ``sampler="paper"`` every owner tells the server which nodes it drew around a public batch. A
    neighbour of a batch node comes up more often when that node is in the batch than otherwise. No
    representation is read.

    :meth:`run` reads each owner's lists, :meth:`residual` only what would be left if lists were united out
    of the server's sight: the union, scored against the links of anybody. With ``sampler="public"`` the sets
    are drawn from the seed, which is all there is to read.
    """

    id = "d1-index-lists"
    subject = "links from lists of sampled nodes"
    family = "glasu"
    summary = "an owner's links, from its lists of sampled nodes"
    channel = "sample"
    grants = (WHICH,)
    needs = (TRAINING, NODES)
    controls = (_EPOCHS,)
    depends_on = ("training.layers", "training.sampler", "training.batch", "training.fanout", "rounds")
    stops = "training.sampler=public or full, which depend on nobody's links"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores of all pairs of nodes, for each owner."""
        if view.public["settings"].get("sampler") == "public":
            requests = view.asked("hidden")
            if not requests:
                raise Blind(f"{self.id}: sampler=public sends no list: sets are drawn from the seed")
            scores, owners = public_lists(view, requests, knowledge).scores(), view.public["clients"]
            return Guess.of_owners(LINKS, dict.fromkeys(owners, scores), len(requests))
        lists, messages = self._lists(view, knowledge)
        return Guess.of_owners(LINKS, {t: one.scores() for t, one in lists.items()}, messages)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores of all pairs of nodes, from the unions alone."""
        lists, messages = self._lists(view, knowledge)
        first = next(iter(lists.values()))
        drawn = np.any([one.drawn for one in lists.values()], axis=0)
        united = Lists(first.centres, first.informative, drawn, first.draws, first.fanout)
        return Guess(LINKS, {UNITED: united.scores()}, {UNITED: tuple(sorted(lists))}, messages)

    def _lists(self, view: View, knowledge: Knowledge) -> tuple[dict[str, Lists], int]:
        rows: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        uploads = self.single_uploads(view)
        asked = {seen.exchange: seen.values for seen in view.asked(self.channel)}
        for seen in uploads:
            centres = centres_of(view, asked[seen.exchange], knowledge)
            rows.setdefault(seen.clients[0], []).append((centres, seen.values["nodes"].astype(int).ravel()))
        nodes = int(knowledge.facts[NODES])
        return {owner: _table(view, listed, nodes) for owner, listed in sorted(rows.items())}, len(uploads)


class ListLinksByOwner(Attack):
    """D1 by an owner: the union that it is handed, less its own list.

    What is on the united list and not on its own was drawn by somebody else. Its own draws say nothing about
    the others', so lists on which a node is its own are left out for that node. Links that it holds itself
    are no guess.

    With two owners :meth:`run` is about the other one; with more :meth:`residual` is about the others
    together.
    """

    id = "d1-index-union"
    subject = "the others' links from united lists"
    family = "glasu"
    summary = "the others' links, from the united lists less one's own"
    adversaries = ("client",)
    channel = "sample"
    also_reads = ("hidden",)
    first_rounds = 17
    grants = (WHICH, "its own links")
    needs = (TRAINING, NODES, OWN_LINKS)
    controls = (_EPOCHS,)
    depends_on = ListLinks.depends_on
    stops = "training.sampler=public or full, which depend on nobody's links"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores of all pairs that it does not hold itself, about the one other owner."""
        others = _others(view)
        if len(others) > 1:
            raise Blind(f"{self.id}: of {len(others)} others the union shows, and no single list")
        return self._guess(view, knowledge, others[0], others)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same about all the others together."""
        return self._guess(view, knowledge, OTHERS, _others(view))

    def _guess(self, view: View, knowledge: Knowledge, target: str, others: tuple[str, ...]) -> Guess:
        uploads = self.single_uploads(view)
        asked = {seen.exchange: seen.values for seen in view.asked(self.channel)}
        unions = {
            (seen.round, seen.values["step"]): seen.values["nodes"].astype(int)
            for seen in view.asked("hidden")
            if seen.values.get("segment") == 0 and "nodes" in seen.values
        }
        rows, own = [], []
        for seen in uploads:
            given = asked[seen.exchange]
            if given["segment"] == 1 and (seen.round, given["step"]) in unions:
                rows.append((centres_of(view, given, knowledge), unions[seen.round, given["step"]]))
                own.append(seen.values["nodes"].astype(int).ravel())
        if not rows:
            raise Blind(f"{self.id}: no united list was handed to this owner")
        nodes = int(knowledge.facts[NODES])
        table, mine = _table(view, rows, nodes), _marked(own, nodes)
        scores = Lists(
            table.centres, table.informative & ~mine, table.drawn & ~mine, table.draws, table.fanout
        ).scores()
        row, column = np.asarray(knowledge.facts[OWN_LINKS])
        scores[row, column] = scores[column, row] = np.nan
        return Guess(LINKS, {target: scores}, {target: others}, len(rows))


class _OnRows(Attack):
    """What D2 and D3 share: the rows of the first aggregated layer."""

    family = "glasu"
    channel = _SUMMED
    first_rounds = 1

    def _handed_out(self, view: View) -> tuple[np.ndarray, int]:
        """``[nodes, width]`` the aggregate of the first iteration, and of how many owners.

        Raises:
            Blind: where none was handed out, or no later request of its channel tells it.
        """
        asked = [seen for seen in view.asked(_SUMMED) if "aggregate" in seen.values]
        if not asked:
            raise Blind(f"{self.id}: no aggregate of a layer below the last was handed to this owner")
        first = min(asked, key=lambda seen: seen.exchange).values
        if first["segment"] != 1:
            raise Blind(f"{self.id}: the first aggregate was handed out before this record begins")
        return np.asarray(first["aggregate"], dtype=np.float64), int(first.get("summands", 1))


class OthersRows(_OnRows):
    """D2: ``(M mean - own) / (M - 1)``, the mean of the other owners' rows; with two owners the other's rows.

    Of the first aggregated layer of the first iteration.

    :meth:`run` is about single owners, :meth:`residual` about the mean of the others.
    """

    id = "d2-subtracted-rows"
    subject = "the others' representations"
    summary = "the others' rows, from the aggregate less one's own"
    adversaries = ("client",)
    grants = (_OWN,)
    needs = (OWN_ROWS,)
    controls = (
        Control(
            "two owners",
            {
                "clients": 2,
                "rounds": 1,
                "training.accept_two_clients": True,
                "training.sampler": "public",
                "training.steps": 1,
            },
        ),
    )
    depends_on = ("algorithm", "clients")
    stops = "three owners, no two others colluding; the others' mean stays open under every policy"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The rows of each other owner, where they can be told apart."""
        others = _others(view)
        rows, summands = self._handed_out(view)
        if len(others) > 1:
            raise Blind(f"{self.id}: {len(others)} other owners show as their mean only")
        return Guess(ROWS, {others[0]: _less_own(rows, summands, knowledge)}, {others[0]: others}, 1)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean of the others' rows."""
        rows, summands = self._handed_out(view)
        return Guess(ROWS, {OTHERS: _less_own(rows, summands, knowledge)}, {OTHERS: _others(view)}, 1)


class AlikeRows(_OnRows):
    """D3: nodes whose rows point the same way are linked: an aggregation over links makes neighbours alike.

    Rows of the first aggregated layer, of all iterations of the first round; each node's directions are
    added up. Where owners learn at home, the sum that they are handed for it.

    :meth:`run` reads each owner's rows (the server), or those of the one other owner, by subtraction;
    :meth:`residual` the mean that the server opened, or the mean of the others.
    """

    id = "d3-alike-rows"
    subject = "links from rows that are alike"
    summary = "links, from alike rows of a layer"
    adversaries = (SERVER, "client")
    also_reads = (TAKE,)
    grants = (WHICH, _OWN + " (an owner)")
    needs = (TRAINING, NODES, OWN_ROWS)
    controls = (Control("first layer of all nodes", _ONE_LAYER),)
    depends_on = ("training.layers", "training.sampler", "training.backbone")
    stops: ClassVar[Mapping[str, str]] = {
        SERVER: "masked, homomorphic (single rows); for the mean nothing built",
        "client": "nothing built",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Scores of all pairs of nodes with rows, for each owner."""
        if SERVER not in view.parties:
            others = _others(view)
            if len(others) > 1:
                raise Blind(f"{self.id}: {len(others)} other owners show as their mean only")
            return self._of_others(view, knowledge, others[0])
        uploads = self.single_uploads(view, _SUMMED)
        nodes = _sets(view, knowledge)
        by_owner: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for seen in uploads:
            if seen.exchange in nodes:
                by_owner.setdefault(seen.clients[0], []).append((nodes[seen.exchange], seen.values["rows"]))
        return _alike({owner: (owner,) for owner in sorted(by_owner)}, by_owner, len(uploads))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from the mean over all owners, or over the others."""
        if (handed := taken(view)) is not None:
            return _alike({ALL: tuple(view.public["clients"])}, {ALL: [(np.arange(len(handed)), handed)]}, 1)
        if SERVER not in view.parties:
            return self._of_others(view, knowledge, OTHERS)
        sums, nodes = self.opened_sums(view), _sets(view, knowledge)
        rows = [(nodes[seen.exchange], seen.values["rows"]) for seen in sums if seen.exchange in nodes]
        return _alike({ALL: sums[0].clients}, {ALL: rows}, len(sums))

    def _of_others(self, view: View, knowledge: Knowledge, target: str) -> Guess:
        rows, summands = self._handed_out(view)
        first = min(_sets(view, knowledge).items())[1]
        others = {target: [(first, _less_own(rows, summands, knowledge))]}
        return _alike({target: _others(view)}, others, 1)


def taken(view: View) -> np.ndarray | None:
    """``[nodes, width]``: what owners who learn at home were handed last; None where nothing was."""
    asked = view.asked(TAKE) if TAKE in view.public.get("channels", {}) else []
    rows = [np.asarray(seen.values["rows"], dtype=np.float64) for seen in asked if "rows" in seen.values]
    return rows[-1] if rows else None


def _less_own(rows: np.ndarray, summands: int, knowledge: Knowledge) -> np.ndarray:
    own = knowledge.facts[OWN_ROWS]
    if own is None or own.shape != rows.shape:
        raise Blind("the owner's own rows are not of the nodes that were aggregated")
    return np.asarray((summands * rows - own) / (summands - 1))


def _sets(view: View, knowledge: Knowledge) -> dict[int, np.ndarray]:
    """Exchange -> whose rows were asked for, where it is of the first aggregated layer."""
    settings, by_exchange = view.public["settings"], {}
    for seen in view.asked(_SUMMED):
        given = seen.values
        if given.get("segment") != 0:
            continue
        if settings["sampler"] == "full" and len(settings["aggregated"]) > 1:
            by_exchange[seen.exchange] = np.arange(int(knowledge.facts[NODES]))
        elif settings["sampler"] == "public" and len(settings["aggregated"]) > 1:
            batch = torch.as_tensor(centres_of(view, given, knowledge))
            size, nodes = settings["public_nodes"], int(knowledge.facts[NODES])
            by_exchange[seen.exchange] = public_set(batch, nodes, size, int(given["seed"])).numpy()
        else:
            by_exchange[seen.exchange] = centres_of(view, given, knowledge)
    return by_exchange


def _alike(
    targets: Mapping[str, tuple[str, ...]],
    rows: Mapping[str, list[tuple[np.ndarray, np.ndarray]]],
    messages: int,
) -> Guess:
    """Cosines of the nodes' summed directions, ``[nodes, nodes]``; NaN without a row."""
    values = {}
    for target, blocks in rows.items():
        nodes = 1 + max(int(numbers.max()) for numbers, _ in blocks)
        total = np.zeros((nodes, blocks[0][1].shape[1]), dtype=np.float32)
        for numbers, made in blocks:
            size = np.linalg.norm(made, axis=1, keepdims=True)
            total[numbers] += made / np.maximum(size, 1e-12)
        size = np.linalg.norm(total, axis=1, keepdims=True)
        unit = np.where(size > 1e-6, total / np.maximum(size, 1e-6), np.nan).astype(np.float32)
        cosine = unit @ unit.T
        np.fill_diagonal(cosine, np.nan)
        values[target] = cosine
    return Guess(ALIKE, values, targets, messages)


def _others(view: View) -> tuple[str, ...]:
    return tuple(name for name in view.public["clients"] if name not in view.parties)


def centres_of(view: View, given: Mapping[str, Any], knowledge: Knowledge) -> np.ndarray:
    """The nodes that a request has neighbours drawn for: the batch, or the union above."""
    if "nodes" in given:
        return np.asarray(given["nodes"]).astype(int)
    training = torch.as_tensor(knowledge.facts[TRAINING])
    if view.public["settings"]["sampler"] == "full":
        return training.numpy()
    return draw_batch(training, view.public["settings"]["batch"], int(given["seed"])).numpy()


def public_lists(view: View, requests: Iterable[Seen], knowledge: Knowledge) -> Lists:
    """The lists that the seeds alone give with ``sampler="public"``: what anybody can make, and no more."""
    size, nodes, rows = view.public["settings"]["public_nodes"], int(knowledge.facts[NODES]), []
    for seed in sorted({int(seen.values["seed"]) for seen in requests}):
        batch = centres_of(view, {"seed": seed}, knowledge)
        rows.append((batch, public_set(torch.as_tensor(batch), nodes, size, seed).numpy()))
    return _table(view, rows, nodes)


def _table(view: View, rows: list[tuple[np.ndarray, np.ndarray]], nodes: int) -> Lists:
    settings = view.public["settings"]
    ends = (0, *settings["aggregated"])
    # a centre stays in the set below it and draws again; by how many layers lists differ is the same
    # throughout
    hops = max(1, ends[2] - ends[1] if len(ends) > 2 else 1)
    centres = _marked([row[0] for row in rows], nodes)
    listed = _marked([row[1] for row in rows], nodes)
    return Lists(centres, ~centres, listed & ~centres, settings["fanout"] * hops, settings["fanout"])


def _marked(lists: Iterable[np.ndarray], nodes: int) -> np.ndarray:
    lists = list(lists)
    marked = np.zeros((len(lists), nodes), dtype=bool)
    for row, nodes_listed in enumerate(lists):
        marked[row, nodes_listed] = True
    return marked
