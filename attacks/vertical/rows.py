"""D2 and D3 on GLASU: the others' rows from the mean that is handed out, and links from rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.vertical.lists import NODES, OTHERS, TRAINING, WHICH, centres_of
from secure_fedgraph.attacks.weights import ALL
from secure_fedgraph.graph.sample.layers import public_set
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import SERVER

ROWS, ALIKE = "rows of another owner", "links by likeness"
OWN_ROWS = "own rows"
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
class Handed:
    """What was aggregated and handed to an owner.

    Args:
        rows: ``[nodes, width]``, the mean.
        summands: how many owners' rows it is the mean of.
    """

    rows: np.ndarray = field(repr=False)
    summands: int


class OthersRows(Attack):
    """D2: ``(M mean - own) / (M - 1)``, the mean of the other owners' rows; with two owners the other's rows.

    Of the first aggregated layer of the first iteration.

    :meth:`run` is about single owners, :meth:`residual` about the mean of the others.
    """

    id = "d2-subtracted-rows"
    title = "the other owners' representations, from their mean with one's own"
    subject = "the others' representations"
    family = "glasu"
    summary = "the others' rows, from the aggregate less one's own"
    adversaries = ("client",)
    channel = _SUMMED
    first_rounds = 1
    grants = (_OWN,)
    needs = (OWN_ROWS,)
    cost = "one subtraction"
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
    stops: ClassVar[Mapping[str, str]] = {
        "client": "three owners, no two others colluding; the others' mean stays open under every policy",
    }

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """The rows of each other owner, where they can be told apart."""
        others = _others(view)
        handed = handed_out(self.id, view)
        if len(others) > 1:
            raise Blind(f"{self.id}: {len(others)} other owners show as their mean only")
        return Guess(ROWS, {others[0]: _less_own(handed, knowledge)}, {others[0]: others}, 1)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The mean of the others' rows."""
        handed = handed_out(self.id, view)
        return Guess(ROWS, {OTHERS: _less_own(handed, knowledge)}, {OTHERS: _others(view)}, 1)


class AlikeRows(Attack):
    """D3: nodes whose rows point the same way are linked: an aggregation over links makes neighbours alike.

    Rows of the first aggregated layer, of all iterations of the first round; each node's directions are
    added up. Where owners learn at home, the sum that they are handed for it.

    :meth:`run` reads each owner's rows (the server), or those of the one other owner, by subtraction;
    :meth:`residual` the mean that the server opened, or the mean of the others.
    """

    id = "d3-alike-rows"
    title = "links, from which rows of a layer are alike"
    subject = "links from rows that are alike"
    family = "glasu"
    summary = "links, from alike rows of a layer"
    adversaries = (SERVER, "client")
    channel = _SUMMED
    also_reads = (TAKE,)
    first_rounds = 1
    grants = (WHICH, _OWN + " (an owner)")
    needs = (TRAINING, NODES, OWN_ROWS)
    cost = "a matrix product of nodes by nodes: seconds"
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
        name = _SUMMED
        uploads = view.uploads(name)
        if not uploads:
            raise Blind(f"{self.id}: {view.why_unreadable(name)}")
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
        handed = handed_out(self.id, view)
        first = min(_sets(view, knowledge).items())[1]
        rows = {target: [(first, _less_own(handed, knowledge))]}
        return _alike({target: _others(view)}, rows, 1)


def taken(view: View) -> np.ndarray | None:
    """``[nodes, width]``: what owners who learn at home were handed last; None where nothing was."""
    asked = view.asked(TAKE) if TAKE in view.public.get("channels", {}) else []
    rows = [np.asarray(seen.values["rows"], dtype=np.float64) for seen in asked if "rows" in seen.values]
    return rows[-1] if rows else None


def handed_out(attack: str, view: View) -> Handed:
    """The aggregate of the first aggregated layer in the first iteration.

    Raises:
        Blind: where none was handed out, or no later request of its channel tells it.
    """
    asked = [seen for seen in view.asked(_SUMMED) if "aggregate" in seen.values]
    if not asked:
        raise Blind(f"{attack}: no aggregate of a layer below the last was handed to this owner")
    first = min(asked, key=lambda seen: seen.exchange)
    if first.values["segment"] != 1:
        raise Blind(f"{attack}: the first aggregate was handed out before this record begins")
    return Handed(
        np.asarray(first.values["aggregate"], dtype=np.float64), int(first.values.get("summands", 1))
    )


def _less_own(handed: Handed, knowledge: Knowledge) -> np.ndarray:
    own = knowledge.facts[OWN_ROWS]
    if own is None or own.shape != handed.rows.shape:
        raise Blind("the owner's own rows are not of the nodes that were aggregated")
    others: np.ndarray = (handed.summands * handed.rows - own) / (handed.summands - 1)
    return others


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
