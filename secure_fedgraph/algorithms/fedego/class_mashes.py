"""FedEgo under a budget for a node or a label: one mash a class, over all owners, sent once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, Self

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedridge.algorithm import OWNERS, FedRidge
from secure_fedgraph.algorithms.fedridge.settings import RidgeSettings
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import Expected
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.seams import RoundApi


class ClassMashSettings(RidgeSettings):
    """As :class:`~secure_fedgraph.algorithms.fedridge.settings.RidgeSettings`.

    Args:
        mash: ``class``, the sum over all owners' training nodes of a class; FedEgo has other mashes.
    """

    mash: Literal["class"] = "class"


class FedEgoSums(FedRidge):
    """FedEgo with one mash a class, the sum over all owners: its form under a budget for a node or a label.

    A mash adds up the training nodes of one class, each its ego-graph's centre alone and of length 1. All
    owners send their parts of each mash once, and the server opens their sum. Global layers are a ridge
    regression on the mashes. Each owner has layers of its own, trained on its own data as they are, and its
    own validation nodes say how much of the global ones it takes over, in place of Eq. 15.

    Guarantees:
        - one node is in one mash once, with a length that the client enforces; of the owners that hold it one
          alone counts it (its ``home``), where owners know which;
        - nothing that is sent depends on a link;
        - an owner's own layers, and how much it mixes in, do not leave it (the experiment's referee apart).

    Args:
        settings: :class:`ClassMashSettings`.

    References:
        FedEgo, ACM TKDD, Eq. 8 (mashes) and 15 (mixing); Vu and Slavkovic 2009.
    """

    name = "fedego-sums"
    summary = "FedEgo's form under a budget: one mash a class over all owners, personal layers at home"
    reference = "FedEgo, ACM TKDD 2023; Vu and Slavkovic 2009"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    data: ClassVar[str] = "cora"
    clients: ClassVar[Mapping[str, int]] = {"cora": 5, "citeseer": 5, "dblp": 10}
    partitions: ClassVar[tuple[str, ...]] = ("label_skew", "louvain", "louvain_compiled", "random")
    Settings: ClassVar[type[RidgeSettings]] = ClassMashSettings
    of_graphs = None

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The sums of moments, of which class sums are the mashes; each node at one owner."""
        (moments,) = super().in_use
        return (replace(moments, one_holder=True),)

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Mashes once."""
        return 1 if channel.name == self.MOMENTS.name else super().uses(channel, rounds, clients)

    def under_budget(
        self, epsilon: float, delta: float, unit: str, schema: Schema, sizes: Mapping[str, int]
    ) -> Self:
        """Says what it does, for a node or a label."""
        if self.form is not None or unit not in (Unit.NODE, Unit.LABEL):
            return self
        why = (
            "owners send one sum a class, once; it adds up single nodes, without links, each node at one "
            "owner only; links are read for predictions, and each owner adds its own layers at home"
        )
        return self.in_form(Form({"mash": "class"}, why))

    def suited(
        self, channel: Channel, noise: float, schema: Schema, clients: int, sizes: Mapping[str, int]
    ) -> Self:
        """As FedRidge's."""
        found = super().suited(channel, noise, schema, clients, sizes)
        if found is not self and found.form is not None and self.form is not None:
            both = {**self.form.settings, **found.form.settings}
            found.form = Form(both, f"{self.form.why}; {found.form.why}")
        return found

    def round(self, round: RoundApi, state: State) -> State:
        """The mashes in the first round; nothing later."""
        return state if float(state[OWNERS]) else super().round(round, state)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As FedRidge's."""
        return super().takes(channel, schema)
