"""Whether bytes hold a client's data: rows, labels and links, as they are or simply transformed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import gammaln

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.upload import Layout

SURPRISE = 32.0
"""Bits in the order of a row's values: a row with fewer may occur in any bytes by chance."""
ALIKE = 1 - 1e-6
"""A vector with a larger cosine to a row is that row, scaled or negated."""
SHAPES: tuple[tuple[str, str], ...] = (
    ("<f4", "a row as float32"),
    ("<f8", "a row as float64"),
    ("<f2", "a row as float16"),
    ("i1", "a row as int8"),
    ("<i4", "a row as int32"),
    ("<i8", "a row as int64"),
)
_ANCHOR = 8
Anchors = tuple[dict[int, list[tuple[int, bytes, str]]], np.ndarray]
"""Eight bytes -> (offset, byte string, what it is) of each string with them; and all these keys, sorted."""


def rows_in(raw: bytes, owners: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(owner, what) for the data that a message's bytes hold; each of them once.

    It looks for feature rows, the list of labels, and the two rows of links: byte by byte in several number
    formats, also negated and sorted, and by direction in every array with an axis as long as a row. Rows that
    could occur by chance are left out (:data:`SURPRISE`).

    Args:
        raw: a message.
        owners: name -> its graph.
    """
    matches: dict[tuple[str, str], None] = {}
    for owner, graph in owners.items():
        anchors, rows = _prepared(_Held(graph))
        matches.update(((owner, what), None) for what in _verbatim_matches(raw, *anchors))
        if len(rows):
            matches.update(((owner, what), None) for what in _scaled_matches(raw, rows))
    return list(matches)


class _Held:
    """A graph as a cache key, compared by identity."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def __hash__(self) -> int:
        return id(self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.graph is self.graph


def surprise(rows: np.ndarray) -> np.ndarray:
    """Bits: the logarithm of how many orders a row's values have.

    >>> surprise(np.array([[0, 0, 1, 1], [1, 1, 1, 1]])).round(2).tolist()
    [2.58, 0.0]
    """
    bits = []
    for row in rows:
        counts = np.unique(row, return_counts=True)[1]
        bits.append((gammaln(len(row) + 1) - gammaln(counts + 1).sum()) / np.log(2))
    return np.array(bits)


@lru_cache(maxsize=64)
def _prepared(held: _Held) -> tuple[Anchors, np.ndarray]:
    """The byte strings to look for, by eight of their bytes, and the unit vectors of feature rows."""
    graph = held.graph
    x = graph.x.numpy() if graph.x is not None else np.empty((0, 0))
    x = x[surprise(x) >= SURPRISE] if x.size else x
    needles: dict[bytes, str] = {}
    for dtype, what in SHAPES:
        if np.dtype(dtype).kind == "f" or np.array_equal(x, np.rint(x)):
            with np.errstate(over="ignore"):
                needles.update((row.tobytes(), what) for row in x.astype(dtype))
    needles.update((row.tobytes(), "a negated row") for row in -x.astype("<f4"))
    various = np.array([len(np.unique(row)) >= 16 for row in x], dtype=bool)
    if various.any():
        kept = np.sort(x[various].astype("<f4"), axis=1)
        needles.update((row.tobytes(), "a sorted row") for row in kept)
        needles.update((row.tobytes(), "a sorted row") for row in np.ascontiguousarray(kept[:, ::-1]))
    lists = {"its labels": graph.y, "its links": graph.edge_index}
    for what, value in lists.items():
        for row in np.atleast_2d(value.numpy()) if value is not None else ():
            if row.ndim == 1 and len(row) and surprise(row[None])[0] >= SURPRISE:
                for dtype in ("<f4", "<f8", "i1", "<i2", "<i4", "<i8"):
                    if np.array_equal(row.astype(dtype).astype(np.float64), row.astype(np.float64)):
                        needles[row.astype(dtype).tobytes()] = what
    lengths = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True) if x.size else np.ones((0, 1))
    anchors: dict[int, list[tuple[int, bytes, str]]] = {}
    for needle, what in needles.items():
        if len(needle) >= 2 * _ANCHOR:
            at = _anchor_start(needle)
            word = int.from_bytes(needle[at : at + _ANCHOR], "little")
            anchors.setdefault(word, []).append((at, needle, what))
    return (anchors, np.array(sorted(anchors), dtype=np.uint64)), x / np.maximum(lengths, 1e-300)


def _verbatim_matches(
    raw: bytes, anchors: Mapping[int, list[tuple[int, bytes, str]]], wanted: np.ndarray
) -> Iterator[str]:
    """What occurs byte by byte: eight bytes give the candidates, then the whole string is compared."""
    for start in range(_ANCHOR):
        if len(raw) < start + _ANCHOR:
            return
        words = np.frombuffer(raw, np.uint64, (len(raw) - start) // _ANCHOR, start)
        for place in np.flatnonzero(np.isin(words, wanted)):
            where = start + _ANCHOR * int(place)
            for at, needle, what in anchors[int(words[place])]:
                if where >= at and raw[where - at : where - at + len(needle)] == needle:
                    yield what


def _anchor_start(needle: bytes) -> int:
    """Where the eight bytes with the fewest zeros begin; only every fourth byte is tried."""
    nonzero_before = np.concatenate([[0], np.cumsum(np.frombuffer(needle, np.uint8) != 0)])
    starts = np.arange(0, len(needle) - _ANCHOR + 1, 4)
    return int(starts[(nonzero_before[starts + _ANCHOR] - nonzero_before[starts]).argmax()])


def _scaled_matches(raw: bytes, rows: np.ndarray) -> Iterator[str]:
    """Arrays with an axis as long as a row, whose vectors along it point where a row points."""
    for array in _arrays(raw):
        for axis in (i for i, size in enumerate(array.shape) if size == rows.shape[1]):
            vectors = np.moveaxis(array, axis, -1).reshape(-1, rows.shape[1]).astype(np.float64)
            lengths = np.linalg.norm(vectors, axis=1)
            with np.errstate(over="ignore", invalid="ignore"):
                unit = vectors[lengths > 0] / lengths[lengths > 0, None]
            for some in np.array_split(unit, max(1, len(unit) // 4096)):
                if len(some) and (np.abs(some @ rows.T) > ALIKE).any():
                    yield "a row, scaled"


def _arrays(raw: bytes) -> Iterator[np.ndarray]:
    """A message's arrays of numbers; uploads as the tensors that their layout names."""
    try:
        tree = Message.from_bytes(raw).tree()
    except HostileMessage:
        return
    for name, value in tree.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fi":
            continue
        if name == "data" and isinstance(tree.get("layout"), str):
            layout = Layout.from_text(tree["layout"])
            if value.size == layout.rows * layout.width:
                matrix = value.reshape(layout.rows, layout.width)
                yield matrix
                for tensor in layout.unpack(matrix, by_row=True).values():
                    yield tensor.numpy()
                continue
        yield value
