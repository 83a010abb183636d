"""E1, E2 and E3 on FairGraphFL: single graphs' embeddings, from motifs' prototypes and sums over graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.linear import held
from secure_fedgraph.protocol import View

SINGLETONS, GRAPHS, CHANGE = "motifs of one graph", "graph embeddings", "the graph that came or went"
INCIDENCE, EARLIER = "motif incidence", "view of a run without one graph"
SCALE = 1024.0
"""What prototypes are divided by to travel, and what a graph's part of a bounded sum is the inverse of."""
_EACH, _SUMS, _LISTS, _BOUNDED = "prototypes", "prototype_sums", "motifs", "motif_sums"
_COUNTED = {"rounds": 1, "training.idf": "global"}
STOPS = "fairgraphfl-bounded with noise; support=2 keeps motifs of one graph at home, and leaves E2"


@dataclass(frozen=True)
class Listed:
    """One owner's motif list, in the order of its prototypes.

    Args:
        codes: ``[listed, width]``.
        graphs: ``[listed]`` in how many graphs each is; None where no counts were sent.
    """

    codes: np.ndarray = field(repr=False)
    graphs: np.ndarray | None = field(default=None, repr=False)


def listed(view: View) -> dict[str, Listed]:
    """Owner -> its list, as far as this view can read it, with the counts of an exchange before it."""
    if _LISTS not in view.public.get("channels", {}):
        return {}
    lists: dict[str, Listed] = {}
    counts: dict[str, dict[bytes, float]] = {}
    for seen in sorted(view.uploads(_LISTS), key=lambda s: s.exchange):
        (owner,), values = seen.clients, seen.values
        codes = np.asarray(values["codes"]).astype(np.int64)
        if "graphs" in values:
            counts[owner] = {c.tobytes(): float(n) for c, n in zip(codes, values["graphs"], strict=True)}
        ordered = np.unique(codes, axis=0)
        known = counts.get(owner)
        graphs = None if known is None else np.array([known.get(c.tobytes(), np.nan) for c in ordered])
        lists[owner] = Listed(ordered, graphs)
    return lists


class _Prototypes(Attack):
    """What E1 and E2 share: the first round's prototypes, of each owner or summed, and who listed what."""

    family = "prototypes"
    channel = _EACH
    also_reads = (_LISTS, _SUMS)
    first_rounds = 1
    depends_on = ("training.prototypes", "training.idf", "training.support", "training.rings")
    stops = STOPS

    def _of_each(self, view: View) -> dict[str, tuple[Listed, np.ndarray]]:
        """Owner -> its list and its prototypes ``[listed, width]``."""
        uploads, lists = self.single_uploads(view), self._lists(view)
        return {seen.clients[0]: (lists[seen.clients[0]], _rows(seen.values) * SCALE) for seen in uploads}

    def _of_all(self, view: View) -> tuple[dict[str, Listed], np.ndarray, np.ndarray]:
        """Every list, the vocabulary, and the sum of the owners' prototypes ``[vocabulary, width]``."""
        sums = self.opened_sums(view, _SUMS)
        lists = self._lists(view)
        vocabulary = np.unique(np.concatenate([one.codes for one in lists.values()]), axis=0)
        first = min(sums, key=lambda seen: seen.round)
        return lists, vocabulary, _rows(first.values) * SCALE

    def _lists(self, view: View) -> dict[str, Listed]:
        lists = listed(view)
        if not lists:
            raise Blind(f"{self.id}: who has which motifs cannot be read in this view")
        return lists


class SingletonMotifs(_Prototypes):
    """E1: the prototype of a motif that one graph holds is that graph's embedding.

    Which motifs are such is in the counts that ``idf=global`` has every owner send. Without counts nothing in
    the view tells them from others.

    Of sums the same holds for a motif that one owner alone has listed, and that one of its graphs holds.
    """

    id = "e1-singleton-motif"
    subject = "graph embeddings from motifs of one graph"
    summary = "graphs' embeddings, from motifs of one graph"
    controls = (
        Control("counts are sent", {**_COUNTED, "training.prototypes": "each"}),
        Control("counts are sent with sums", {**_COUNTED, "training.prototypes": "sum"}),
    )

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """``[singletons, width]`` of each owner."""
        each = self._of_each(view).items()
        return _of_owners(SINGLETONS, {owner: rows[self._counts(mine) == 1] for owner, (mine, rows) in each})

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same of motifs that only one owner listed, from the sum."""
        lists, vocabulary, rows = self._of_all(view)
        holders = np.stack([places(one.codes, vocabulary) >= 0 for one in lists.values()]).sum(0)
        values = {}
        for owner, mine in lists.items():
            at = places(mine.codes, vocabulary)
            alone = (holders == 1) & (at >= 0)
            alone[alone] = self._counts(mine)[at[alone]] == 1
            values[owner] = rows[alone]
        return _of_owners(SINGLETONS, values)

    def _counts(self, mine: Listed) -> np.ndarray:
        if mine.graphs is None:
            raise Blind(
                f"{self.id}: no counts were sent, so nothing tells the motifs of one graph from others"
            )
        return mine.graphs


class SubsetAlgebra(_Prototypes):
    """E2: prototypes are linear equations in the graphs' embeddings; some graphs follow from several of them.

    ``n_m P_m = sum of e(G) over the graphs with motif m``. An informed adversary knows which graph holds
    which motif, as whoever knows the graphs and asks whether they were used does. A graph whose unit vector
    lies in the row space is given away, singleton or not.
    """

    id = "e2-subset-algebra"
    subject = "graph embeddings from all prototypes"
    summary = "graphs' embeddings, from all prototypes and each graph's motifs"
    grants = ("which of an owner's training graphs holds which motif (an informed adversary)",)
    needs = (INCIDENCE,)
    controls = (
        Control("prototypes of each", {"rounds": 1, "training.prototypes": "each"}),
        Control("prototypes summed", {"rounds": 1, "training.prototypes": "sum"}),
    )

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """``[graphs, width]`` of each owner, NaN where an embedding does not follow."""
        each = self._of_each(view).items()
        solved = {o: _solved(self._means(knowledge, o, mine).T, rows) for o, (mine, rows) in each}
        return _of_owners(GRAPHS, solved)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same, all owners' graphs being the unknowns of one system."""
        lists, vocabulary, rows = self._of_all(view)
        blocks = []
        for owner, mine in lists.items():
            means = self._means(knowledge, owner, mine)
            block = np.zeros((len(vocabulary), len(means)))
            at = places(mine.codes, vocabulary)
            block[at >= 0] = means.T[at[at >= 0]]
            blocks.append(block)
        embeddings = _solved(np.concatenate(blocks, axis=1), rows)
        ends = np.cumsum([block.shape[1] for block in blocks])[:-1]
        return _of_owners(GRAPHS, dict(zip(lists, np.split(embeddings, ends), strict=True)))

    def _means(self, knowledge: Knowledge, owner: str, mine: Listed) -> np.ndarray:
        """``[graphs, listed]``: the weight of each graph in each prototype."""
        codes, holds = knowledge.facts[INCIDENCE][owner]
        at = places(mine.codes, np.asarray(codes))
        mine_holds = np.zeros((len(holds), len(mine.codes)))
        mine_holds[:, at[at >= 0]] = np.asarray(holds, dtype=np.float64)[:, at >= 0]
        return np.asarray(mine_holds / np.maximum(mine_holds.sum(0), 1))


class RoundDifferencing(Attack):
    """E3: what one graph adds to sums over graphs, from two of them.

    Where a graph came or went between two runs over one public model, the sums of its motifs differ by its
    embedding, and all others not at all: the difference is the embedding and the set of motifs. Within a run
    an agent's graphs stay, and bounded sums are released once; so this takes two runs.
    """

    id = "e3-round-differencing"
    subject = "a graph that came or went"
    family = "prototypes"
    summary = "embedding and motifs of a graph that came or went, from two runs' sums"
    channel = _BOUNDED
    first_rounds = 1
    grants = ("its own view of an earlier run over the same data with one training graph less, and one seed",)
    needs = (EARLIER,)
    controls = (Control("bounded sums of a frozen model", {"rounds": 1, "training.use_diversity": False}),)
    stops = "fairgraphfl-bounded under local_dp (noise for a graph)"

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """``[vocabulary, width]`` of the owner whose sums differ, NaN in rows that do not."""
        now, before = ({s.clients[0]: _rows(s.values) for s in self.single_uploads(v)} for v in
                       (view, self._earlier(knowledge)))  # fmt: skip
        apart = {owner: self._apart(view, rows, before[owner]) for owner, rows in now.items()}
        changed = {owner: rows for owner, rows in apart.items() if not np.isnan(rows).all()}
        return _of_owners(CHANGE, changed or apart)

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """The same from the sums over all owners, so that whose graph it was stays open."""
        (now, *_), (before, *_) = self.opened_sums(view), self.opened_sums(self._earlier(knowledge))
        rows = self._apart(view, _rows(now.values), _rows(before.values))
        return Guess(CHANGE, {"some owner": rows}, {"some owner": now.clients}, 2)

    def _earlier(self, knowledge: Knowledge) -> View:
        earlier = knowledge.facts[EARLIER]
        if not isinstance(earlier, View):
            raise Blind(f"{self.id}: there is no earlier run to subtract")
        return earlier

    def _apart(self, view: View, now: np.ndarray, before: np.ndarray) -> np.ndarray:
        settings = view.public["settings"]
        apart = now - before
        lengths = np.linalg.norm(apart, axis=1)
        # what was added in another order, or rounded to a grid, is far below one graph's part
        same = lengths <= 1e-3 * max(lengths.max(initial=0.0), 1e-12)
        return np.where(same[:, None], np.nan, apart * (SCALE * settings["clip"]))


def _rows(values: Mapping[str, Any]) -> np.ndarray:
    return np.asarray(values["rows"], dtype=np.float64)


def _solved(coefficients: np.ndarray, rows: np.ndarray) -> np.ndarray:
    inverse, solved = held(coefficients)
    return np.where(solved[:, None], inverse @ rows, np.nan)


def places(codes: np.ndarray, among: np.ndarray) -> np.ndarray:
    """``[among]`` the number of each of ``among`` in ``codes``; -1 where it is not in them."""
    where = {code.tobytes(): i for i, code in enumerate(np.ascontiguousarray(codes, dtype=np.int64))}
    wanted = np.ascontiguousarray(among, dtype=np.int64)
    return np.array([where.get(code.tobytes(), -1) for code in wanted], dtype=int)


def _of_owners(about: str, values: Mapping[str, np.ndarray]) -> Guess:
    return Guess.of_owners(about, values, len(values))
