"""What keeps a promise: what can be said and how, the protections, what they cost, and who may read what.

A name is imported at its first use: :mod:`~secure_fedgraph.core.guarantee` needs no torch, the rest does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secure_fedgraph.core.channel import (
        Channel,
        Domain,
        Recipient,
        Reveal,
        UnitContribution,
        UnitContributionMoments,
        UnitContributionSampled,
    )
    from secure_fedgraph.core.guarantee import Reader, Relation, Unit
    from secure_fedgraph.core.message import Message
    from secure_fedgraph.core.upload import (
        ContributionMoments,
        ContributionRows,
        ContributionSample,
        Layout,
        Upload,
    )

_HOMES = {
    "Channel": "channel",
    "ContributionMoments": "upload",
    "ContributionRows": "upload",
    "ContributionSample": "upload",
    "Domain": "channel",
    "Layout": "upload",
    "Message": "message",
    "Reader": "guarantee",
    "Recipient": "channel",
    "Relation": "guarantee",
    "Reveal": "channel",
    "Unit": "guarantee",
    "UnitContribution": "channel",
    "UnitContributionMoments": "channel",
    "UnitContributionSampled": "channel",
    "Upload": "upload",
}
__all__ = [
    "Channel",
    "ContributionMoments",
    "ContributionRows",
    "ContributionSample",
    "Domain",
    "Layout",
    "Message",
    "Reader",
    "Recipient",
    "Relation",
    "Reveal",
    "Unit",
    "UnitContribution",
    "UnitContributionMoments",
    "UnitContributionSampled",
    "Upload",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
