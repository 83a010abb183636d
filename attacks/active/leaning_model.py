"""D8 by an owner that deviates: it trains faster than the others, so that the joint model leans on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.attacks.attack import LAST, Control
from secure_fedgraph.attacks.vertical.completion import ModelCompletion
from secure_fedgraph.seams import ClientContext

FASTER = 10.0
"""How many times the agreed learning rate the owner trains its own layers with."""


class LeaningCompletion(ModelCompletion):
    """D8 by the last owner, which trains its own layers with ten times the agreed learning rate.

    What it sends then separates the classes sooner than what the others send, the classifier learns to rely
    on it, and the embeddings that come back carry more of it (Fu et al.'s active attack; their optimiser
    scales each parameter's step by how the gradient changed, this one by a constant). Nobody can see an
    owner's learning rate. Otherwise as D8.

    References:
        Fu et al., Label Inference Attacks Against Vertical Federated Learning, USENIX Security 2022, section
        4.3.
    """

    id = "d8-leaning-completion"
    title = "labels of training nodes, from embeddings that an owner made lean on it"
    subject = "labels by an owner that trains faster"
    summary = "labels of training nodes, by training faster than was agreed"
    adversaries = (LAST,)
    also_reads: ClassVar[tuple[str, ...]] = ()
    behaviour = "malicious"
    cost = "as D8; and a larger learning rate"
    controls = (
        Control("labels at one owner for four rounds", {**ModelCompletion.controls[0].settings, "rounds": 4}),
    )
    stops: ClassVar[Mapping[str, str]] = {LAST: "nothing built: nobody sees how an owner trains"}

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with a last owner that trains faster; kinds without a rate are as they were."""
        return playing(kind)


def playing(kind: type[Algorithm], faster: float = FASTER) -> type[Algorithm]:
    """``kind`` with a last owner whose learning rate is another.

    Args:
        faster: by how many times it is larger.
    """

    class Played(kind):  # type: ignore[misc,valid-type]
        name = kind.name

        def rate(self, client: ClientContext) -> float:
            agreed: float = super().rate(client)
            return agreed * (faster if client.name == max(client.clients) else 1.0)

    Played.__qualname__ = Played.__name__ = f"Leaning{kind.__name__}"
    return Played
