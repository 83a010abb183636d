"""The errors under their public name; :mod:`secure_fedgraph.core.errors` says when each is raised."""

from secure_fedgraph.core.errors import (
    BadInput,
    BrokenClaim,
    BudgetExhausted,
    HostileMessage,
    Incompatible,
    LeftInPlaintext,
    Refused,
    SecureFedGraphError,
    Terminated,
    Unbound,
    WrongType,
)

__all__ = [
    "BadInput",
    "BrokenClaim",
    "BudgetExhausted",
    "HostileMessage",
    "Incompatible",
    "LeftInPlaintext",
    "Refused",
    "SecureFedGraphError",
    "Terminated",
    "Unbound",
    "WrongType",
]
