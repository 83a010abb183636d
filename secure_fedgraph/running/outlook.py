"""What the rest of a run will cost, by its first rounds."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass

from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import SERVER

ROUNDS = 2
"""Scored rounds before the rest is foreseen: the first does what is done once."""


@dataclass(frozen=True)
class Outlook:
    """What a whole run will come to, if its rounds go on as the last one went.

    Scores that are counted once, after the last round, are not in it.

    Args:
        left: seconds until it ends.
        rounds: how many are left.
        up, down: bytes of the whole run on the wire, to and from the server; the referee's are not counted.
        memory: bytes of this process's memory so far, at most.
    """

    left: float
    rounds: int
    up: int
    down: int
    memory: int


def outlook(transcript: Transcript, number: int, last: int, seconds: float) -> Outlook:
    """The outlook after a round.

    Args:
        transcript: of the run so far.
        number: the round's.
        last: the last round's.
        seconds: that the round took.
    """
    rounds = last - number
    so_far = transcript.traffic()
    one = of_round(transcript, number)
    up, down = (so_far[side] + rounds * one[side] for side in ("up", "down"))
    return Outlook(rounds * seconds, rounds, up, down, peak_memory())


def of_round(transcript: Transcript, number: int) -> dict[str, int]:
    """Bytes of one round on the wire: ``up`` and ``down``."""
    mine = [one for one in transcript.sent if one.round == number]
    return {
        "up": sum(one.bytes for one in mine if one.recipient == SERVER),
        "down": sum(one.bytes for one in mine if one.sender == SERVER),
    }


def peak_memory() -> int:
    """Bytes of memory that this process had at most, so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
