"""True against reconstructed, side by side: what an attack wrote down and what was there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import JsonValue

from secure_fedgraph.experiment.schema.audit import Reconstruction, Target
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.figures import plots
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.ego_graphs import ego_graphs
from secure_fedgraph.report.figures.feature_heatmaps import feature_heatmaps
from secure_fedgraph.report.figures.plots import Strip
from secure_fedgraph.report.grouping import AS_CONFIGURED, Alike, file_stem, stem, subject_of
from secure_fedgraph.report.guess_kinds import FEATURES, LABELS, LINKS, NODES, ROWS, VOCABULARY
from secure_fedgraph.report.sections.parts import Section

MOST_NODES = 4
MOST_OWNERS = 5  # drawn; the numbers of all stand in audit.json


@dataclass(frozen=True)
class Reading:
    """What one adversary, or several, read of nodes."""

    record: Reconstruction
    adversaries: list[str]

    def same(self, other: Reconstruction) -> bool:
        """Whether another adversary read the same, under the same policy and at the same aim."""
        record = self.record
        place = (record.policy, record.aim) == (other.policy, other.aim)
        return place and record.targets == other.targets


def reconstructed(guesses: Sequence[Reconstruction], policies: Sequence[str]) -> list[Section]:
    """A section for each attack whose guesses can be drawn; the first seed is shown."""
    sections = []
    for attack in dict.fromkeys(guess.attack for guess in guesses):
        mine = [guess for guess in guesses if guess.attack == attack and guess.targets]
        mine = [guess for guess in mine if guess.seed == mine[0].seed]
        mine.sort(key=lambda guess: policies.index(guess.policy) if guess.policy in policies else 99)
        kind = mine[0].kind if mine else ""
        if kind in MAKERS and (kind != FEATURES or not attack.endswith("-columns")):
            code = attack.split("-")[0]
            drawn = MAKERS[kind](code, mine)
            sections.append(Section(code.upper(), subject_of(mine[0]), mine[0].seed, drawn))
    return [section for section in sections if section.drawn]


def _vocabulary(code: str, guesses: Sequence[Reconstruction]) -> list[Drawn]:
    """Strips of words, owner by owner; where only the union was read, it is compared with each owner."""
    guesses = [guess for guess in guesses if guess.variant == AS_CONFIGURED]
    each = [guess for guess in guesses if guess.aim == SINGLE_OWNERS]
    drawn = []
    for group in _alike(each):
        owners = _strips(group.record.targets)
        caption = f"{text.listed(group.policies)}: what the attack wrote down about each owner"
        alt = f"{text.listed(group.policies)}: {_strip_words(owners)}"
        drawn.append(_words(file_stem(code, group.policies[0], "each"), owners, caption, alt))
    opened = {guess.policy for guess in each}
    truth = each[0].targets if each else []
    for group in _alike(
        [guess for guess in guesses if guess.aim != SINGLE_OWNERS and guess.policy not in opened]
    ):
        union = group.record.targets[0]
        fits = truth and all(len(_list(t.true)) == len(_list(union.guess)) for t in truth)
        held = [t.model_copy(update={"guess": union.guess}) for t in truth] if fits else group.record.targets
        owners = _strips(held)
        caption = f"{text.listed(group.policies)}: all that is left is the union of all owners"
        if fits:
            caption += ", here compared with each of them"
        alt = f"{text.listed(group.policies)}: the union of all owners as a guess; {_strip_words(owners)}"
        drawn.append(_words(file_stem(code, group.policies[0], "union"), owners, caption, alt))
    return drawn


def _words(name: str, owners: Sequence[Strip], caption: str, alt: str) -> Drawn:
    return Drawn(plots.vocabulary(name, _axis(owners), owners, alt), caption, _strip_table(owners))


def _labels(code: str, guesses: Sequence[Reconstruction]) -> list[Drawn]:
    """Bars by class, as configured beside the attack's best settings, on one scale."""
    each = [guess for guess in guesses if guess.aim == SINGLE_OWNERS]
    opened = {guess.policy for guess in each}
    union = [guess for guess in guesses if guess.aim != SINGLE_OWNERS and guess.policy not in opened]
    drawn = []
    for mine in filter(None, (each, union)):
        top = 1.3 * float(max(v for guess in mine for t in guess.targets for v in _numbers(t.true))) or 1.0
        for variant in dict.fromkeys(guess.variant for guess in mine):
            for group in _alike([guess for guess in mine if guess.variant == variant]):
                drawn.append(_bars(code, group, top))
    return drawn


def _bars(code: str, group: Alike, top: float) -> Drawn:
    owners = _strips(group.record.targets)
    usual, about = (
        group.record.variant == AS_CONFIGURED,
        "each" if group.record.aim == SINGLE_OWNERS else "union",
    )
    how = AS_CONFIGURED if usual else "in the settings that suit the attack best"
    caption = f"{text.listed(group.policies)}, {how}"
    name = file_stem(code, group.policies[0], about if usual else f"{about}-control")
    classes = [str(i) for i in range(len(owners[0].true))]
    alt = f"{caption}: {_bar_words(owners)}"
    return Drawn(plots.label_counts(name, owners, top, classes, alt), caption, _bar_table(owners))


def _features(code: str, guesses: Sequence[Reconstruction]) -> list[Drawn]:
    """Strips of words, node by node, in the first setting in which an adversary got a node right.

    Adversaries that read the same share a picture.
    """
    first: dict[tuple[str, str, str], Reconstruction] = {}
    for record in sorted(guesses, key=lambda guess: guess.variant != AS_CONFIGURED):
        place = (record.policy, record.aim, record.adversary)
        if place not in first and any(_right(node) for node in _nodes(record)):
            first[place] = record
    readings: list[Reading] = []
    for record in first.values():
        for at, reading in enumerate(readings):
            if reading.same(record):
                readings[at] = replace(reading, adversaries=[*reading.adversaries, record.adversary])
                break
        else:
            readings.append(Reading(record, [record.adversary]))
    return [_reading(code, reading) for reading in readings]


def _reading(code: str, reading: Reading) -> Drawn:
    record = reading.record
    nodes = _nodes(record)
    who = text.listed(text.named(text.ADVERSARIES, name) for name in reading.adversaries)
    what = "single owners' answers" if record.aim == SINGLE_OWNERS else "the sum of all owners' answers"
    verb = "read" if len(reading.adversaries) > 1 else "reads"
    caption = f"{record.policy}: nodes that {who} {verb} from {what}"
    if record.variant != AS_CONFIGURED:
        caption += f" ({record.variant})"
    if record.stopped:
        caption += f"; {record.stopped}"
    axis, strips = _some_words(nodes)
    name = stem(code, record.policy, record)
    picture = plots.vocabulary(name, axis, strips, f"{caption}: {_strip_words(nodes)}")
    return Drawn(picture, caption, _strip_table(nodes))


def _right(node: Strip) -> bool:
    return bool(((node.true > 0) == (node.guess > 0)).all())


def _nodes(record: Reconstruction) -> list[Strip]:
    """A few recovered nodes, from every target in turn, as strips have them."""
    nodes = []
    targets = [(target.owner, _list(target.true), _list(target.guess)) for target in record.targets]
    for rank in range(MOST_OWNERS):
        for owner, true, guess in targets:
            if rank < min(len(true), len(guess)):
                label = f"{owner}, node {rank + 1}"
                nodes.append(Strip(label, _numbers(true[rank]), _numbers(guess[rank])))
    return nodes[:MOST_NODES]


MAKERS: dict[str, Callable[[str, Sequence[Reconstruction]], list[Drawn]]] = {
    VOCABULARY: _vocabulary,
    LABELS: _labels,
    **dict.fromkeys(NODES, _features),
    **dict.fromkeys(LINKS, ego_graphs),
    **dict.fromkeys(ROWS, feature_heatmaps),
}


def _alike(records: Sequence[Reconstruction]) -> list[Alike]:
    """Policies whose guesses round to the same picture share it."""
    groups: list[Alike] = []
    for record in records:
        for group in groups:
            if _same(group.record.targets, record.targets):
                group.policies.append(record.policy)
                break
        else:
            groups.append(Alike([record.policy], record))
    return groups


def _same(one: Sequence[Target], other: Sequence[Target]) -> bool:
    return len(one) == len(other) and all(
        a.owner == b.owner
        and len(_list(a.guess)) == len(_list(b.guess))
        and np.allclose(_array(a.guess), _array(b.guess), atol=0.5, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


def _list(values: JsonValue) -> list[JsonValue]:
    """A list, as of everything that is drawn as strips or bars.

    Raises:
        TypeError: for anything else.
    """
    if not isinstance(values, list):
        raise TypeError(f"{str(values)[:40]!r} is no list of values")
    return values


def _array(values: JsonValue) -> np.ndarray:
    numbers = (text.real(value) for value in _list(values))
    return np.array([np.nan if number is None else number for number in numbers], dtype=float)


def _numbers(values: JsonValue) -> np.ndarray:
    """What is missing counts as zero."""
    numbers = _array(values)
    return np.where(np.isfinite(numbers), numbers, 0.0)


def _strips(targets: Sequence[Target]) -> list[Strip]:
    """Of as many owners as are drawn."""
    return [Strip(t.owner, _numbers(t.true), _numbers(t.guess)) for t in targets[:MOST_OWNERS]]


def _axis(owners: Sequence[Strip]) -> str:
    return f"words of the data set, 1 to {len(owners[0].true):,}"


def _some_words(nodes: Sequence[Strip]) -> tuple[str, Sequence[Strip]]:
    """The axis and the strips of nodes: a node has a handful of words, too thin to be seen among thousands.

    So only the words are drawn that one of the nodes has or was guessed to have, if they are few.
    """
    used = np.any([words > 0 for node in nodes for words in (node.true, node.guess)], axis=0)
    if 4 * used.sum() >= len(used) or not used.any():
        return _axis(nodes), nodes
    axis = f"the {used.sum():,} words true or guessed here, of {len(used):,} in the data set"
    return axis, [Strip(node.owner, node.true[used], node.guess[used]) for node in nodes]


def _strip_rows(owners: Sequence[Strip]) -> list[list[str]]:
    rows = []
    for owner in owners:
        true, guess = owner.true > 0, owner.guess > 0
        rows.append(
            [
                owner.owner,
                f"{true.sum():,}",
                f"{guess.sum():,}",
                f"{(guess & ~true).sum():,}",
                f"{(true & ~guess).sum():,}",
                text.percent((true == guess).mean(), 2),
            ]
        )
    return rows


def _strip_table(owners: Sequence[Strip]) -> Table:
    heads = ["owner", "words it holds", "words guessed", "guessed wrongly", "missed", "words right"]
    return Table(heads, _strip_rows(owners))


def _strip_words(owners: Sequence[Strip]) -> str:
    parts = [f"{row[0]} {row[5]} of the words right" for row in _strip_rows(owners)]
    return f"{text.listed(parts)}."


def _bar_table(owners: Sequence[Strip]) -> Table:
    rows = [
        [owner.owner, what, *(text.count(value) for value in values)]
        for owner in owners
        for what, values in (("true", owner.true), ("guessed", owner.guess))
    ]
    return Table(["owner", "", *(f"class {i}" for i in range(len(owners[0].true)))], rows)


def _bar_words(owners: Sequence[Strip]) -> str:
    parts = [
        f"{o.owner} {np.abs(o.true - o.guess).sum():,.0f} labels off of {o.true.sum():,.0f}" for o in owners
    ]
    return f"{text.listed(parts)}."
