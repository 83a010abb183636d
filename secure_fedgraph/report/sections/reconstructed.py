"""True against reconstructed, attack by attack: what an attack wrote down, drawn over what was there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from secure_fedgraph.experiment.schema.audit import Reconstruction
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.stolen import Panel, Words, stolen
from secure_fedgraph.report.first_screens.thefts import Names, panel_of
from secure_fedgraph.report.grouping import AS_CONFIGURED, alike, beside, stem, subject_of
from secure_fedgraph.report.guess_kinds import FEATURES, LABELS, NODES, QUALITY, SIZES, VOCABULARY
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
        if mine and not (mine[0].kind == FEATURES and attack.endswith("-columns")):
            drawn = _drawn(attack.split("-")[0], mine, names or Names())
            sections.append(Section(attack.split("-")[0].upper(), subject_of(mine[0]), mine[0].seed, drawn))
    return [section for section in sections if section.drawn]


def _drawn(code: str, guesses: Sequence[Reconstruction], names: Names) -> list[Drawn]:
    panels = {id(guess): _panels(guess, names) for guess in guesses}

    def shown(guess: Reconstruction) -> list[object]:
        return [(panel.said(), panel.rows()) for panel in panels[id(guess)]]

    opened = {guess.policy for guess in guesses if guess.aim == SINGLE_OWNERS}
    kept: dict[tuple[str, ...], Reconstruction] = {}
    for guess in sorted(guesses, key=lambda guess: guess.variant != AS_CONFIGURED):
        control = (
            guess.variant if guess.kind == LABELS else ""
        )  # its best settings beside the configured ones
        of_all = guess.kind in (LABELS, VOCABULARY) and guess.aim != SINGLE_OWNERS
        if panels[id(guess)] and not (of_all and guess.policy in opened):  # their sum says no more
            kept.setdefault((guess.policy, guess.adversary, guess.aim, control), guess)
    drawn = []
    for group in alike([*kept.values()], lambda one, other: shown(one) == shown(other)):
        mine, who = panels[id(group.record)], text.named(text.ADVERSARIES, group.record.adversary)
        caption = f"{text.listed(group.policies)}: what {who} wrote down{beside(group)}"
        picture = stolen(stem(code, group.policies[0], group.record), caption, mine, who)
        table = Table(["what", "true", "read"], [row for panel in mine for row in panel.rows()])
        drawn.append(Drawn(picture, caption, table))
    return drawn


def _panels(record: Reconstruction, names: Names) -> list[Panel]:
    """The drawings of a few targets; of nodes only those that were recovered in every word."""
    if record.kind in (*SIZES, QUALITY):  # of all owners together
        parts = [record]
    else:
        parts = [record.model_copy(update={"targets": [one]}) for one in record.targets[:MOST_TARGETS]]
    panels = [panel for part in parts if (panel := panel_of(part, names)) is not None]
    if record.kind in NODES:
        words = (one for one in panels if isinstance(one, Words))
        panels = [one for one in words if one.read is not None and np.array_equal(one.true, one.read)]
    return panels
