"""The recipes, for ``sfg.policies.masked()`` and the like; other packages' by their names too."""

from collections.abc import Callable

from secure_fedgraph.privacy.policies import RECIPES
from secure_fedgraph.privacy.policies.noised import central_dp, distributed_dp, local_dp
from secure_fedgraph.privacy.policies.strictest import strictest
from secure_fedgraph.privacy.policies.without_noise import homomorphic, masked, plaintext, sealed
from secure_fedgraph.privacy.policy import Policy

__all__ = [
    "Policy",
    "central_dp",
    "distributed_dp",
    "homomorphic",
    "local_dp",
    "masked",
    "plaintext",
    "sealed",
    "strictest",
]


def __getattr__(name: str) -> Callable[..., Policy]:
    """A recipe without a line above: one of another package, or a new one."""
    if name.startswith("_") or name not in RECIPES:
        raise AttributeError(f"module {__name__!r} has no recipe {name!r}")
    return RECIPES[name]
