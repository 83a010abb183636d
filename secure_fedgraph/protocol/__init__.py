"""What is sent: channels, uploads, messages, the transport and the record of what every party saw.

A name is imported at its first use: :mod:`~secure_fedgraph.protocol.guarantee` needs no torch, the rest does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secure_fedgraph.protocol.channel import (
        Channel,
        Domain,
        Recipient,
        Reveal,
        UnitContribution,
        UnitContributionMoments,
        UnitContributionSampled,
    )
    from secure_fedgraph.protocol.guarantee import Reader, Relation, Unit
    from secure_fedgraph.protocol.message import Message
    from secure_fedgraph.protocol.transcript import Opened, Sent, Transcript, View
    from secure_fedgraph.protocol.transport import DirectCalls, Transport
    from secure_fedgraph.protocol.upload import (
        ContributionMoments,
        ContributionRows,
        ContributionSample,
        Layout,
        Upload,
    )

__all__ = [
    "Channel",
    "ContributionMoments",
    "ContributionRows",
    "ContributionSample",
    "DirectCalls",
    "Domain",
    "Layout",
    "Message",
    "Opened",
    "Reader",
    "Recipient",
    "Relation",
    "Reveal",
    "Sent",
    "Transcript",
    "Transport",
    "Unit",
    "UnitContribution",
    "UnitContributionMoments",
    "UnitContributionSampled",
    "Upload",
    "View",
]

_DEFINED_IN = {
    "channel": (
        "Channel",
        "Domain",
        "Recipient",
        "Reveal",
        "UnitContribution",
        "UnitContributionMoments",
        "UnitContributionSampled",
    ),
    "guarantee": ("Reader", "Relation", "Unit"),
    "message": ("Message",),
    "transcript": ("Opened", "Sent", "Transcript", "View"),
    "transport": ("DirectCalls", "Transport"),
    "upload": (
        "Layout",
        "ContributionMoments",
        "ContributionRows",
        "ContributionSample",
        "Upload",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _DEFINED_IN.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
