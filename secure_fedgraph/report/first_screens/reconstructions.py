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
from secure_fedgraph.report.figures.reconstructions import Bars, Links, Panel, Words, stolen
from secure_fedgraph.report.first_screens.readers import ReadUnder
from secure_fedgraph.report.grouping import aim_of
from secure_fedgraph.report.guess_kinds import BATCHES, LABELS, LINKS, NODES, ROWS, SIZES, TESTED, VOCABULARY

MOST_BARS, MOST_PANELS = 24, 2
LONGEST = 12
"""Characters of a class under its bar."""


@dataclass(frozen=True)
class Names:
    """Of features and classes, where the data have them."""

    features: Sequence[str] = ()
    classes: Sequence[str] = ()


Stolen = tuple[Cell, Reconstruction, Panel]
"""An attack's score, what it wrote down, and the drawing of it."""


def before_and_after(
    audit: AuditResult, before: ReadUnder | None, after: ReadUnder | None, names: Names
) -> list[Drawn]:
    """What was read under one policy, and what the same attacks get under another; or one of the two.

    Args:
        before: a policy under which single owners were read; None where there is none.
        after: the policy that the page is about; None where there is no other.
    """
    if before is None:
        taken = [] if after is None else _of_each_kind(_drawn_of(audit, after.policy, RESIDUAL, names))
        return [] if after is None else _left(after.policy, taken, [(one[2], "together") for one in taken])
    drawn = _drawn_of(audit, before.policy, SINGLE_OWNERS, names)
    again = set() if after is None else {
        cell.attack for cell in audit.cells
        if cell.policy == after.policy and cell.leaks and aim_of(cell) == SINGLE_OWNERS
    }  # fmt: skip
    order = list(_MAKERS)
    drawn.sort(key=lambda one: (one[0].attack in again, order.index(one[1].kind), -(one[0].score or 0.0)))
    taken = _of_each_kind(drawn)
    if not taken:
        return []
    who = _who(taken)
    caption = f"{text.under(before.policy)}: {who} reads single owners"
    heroes = [_hero("before", caption, [panel for *_, panel in taken], "leaks", who)]
    if after is not None:
        left = [
            what_is_left(audit, record, _same_attack(audit, cell, after.policy), names)
            for cell, record, _ in taken
        ]
        heroes += _left(after.policy, taken, left)
    return heroes


def _drawn_of(audit: AuditResult, policy: str, aim: str, names: Names) -> list[Stolen]:
    """What attacks read under a policy, of those whose guesses can be drawn."""
    found = []
    for cell in audit.cells:
        if cell.policy == policy and cell.leaks and aim_of(cell) == aim:
            record = record_of(audit, cell)
            panel = None if record is None else panel_of(record, names)
            if record is not None and panel is not None:
                found.append((cell, record, panel))
    return found


def _of_each_kind(drawn: Sequence[Stolen]) -> list[Stolen]:
    """The first of each kind of picture, and no more than two."""
    kinds: dict[type, Stolen] = {}
    for one in drawn:
        kinds.setdefault(type(one[2]), one)
    return [*kinds.values()][:MOST_PANELS]


def _left(policy: str, taken: Sequence[Stolen], left: Sequence[tuple[Panel, str]]) -> list[Drawn]:
    """The picture of what attacks get under a policy. A node in a sum is read, whoever holds it."""
    if not left:
        return []
    who, states = _who(taken), [state for _, state in left]
    state = next(one for one in ("leaks", "together", "nothing") if one in states)
    of_nodes = any(not isinstance(panel, Bars) for panel, state in left if state == "together")
    told = {
        "leaks": "still reads single owners",
        "together": "still reads nodes out of the sum, and no longer whose they are"
        if of_nodes
        else "reads the sum of all owners, and no single one",
        "nothing": "reads nothing",
    }[state]
    return [_hero("after", f"{text.under(policy)}: {who} {told}", [panel for panel, _ in left], state, who)]


def _who(taken: Sequence[Stolen]) -> str:
    return text.listed(dict.fromkeys(text.named(text.ADVERSARIES, cell.adversary) for cell, *_ in taken))


def _hero(name: str, caption: str, panels: Sequence[Panel], state: str, who: str) -> Drawn:
    picture = stolen(f"stolen-{name}", caption, panels, who)
    table = Table(["what", "true", "read"], [row for panel in panels for row in panel.rows()])
    return Drawn(picture, caption, table, state)


def _same_attack(audit: AuditResult, mine: Cell, policy: str) -> list[Cell]:
    """The cells of the same attack in the same settings under another policy."""

    def place(cell: Cell) -> tuple[object, ...]:
        return cell.algorithm, cell.attack, cell.adversary, cell.seed, cell.settings.variant

    return [cell for cell in audit.cells if cell.policy == policy and place(cell) == place(mine)]


def record_of(audit: AuditResult, cell: Cell) -> Reconstruction | None:
    """What the attack of a cell wrote down; None where nothing is kept of it."""
    wanted = (cell.policy, cell.attack, cell.adversary, cell.seed, cell.settings.aim, cell.settings.variant)
    for one in audit.reconstructions:
        place = (one.policy, one.attack, one.adversary, one.seed, one.aim, one.variant)
        if place == wanted and one.algorithm in ("", cell.algorithm) and one.targets:
            return one
    return None


def what_is_left(
    audit: AuditResult, stolen: Reconstruction, cells: Sequence[Cell], names: Names
) -> tuple[Panel, str]:
    """What the same attack has elsewhere, and how good that is.

    Args:
        audit: with what it wrote down there.
        stolen: what it wrote down where it reads single owners.
        cells: of the same attack by the same reader there, about single owners and about all together.

    Returns:
        its drawing, and ``leaks``, ``together`` or ``nothing``.
    """
    single = [cell for cell in cells if aim_of(cell) == SINGLE_OWNERS and cell.outcome == "score"]
    union = [cell for cell in cells if aim_of(cell) == RESIDUAL and cell.leaks]
    for cell in [one for one in single if one.leaks] or union or single:
        record = record_of(audit, cell)
        panel = None if record is None else panel_of(record, names)
        if panel is not None:
            return panel, "together" if cell in union else "leaks" if cell.leaks else "nothing"
    empty = panel_of(stolen, names, nothing=True)
    assert empty is not None  # what was stolen was drawn
    if isinstance(empty, Bars | Words) and not any(cell.outcome != "refused" for cell in cells):
        empty = replace(empty, why="training was refused" if cells else "this attack was not tried")
    return empty, "nothing"


def panel_of(record: Reconstruction, names: Names, nothing: bool = False) -> Panel | None:
    """A drawing of one target of a guess; None for what cannot be drawn.

    Args:
        record: what an attack wrote down.
        nothing: draw the truth alone.
    """
    maker = _MAKERS.get(record.kind)
    try:
        return None if maker is None else maker(record, names, nothing)
    except (TypeError, ValueError, IndexError):  # an attack of others may write down anything
        return None


def _labels(record: Reconstruction, names: Names, nothing: bool) -> Panel | None:
    target = record.targets[0]
    true, read = _vector(target.true), _vector(target.guess)
    if true.shape != read.shape or not true.any():
        return None
    known = names.classes if len(names.classes) == len(true) else range(len(true))
    what = {TESTED: "Test nodes", BATCHES: "Labels"}.get(record.kind, "Training nodes")
    classes = [str(one)[:LONGEST] for one in known]
    return Bars(f"{what} of {target.owner} by class", true, None if nothing else read, classes, "classes")


def _sizes(record: Reconstruction, names: Names, nothing: bool) -> Panel | None:
    """One number of each owner."""
    true = np.concatenate([_vector(target.true) for target in record.targets])
    read = np.concatenate([_vector(target.guess) for target in record.targets])
    owners = [target.owner.removeprefix("owner-")[:LONGEST] for target in record.targets]
    if not len(owners) == len(true) == len(read):
        return None
    title = f"{text.sentence(record.subject or record.kind)[:-1]}, by owner"
    return Bars(title, true, None if nothing else read, owners, "numbers")


def _vocabulary(record: Reconstruction, names: Names, nothing: bool) -> Panel | None:
    target = record.targets[0]
    return _words(f"Words of {target.owner}", _vector(target.true), _vector(target.guess), names, nothing)


def _words(title: str, true: np.ndarray, read: np.ndarray, names: Names, nothing: bool) -> Panel | None:
    if true.shape != read.shape or len(true) < 2 or not (true > 0).any():
        return None
    known = names.features if len(names.features) == len(true) else ()
    got = None if nothing else np.flatnonzero(read > 0)
    return Words(title, np.flatnonzero(true > 0), got, len(true), known)


def _node(record: Reconstruction, names: Names, nothing: bool) -> Panel | None:
    """The words of the first node that is all right, else of the first."""
    nodes = [
        (target.owner, true, read)
        for target in record.targets
        for true, read in zip(_matrix(target.true), _matrix(target.guess), strict=False)
    ]
    owner, true, read = min(nodes, key=lambda one: not np.array_equal(one[1] > 0, one[2] > 0))
    return _words(f"Words of a node of {owner}", true, read, names, nothing)


def _rows(record: Reconstruction, names: Names, nothing: bool) -> Panel | None:
    """The first row: words where it holds nothing but zeros and ones, else its largest values."""
    target = record.targets[0]
    true, read = _matrix(target.true)[0], _matrix(target.guess)[0]
    if true.shape != read.shape:
        return None
    if set(np.unique(true)) <= {0.0, 1.0}:
        return _words(f"A row of {target.owner}", true, read, names, nothing)
    kept = np.sort(np.argsort(-np.abs(true), kind="stable")[:MOST_BARS])
    known = names.features if len(names.features) == len(true) else range(1, len(true) + 1)
    what = text.sentence(record.subject or record.kind)[:-1]
    title = f"{what} of {target.owner}: the largest of {len(true):,}"
    return Bars(title, true[kept], None if nothing else read[kept], [str(known[i]) for i in kept])


def _links(record: Reconstruction, names: Names, nothing: bool) -> Panel | None:
    target = next((one for one in record.targets if one.graph), None)
    sample = None if target is None else Sample(target)
    if sample is None or not sample.true:
        return None
    return Links(f"Links of a node of {sample.owner}", sample, not nothing)


_MAKERS: dict[str, Callable[[Reconstruction, Names, bool], Panel | None]] = {
    **dict.fromkeys((LABELS, TESTED, BATCHES), _labels),
    **dict.fromkeys(NODES, _node),
    **dict.fromkeys(LINKS, _links),
    **dict.fromkeys(ROWS, _rows),
    VOCABULARY: _vocabulary,
    **dict.fromkeys(SIZES, _sizes),
}
"""Kinds of guesses that are drawn, from what a picture shows best."""


def _vector(values: JsonValue) -> np.ndarray:
    """Numbers in a row, what is missing as zero; raises ValueError for anything else."""
    found: np.ndarray = np.nan_to_num(np.array(values, dtype=float))
    if found.ndim != 1:
        raise ValueError(f"{found.ndim} dimensions are no row of numbers")
    return found


def _matrix(values: JsonValue) -> np.ndarray:
    """Rows of numbers; raises ValueError for anything else."""
    found: np.ndarray = np.nan_to_num(np.atleast_2d(np.array(values, dtype=float)))
    if found.ndim != 2 or not len(found):
        raise ValueError("no rows of numbers")
    return found
