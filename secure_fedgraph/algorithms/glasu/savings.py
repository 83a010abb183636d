"""What lazy aggregation and stale updates save: messages and bytes of a run, an iteration and an update."""

from __future__ import annotations

from typing import Any

from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.protocol.transcript import SERVER, Transcript

FLOATS = ("hidden", "backward", "gradient")
"""Channels of representations and gradients; the others carry index sets and orders."""


def savings(transcript: Transcript, settings: GlasuSettings) -> dict[str, Any]:
    """The table of a run.

    With ``K`` of ``L`` layers aggregated and ``Q`` updates after each joint inference, an update costs
    ``K / (L Q)`` of the floats that it costs where every layer is aggregated before every update (``K = L``,
    ``Q = 1``), at equal index sets. Gradients through the server double both sides. Bytes are as sent,
    headers and the way down included, so they show a little less; index sets are a row of their own.

    Args:
        transcript: of the run; sizes are enough.
        settings: that it was made with.

    Returns:
        ``channels``: per channel ``messages``, ``bytes_up`` and ``bytes_down`` an iteration;
        ``bytes_per_update`` of all channels together; ``layers``, ``aggregated``, ``local_steps`` and
        ``factor``, the saving ``Q L / K``.

    References:
        Zhang et al., GLASU, section 3 (communication saving).
    """
    sent = [s for s in transcript.sent if s.round > 0 and "referee" not in (s.sender, s.recipient)]
    iterations = max(len({s.round for s in sent}) * settings.steps, 1)
    rows = []
    for channel in dict.fromkeys(s.channel for s in sent):
        mine = [s for s in sent if s.channel == channel]
        rows.append(
            {
                "channel": channel,
                "carries": "floats"
                if channel in FLOATS
                else "index sets"
                if channel == "sample"
                else "orders",
                "messages": len(mine) / iterations,
                "bytes_up": sum(s.bytes for s in mine if s.recipient == SERVER) / iterations,
                "bytes_down": sum(s.bytes for s in mine if s.sender == SERVER) / iterations,
            }
        )
    every = sum(s.bytes for s in sent) / iterations
    return {
        "channels": rows,
        "bytes_per_update": every / settings.local_steps,
        "layers": settings.layers,
        "aggregated": len(settings.aggregated),
        "local_steps": settings.local_steps,
        "factor": settings.local_steps * settings.layers / len(settings.aggregated),
    }
