"""What each reader could do under each policy of an audit: the server, an owner, an outsider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.report import text
from secure_fedgraph.report.grouping import AS_CONFIGURED, subject_of
from secure_fedgraph.report.outcomes import aim_of, verdicts

READERS = {
    "The server": ("server",),
    "An owner": ("client", "last client", "coalition"),
    "An outsider": ("outsider",),
}
"""Readers, and the adversaries of an audit that are each of them."""
WORST = ("nothing", "scored", "together", "leaks")
"""States of a policy that was attacked, from best to worst."""
MOST = 3
"""Of subjects that a sentence names."""
SUITED = " (in settings that suit the attack)"


@dataclass(frozen=True)
class ReadUnder:
    """What some attacks read under one policy.

    Args:
        policy: its name.
        state: one of ``WORST``, or ``refused``.
        single: what was read of single owners.
        union: what was read of all owners together.
        leaking: the attacks that read single owners.
        tried: the attacks that had a result.
        together: the attacks that read all owners together and no single one.
        refused: the attacks of which no run started.
    """

    policy: str
    state: str
    single: tuple[str, ...]
    union: tuple[str, ...]
    leaking: int
    tried: int
    together: int = 0
    refused: int = 0

    @property
    def badness(self) -> tuple[int, int]:
        """The larger, the more was read."""
        return WORST.index(self.state) if self.state in WORST else -1, self.leaking

    def outcome(self, again: bool = False, briefly: bool = False) -> str:
        """What was read, as the end of a sentence that begins with who reads.

        Args:
            briefly: without the settings in which it was.
            again: whether the sentence is about the attacks, and has said of another policy what they read.
        """
        single, union = (_briefly(one) if briefly else one for one in (self.single, self.union))
        if self.state == "refused":
            return "got nothing: training was refused before round 1"
        if self.state == "leaks":
            return f"{'still ' if again else ''}read single owners’ {listed(single)}"
        if self.state == "together":
            return f"read no single owner, only {listed(union)} of all owners together"
        if self.state == "scored":
            return "read nothing for certain, with too few terms or too little time to tell"
        return "read nothing beyond a trivial guess"


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


def read_under(cells: Sequence[Cell], policies: Iterable[str]) -> list[ReadUnder]:
    """What was read under each policy that has cells."""
    return [
        _read([cell for cell in cells if cell.policy == verdict.policy], verdict.policy, verdict.state)
        for verdict in verdicts(cells, list(policies))
    ]


def _read(cells: Sequence[Cell], policy: str, state: str) -> ReadUnder:
    ran = [cell for cell in cells if cell.outcome != "refused"]
    single = [cell for cell in ran if cell.leaks and aim_of(cell) == SINGLE_OWNERS]
    union = [cell for cell in ran if cell.leaks and aim_of(cell) == RESIDUAL]
    tried = {(cell.algorithm, cell.attack) for cell in ran}
    by_attack = {(cell.algorithm, cell.attack) for cell in single}
    return ReadUnder(
        policy,
        state,
        _subjects(single),
        _subjects(union),
        len(by_attack),
        len(tried),
        len({(cell.algorithm, cell.attack) for cell in union} - by_attack),
        len({(cell.algorithm, cell.attack) for cell in cells} - tried),
    )


def _subjects(cells: Iterable[Cell]) -> tuple[str, ...]:
    """What was read; what needs the attack's own settings stands last and says so."""
    usual: dict[str, bool] = {}
    for cell in cells:
        as_configured = (cell.settings.variant or AS_CONFIGURED).startswith(AS_CONFIGURED)
        subject = subject_of(cell)
        usual[subject] = usual.get(subject, False) or as_configured
    rest = [f"{subject}{SUITED}" for subject, plain in usual.items() if not plain]
    return (*(subject for subject, plain in usual.items() if plain), *rest)


def _briefly(subjects: Sequence[str]) -> list[str]:
    return [subject.removesuffix(SUITED) for subject in subjects]


def listed(subjects: Sequence[str]) -> str:
    """A few subjects by name, and how many more there are.

    >>> listed(["links", "labels"]), listed(["a", "b", "c", "d", "e"])
    ('links and labels', 'a, b, c and 2 more')
    """
    if len(subjects) <= MOST:
        return text.listed(subjects)
    return f"{', '.join(subjects[:MOST])} and {len(subjects) - MOST} more"


def each_reader(cells: Sequence[Cell], policies: Sequence[str], about: str) -> list[ReaderTold]:
    """A sentence for each reader, those that nothing was tried for included.

    Args:
        about: the policy that the page is about.
    """
    told = []
    for name, adversaries in READERS.items():
        mine = [cell for cell in cells if cell.adversary in adversaries]
        under = read_under(mine, policies)
        if not under:
            told.append(ReaderTold(name, "absent", "No attack by this reader was tried."))
            continue
        groups: dict[str, list[str]] = {}
        for one in under:
            groups.setdefault(one.outcome(), []).append(one.policy)
        parts = (f"under {text.policies(names)} it {outcome}" for outcome, names in groups.items())
        here = next((one.state for one in under if one.policy == about), under[-1].state)
        told.append(ReaderTold(name, here, " ".join(text.sentence(part) for part in parts)))
    return told
