"""What attacks read under each policy of an audit: all of them, and those of each reader."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.experiment.schema.score_verdict import (
    HARM,
    RESIDUAL,
    SINGLE_OWNERS,
    exact_of_too_few,
    is_lower_bound,
)
from secure_fedgraph.report import text
from secure_fedgraph.report.grouping import AS_CONFIGURED, aim_of, subject_of

READERS = {
    "The server": ("server",),
    "An owner": ("client", "last client", "coalition"),
    "An outsider": ("outsider",),
}
"""Readers, and the adversaries of an audit that are each of them."""
STATES = {
    "refused": "refused before round 1",
    "nothing": "nothing was read",
    "harmless": "no lie that was tried did harm",
    "scored": "nothing was read for certain",
    "together": "hides single owners, not their union",
    "harmed": "an owner that lies can steer the model",
    "leaks": "leaks about single owners",
}
"""States of a policy from best to worst, in a few words."""
MOST = 3
"""Of subjects that a sentence names."""
SUITED = " (in settings that suit the attack)"


@dataclass(frozen=True)
class ReadUnder:
    """What some attacks read under one policy.

    Args:
        policy: its name.
        state: one of :data:`STATES`.
        single, union: what was read of single owners, and of all owners together.
        lies: the lies that did something to the others.
        leaking: the attacks that read single owners.
        tried: the attacks that had a result.
        together: the attacks that read all owners together and no single one.
        refused: the attacks of which no run started.
        reason: why training was refused.
    """

    policy: str
    state: str
    single: tuple[str, ...]
    union: tuple[str, ...]
    lies: tuple[str, ...]
    leaking: int
    tried: int
    together: int
    refused: int
    reason: str

    @property
    def short(self) -> str:
        """The state in a few words."""
        return STATES[self.state]

    @property
    def badness(self) -> tuple[int, int]:
        """The larger, the more was read."""
        return [*STATES].index(self.state), self.leaking

    def outcome(self, again: bool = False, briefly: bool = False) -> str:
        """What was read, as the end of a sentence that begins with who reads.

        Args:
            briefly: without the settings in which it was.
            again: whether the sentence is about the attacks, and has said of another policy what they read.
        """
        single, union = ([one.removesuffix(SUITED) if briefly else one for one in subjects]
                         for subjects in (self.single, self.union))  # fmt: skip
        still = "still " if again else ""
        steered = f"{still}steered the model of all by {listed(self.lies)}"
        return {
            "harmed": steered,
            "refused": "got nothing: training was refused before round 1",
            "leaks": f"{still}read single owners’ {listed(single)}"
            + (f" and {steered}" if self.lies else ""),
            "together": f"read no single owner, only {listed(union)} of all owners together",
            "scored": "read nothing for certain, with too few terms or too little time to tell",
            "nothing": "read nothing beyond a trivial guess",
            "harmless": "did the others no harm by its lies",
        }[self.state]


def read_under(
    cells: Sequence[Cell], policies: Iterable[str], failed: Collection[str] = ()
) -> list[ReadUnder]:
    """What was read under each policy that has cells.

    Args:
        failed: policies with runs that failed or stopped midway; none of them is called refused.
    """
    found = (_read([cell for cell in cells if cell.policy == policy], policy) for policy in policies)
    return [one for one in found if one.state != "refused" or (one.refused and one.policy not in failed)]


def _read(cells: Sequence[Cell], policy: str) -> ReadUnder:
    ran = [cell for cell in cells if cell.outcome != "refused"]
    single, union, lies = (
        [cell for cell in ran if cell.leaks and aim_of(cell) == aim]
        for aim in (SINGLE_OWNERS, RESIDUAL, HARM)
    )
    read = [cell for cell in ran if aim_of(cell) != HARM]
    tried, leaking, together = ({(c.algorithm, c.attack) for c in some} for some in (read, single, union))
    unsure = any(
        is_lower_bound(c.score, c.details.get("searches_stopped"))
        or (aim_of(c) == SINGLE_OWNERS and exact_of_too_few(c.score, c.leaks, c.baseline))
        for c in ran
    )
    state = (
        "leaks" if single else "harmed" if lies else "together" if union
        else "scored" if unsure else "nothing" if read or not ran else "harmless"
    )  # fmt: skip
    return ReadUnder(
        policy,
        state if ran else "refused",
        _subjects(single),
        _subjects(union),
        _subjects(lies),
        len(leaking),
        len(tried),
        len(together - leaking),
        len({(c.algorithm, c.attack) for c in cells} - {(c.algorithm, c.attack) for c in ran}),
        "" if ran or not cells else cells[0].reason,
    )


def _subjects(cells: Iterable[Cell]) -> tuple[str, ...]:
    """What was read; what needs the attack's own settings stands last and says so."""
    usual: dict[str, bool] = {}
    for cell in cells:
        as_configured = (cell.settings.variant or AS_CONFIGURED).startswith(AS_CONFIGURED)
        usual[subject_of(cell)] = usual.get(subject_of(cell), False) or as_configured
    return tuple(
        subject + SUITED * (not plain) for subject, plain in sorted(usual.items(), key=lambda one: not one[1])
    )


def listed(subjects: Sequence[str]) -> str:
    """A few subjects by name, and how many more there are.

    >>> listed(["links", "labels"]), listed(["a", "b", "c", "d", "e"])
    ('links and labels', 'a, b, c and 2 more')
    """
    if len(subjects) <= MOST:
        return text.listed(subjects)
    return f"{', '.join(subjects[:MOST])} and {len(subjects) - MOST} more"


@dataclass(frozen=True)
class ReaderTold:
    """One reader's sentence.

    Args:
        state: under the policy that the page is about; ``absent`` where nothing was tried.
        sentence: what the reader could do, policy by policy.
    """

    name: str
    state: str
    sentence: str


def each_reader(cells: Sequence[Cell], policies: Sequence[str], about: str) -> list[ReaderTold]:
    """A sentence for each reader, those that nothing was tried for included.

    Args:
        about: the policy that the page is about.
    """
    told = []
    for name, adversaries in READERS.items():
        under = read_under([cell for cell in cells if cell.adversary in adversaries], policies)
        if not under:
            told.append(ReaderTold(name, "absent", "No attack by this reader was tried."))
            continue
        groups = text.grouped((one.outcome(), one.policy) for one in under)
        parts = (f"under {text.policies(names)} it {outcome}" for outcome, names in groups.items())
        here = next((one.state for one in under if one.policy == about), under[-1].state)
        told.append(ReaderTold(name, here, " ".join(text.sentence(part) for part in parts)))
    return told
