"""What an attack stole, beside the truth: the pictures before and after a defence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import JsonValue

from secure_fedgraph.experiment.schema.audit import AuditResult, Cell, Reconstruction
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.ego_graphs import Sample
from secure_fedgraph.report.figures.stolen import Bars, Links, Order, Panel, Words, stolen
from secure_fedgraph.report.first_screens.readers import ReadUnder
from secure_fedgraph.report.guess_kinds import (
    BATCHES,
    LABELS,
    LINKS,
    NODES,
    QUALITY,
    ROWS,
    SIZES,
    TESTED,
    VOCABULARY,
)
from secure_fedgraph.report.outcomes import aim_of

MOST_BARS, MOST_PANELS = 24, 2
LONGEST = 12
"""Characters of a class under its bar."""
ORDER = (LABELS, TESTED, BATCHES, *NODES, *LINKS, *ROWS, VOCABULARY, *SIZES, QUALITY)
"""Kinds of guesses, from what a picture shows best."""


@dataclass(frozen=True)
class Names:
    """Of features and classes, where the data have them."""

    features: Sequence[str] = ()
    classes: Sequence[str] = ()


@dataclass(frozen=True)
class Theft:
    """One attack that read single owners under a policy.

    Args:
        cell: its score there.
        record: what it wrote down.
        panel: the drawing of it.
    """

    cell: Cell
    record: Reconstruction
    panel: Panel


@dataclass(frozen=True)
class Hero:
    """One of the pictures at the top of a page."""

    drawn: Drawn
    state: str


def before_and_after(
    audit: AuditResult, before: ReadUnder | None, after: ReadUnder | None, names: Names
) -> list[Hero]:
    """What was read under one policy, and what the same attacks get under another; or one of the two.

    Args:
        before: a policy under which single owners were read; None where there is none.
        after: the policy that the page is about; None where there is no other.
    """
    if before is None:
        return [] if after is None else _together_alone(audit, after.policy, names)
    taken = _chosen(audit, before.policy, after, names)
    if not taken:
        return []
    who = text.listed(dict.fromkeys(text.named(text.ADVERSARIES, one.cell.adversary) for one in taken))
    heroes = [_hero("before", f"{text.under(before.policy)}: {who} reads single owners", taken, "leaks", who)]
    if after is not None:
        left = [what_is_left(audit, one, _same_attack(audit, one, after.policy), names) for one in taken]
        states = [state for _, state in left]
        state = next(one for one in ("leaks", "together", "nothing") if one in states)
        panels = [panel for panel, _ in left]
        caption = f"{text.under(after.policy)}: {who} {_outcome(panels, states)}"
        heroes.append(_drawn("after", caption, panels, state, who))
    return heroes


def _together_alone(audit: AuditResult, policy: str, names: Names) -> list[Hero]:
    """What attacks read of all owners together, where they read no single one."""
    panels: list[Panel] = []
    readers: dict[str, None] = {}
    for cell in audit.cells:
        if cell.policy == policy and cell.leaks and aim_of(cell) == RESIDUAL:
            record = record_of(audit, cell)
            panel = None if record is None else panel_of(record, names)
            if panel is not None and all(type(panel) is not type(one) for one in panels):
                panels.append(panel)
                readers[text.named(text.ADVERSARIES, cell.adversary)] = None
    if not panels:
        return []
    who, panels = text.listed(readers), panels[:MOST_PANELS]
    caption = f"{text.under(policy)}: {who} {_outcome(panels, ['together'] * len(panels))}"
    return [_drawn("left", caption, panels, "together", who)]


def _outcome(panels: Sequence[Panel], states: Sequence[str]) -> str:
    """What a reader gets, for a caption. A node in a sum over owners is read, whoever holds it."""
    if "leaks" in states:
        return "still reads single owners"
    if "together" not in states:
        return "reads nothing"
    left = [panel for panel, state in zip(panels, states, strict=True) if state == "together"]
    if all(isinstance(panel, Bars) for panel in left):
        return "reads the sum of all owners, and no single one"
    return "still reads nodes out of the sum, and no longer whose they are"


def _hero(name: str, caption: str, taken: Sequence[Theft], state: str, who: str) -> Hero:
    return _drawn(name, caption, [one.panel for one in taken], state, who)


def _drawn(name: str, caption: str, panels: Sequence[Panel], state: str, who: str) -> Hero:
    picture = stolen(f"stolen-{name}", caption, panels, who)
    table = Table(["what", "true", "read"], [row for panel in panels for row in panel.rows()])
    return Hero(Drawn(picture, caption, table), state)


def _chosen(audit: AuditResult, policy: str, after: ReadUnder | None, names: Names) -> list[Theft]:
    """Up to two attacks of different kinds: those that the other policy stops come first."""
    thefts = []
    for cell in audit.cells:
        if cell.policy == policy and cell.leaks and aim_of(cell) == SINGLE_OWNERS:
            record = record_of(audit, cell)
            panel = None if record is None else panel_of(record, names)
            if record is not None and panel is not None:
                thefts.append(Theft(cell, record, panel))

    def rank(theft: Theft) -> tuple[bool, int, float]:
        again = after is not None and any(
            cell.leaks and aim_of(cell) == SINGLE_OWNERS for cell in _same_attack(audit, theft, after.policy)
        )
        base = theft.cell.baseline or 0.0
        strength = ((theft.cell.score or 0.0) - base) / max(1 - base, 1e-9)
        return again, ORDER.index(theft.record.kind), -strength

    kept: list[Theft] = []
    for theft in sorted(thefts, key=rank):
        if all(type(theft.panel) is not type(one.panel) for one in kept):
            kept.append(theft)
    return kept[:MOST_PANELS]


def _same_attack(audit: AuditResult, theft: Theft, policy: str) -> list[Cell]:
    """The cells of the same attack in the same settings under another policy."""
    mine = theft.cell
    return [
        cell
        for cell in audit.cells
        if cell.policy == policy
        and (cell.algorithm, cell.attack, cell.adversary, cell.seed, cell.settings.variant)
        == (mine.algorithm, mine.attack, mine.adversary, mine.seed, mine.settings.variant)
    ]


def record_of(audit: AuditResult, cell: Cell) -> Reconstruction | None:
    """What the attack of a cell wrote down; None where nothing is kept of it."""
    wanted = (cell.policy, cell.attack, cell.adversary, cell.seed, cell.settings.aim, cell.settings.variant)
    for one in audit.reconstructions:
        place = (one.policy, one.attack, one.adversary, one.seed, one.aim, one.variant)
        if place == wanted and one.algorithm in ("", cell.algorithm) and one.targets:
            return one
    return None


def what_is_left(audit: AuditResult, theft: Theft, cells: Sequence[Cell], names: Names) -> tuple[Panel, str]:
    """What the same attack has elsewhere, and how good that is.

    Args:
        audit: with what it wrote down there.
        cells: of the same attack by the same reader there, about single owners and about all together.

    Returns:
        its drawing, and ``leaks``, ``together`` or ``nothing``.
    """
    single = [cell for cell in cells if aim_of(cell) == SINGLE_OWNERS and cell.outcome == "score"]
    union = [cell for cell in cells if aim_of(cell) == RESIDUAL and cell.leaks]
    for cell in [one for one in single if one.leaks] or union or single:
        record = record_of(audit, cell)
        panel = None if record is None else panel_of(record, names, theft)
        if panel is not None:
            state = "together" if cell in union else "leaks" if cell.leaks else "nothing"
            return panel, state
    empty = panel_of(theft.record, names, nothing=True) or theft.panel
    if isinstance(empty, Bars | Order | Words) and not any(cell.outcome != "refused" for cell in cells):
        empty = replace(empty, why="training was refused" if cells else "this attack was not tried")
    return empty, "nothing"


def panel_of(
    record: Reconstruction, names: Names, theft: Theft | None = None, nothing: bool = False
) -> Panel | None:
    """A drawing of one target of a guess; None for what cannot be drawn.

    Args:
        record: what an attack wrote down.
        theft: of the same attack elsewhere, whose node is drawn again where it is there.
        nothing: draw the truth alone.
    """
    maker = _MAKERS.get(record.kind)
    if maker is None:
        return None
    try:
        return maker(record, names, theft, nothing)
    except (TypeError, ValueError):  # an attack of others may write down anything
        return None


def _labels(record: Reconstruction, names: Names, theft: Theft | None, nothing: bool) -> Panel | None:
    target = record.targets[0]
    true, read = _vector(target.true), _vector(target.guess)
    if true.shape != read.shape or not true.any():
        return None
    known = names.classes if len(names.classes) == len(true) else range(len(true))
    classes = [str(one)[:LONGEST] for one in known]
    what = {TESTED: "Test nodes", BATCHES: "Labels"}.get(record.kind, "Training nodes")
    title = f"{what} of {target.owner} by class"
    return Bars(title, true, None if nothing else read, classes, "classes")


def _sizes(record: Reconstruction, names: Names, theft: Theft | None, nothing: bool) -> Panel | None:
    """One number of each owner."""
    true, read = (np.concatenate([_vector(one) for one in ends]) for ends in _ends(record))
    owners = [target.owner.removeprefix("owner-")[:LONGEST] for target in record.targets]
    if len(owners) != len(true):
        return None
    title = f"{text.sentence(record.subject or record.kind)[:-1]}, by owner"
    return Bars(title, true, None if nothing else read, owners, "numbers")


def _order(record: Reconstruction, names: Names, theft: Theft | None, nothing: bool) -> Panel | None:
    """One number of each owner, of which only the order is guessed. True is how bad an owner's data are."""
    true, read = (np.concatenate([_vector(one) for one in ends]) for ends in _ends(record))
    if len(true) != len(record.targets):
        return None
    return Order("Quality of owners, the best paid first", 1 - true, None if nothing else read)


def _ends(record: Reconstruction) -> tuple[list[JsonValue], list[JsonValue]]:
    """What is true of every target, and what was guessed."""
    return [target.true for target in record.targets], [target.guess for target in record.targets]


def _vocabulary(record: Reconstruction, names: Names, theft: Theft | None, nothing: bool) -> Panel | None:
    target = record.targets[0]
    return _words(f"Words of {target.owner}", _vector(target.true), _vector(target.guess), names, nothing)


def _words(title: str, true: np.ndarray, read: np.ndarray, names: Names, nothing: bool) -> Panel | None:
    if true.shape != read.shape or len(true) < 2 or not (true > 0).any():
        return None
    known = names.features if len(names.features) == len(true) else ()
    got = None if nothing else np.flatnonzero(read > 0)
    return Words(title, np.flatnonzero(true > 0), got, len(true), known)


def _node(record: Reconstruction, names: Names, theft: Theft | None, nothing: bool) -> Panel | None:
    """One node's words: the one that stands in another picture already, else the first that is all right."""
    wanted = theft.panel.true if theft is not None and isinstance(theft.panel, Words) else None
    found = []
    for target in record.targets:
        for number, (true, read) in enumerate(zip(*map(_matrix, (target.true, target.guess)), strict=False)):
            same = wanted is not None and np.array_equal(np.flatnonzero(true > 0), wanted)
            found.append((not same, not np.array_equal(true > 0, read > 0), target, number, true, read))
    if not found:
        return None
    _, _, target, number, true, read = min(found, key=lambda one: one[:2])
    return _words(f"Words of a node of {target.owner}", true, read, names, nothing)


def _rows(record: Reconstruction, names: Names, theft: Theft | None, nothing: bool) -> Panel | None:
    """The first row: words where it holds nothing but zeros and ones, else its largest values."""
    target = record.targets[0]
    true, read = _matrix(target.true)[0], _matrix(target.guess)[0]
    if true.shape != read.shape:
        return None
    if set(np.unique(true)) <= {0.0, 1.0}:
        return _words(f"A row of {target.owner}", true, read, names, nothing)
    kept = np.sort(np.argsort(-np.maximum(np.abs(true), np.abs(read)), kind="stable")[:MOST_BARS])
    known = list(names.features if len(names.features) == len(true) else range(1, len(true) + 1))
    title = (
        f"{text.sentence(record.subject or record.kind)[:-1]} of {target.owner}: the largest of {len(true):,}"
    )
    stolen_before = None if theft is None else theft.panel
    if isinstance(stolen_before, Bars):  # the same values of the same row, whoever it was taken to be of
        there = [number for number, name in enumerate(known) if str(name) in stolen_before.names]
        if np.array_equal(true[there], stolen_before.true):
            kept, title = np.array(there), stolen_before.title
    return Bars(title, true[kept], None if nothing else read[kept], [str(known[i]) for i in kept])


def _links(record: Reconstruction, names: Names, theft: Theft | None, nothing: bool) -> Panel | None:
    target = next((one for one in record.targets if one.graph), None)
    sample = None if target is None else Sample(target)
    if sample is None or not sample.true:
        return None
    return Links(f"Links of a node of {sample.owner}", sample, not nothing)


_MAKERS: dict[str, Callable[[Reconstruction, Names, Theft | None, bool], Panel | None]] = {
    LABELS: _labels,
    TESTED: _labels,
    BATCHES: _labels,
    QUALITY: _order,
    **dict.fromkeys(SIZES, _sizes),
    VOCABULARY: _vocabulary,
    **dict.fromkeys(NODES, _node),
    **dict.fromkeys(ROWS, _rows),
    **dict.fromkeys(LINKS, _links),
}


def _vector(values: JsonValue) -> np.ndarray:
    """Numbers in a row, what is missing as zero.

    Raises:
        ValueError: for anything else.
    """
    found: np.ndarray = np.nan_to_num(np.array(values, dtype=float))
    if found.ndim != 1:
        raise ValueError(f"{found.ndim} dimensions are no row of numbers")
    return found


def _matrix(values: JsonValue) -> np.ndarray:
    """Rows of numbers.

    Raises:
        ValueError: for anything else.
    """
    found: np.ndarray = np.nan_to_num(np.atleast_2d(np.array(values, dtype=float)))
    if found.ndim != 2 or not len(found):
        raise ValueError("no rows of numbers")
    return found
