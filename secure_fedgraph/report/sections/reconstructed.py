"""True against reconstructed, attack by attack: what an attack wrote down, drawn over what was there."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from secure_fedgraph.experiment.schema.audit import Reconstruction
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.reconstructions import Panel, Words, stolen
from secure_fedgraph.report.first_screens.reconstructions import Names, panel_of
from secure_fedgraph.report.grouping import AS_CONFIGURED, code_of, subject_of
from secure_fedgraph.report.guess_kinds import NODES, SIZES
from secure_fedgraph.report.sections.parts import Section

MOST_TARGETS = 3  # drawn; the numbers of all stand in audit.json


def reconstructed(
    guesses: Sequence[Reconstruction], policies: Sequence[str], names: Names | None = None
) -> list[Section]:
    """A section for each attack whose guesses can be drawn; the first seed is shown.

    Each policy, adversary and aim has a picture, as configured, or of the first control where that shows
    nothing. Policies under which the attack wrote down the same, as far as a picture shows it, share one.
    """
    sections = []
    for attack in dict.fromkeys(guess.attack for guess in guesses):
        mine = [guess for guess in guesses if guess.attack == attack and guess.targets]
        mine = [guess for guess in mine if guess.seed == mine[0].seed]
        mine.sort(key=lambda guess: policies.index(guess.policy) if guess.policy in policies else 99)
        if drawn := _drawn(mine, names or Names()):
            sections.append(Section(code_of(mine[0]), subject_of(mine[0]), mine[0].seed, drawn))
    return sections


def _drawn(guesses: Sequence[Reconstruction], names: Names) -> list[Drawn]:
    shown: dict[tuple[str, ...], tuple[Reconstruction, list[Panel]]] = {}
    for guess in sorted(guesses, key=lambda guess: guess.variant != AS_CONFIGURED):
        if panels := _panels(guess, names):
            shown.setdefault((guess.policy, guess.adversary, guess.aim), (guess, panels))
    alike: dict[str, tuple[Reconstruction, list[Panel], list[str]]] = {}
    for guess, panels in shown.values():
        rows = [(panel.said(), panel.rows()) for panel in panels]
        same = repr((guess.adversary, guess.aim, guess.variant, rows))
        alike.setdefault(same, (guess, panels, []))[2].append(guess.policy)
    return [_picture(*one) for one in alike.values()]


def _picture(guess: Reconstruction, panels: Sequence[Panel], policies: Sequence[str]) -> Drawn:
    who = text.named(text.ADVERSARIES, guess.adversary)
    left = "" if guess.aim == SINGLE_OWNERS else ", from what the defence leaves"
    control = "" if guess.variant == AS_CONFIGURED else f" ({guess.variant})"
    stopped = f"; {guess.stopped}" if guess.stopped else ""
    caption = f"{text.listed(policies)}: what {who} wrote down{left}{control}{stopped}"
    aim = "each" if guess.aim == SINGLE_OWNERS else "union"
    parts = [code_of(guess).lower(), policies[0], guess.adversary, aim]
    name = "-".join(re.sub(r"\W+", "-", part, flags=re.ASCII).strip("-") or "x" for part in parts)
    table = Table(["what", "true", "read"], [row for panel in panels for row in panel.rows()])
    return Drawn(stolen(name, caption, panels, who), caption, table)


def _panels(record: Reconstruction, names: Names) -> list[Panel]:
    """The drawings of a few targets; of nodes only those that were recovered in every word."""
    parts = [record]
    if record.kind not in SIZES:  # which are of all owners together
        parts = [record.model_copy(update={"targets": [one]}) for one in record.targets[:MOST_TARGETS]]
    panels = [panel for part in parts if (panel := panel_of(part, names)) is not None]
    if record.kind not in NODES:
        return panels
    words = [one for one in panels if isinstance(one, Words)]
    return [one for one in words if one.read is not None and np.array_equal(one.true, one.read)]
