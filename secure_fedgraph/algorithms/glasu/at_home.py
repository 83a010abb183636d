"""GLASU under a budget for a part of a node: what the budget is for is read by its owners alone, at home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, Settings, State
from secure_fedgraph.algorithms.glasu.channels import EXAMINE, HIDDEN, PARTIES
from secure_fedgraph.algorithms.glasu.checks import examined, rows
from secure_fedgraph.algorithms.glasu.vertical import Vertical
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import Entries, Expected, Numbers, Whole
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import personal, ridge
from secure_fedgraph.models.vertical import linear
from secure_fedgraph.seams import ClientContext, RoundApi

SENT = "sent"
"""The entry of a client's memory with its own part of the sum of columns."""
SCORES = "scores"
"""The entry of a client's memory with what its model says of every node."""
GIVEN: Entries = {"rows": Numbers((None, None))}
FORMS: Mapping[str, Form] = {
    Unit.EDGE: Form(
        {"sends": "columns"},
        "owners add up their columns, mixed at random; links are read by their owners alone, after the only "
        "exchange, so an edge's epsilon is 0",
    ),
    Unit.LABEL: Form(
        {"sends": "columns"},
        "owners add up their columns, mixed at random; labels are read by their owners alone, after the only "
        "exchange, so a label's epsilon is 0",
    ),
    Unit.FEATURE: Form(
        {"sends": "labels"},
        "labels travel over the links of all owners; columns are read by their owners alone, after the last "
        "exchange, so the epsilon of a node's features is 0",
    ),
    Unit.NODE: Form(
        {"sends": "nothing"},
        "nothing is sent, and every owner learns alone: noise for a node would drown what others add",
    ),
}
"""The form for a budget, by its unit."""


class AtHomeSettings(Settings):
    """What is sent, and how an owner's own model reads it.

    Args:
        sends: ``columns`` (depends on no link and no label), ``labels`` that travel over everybody's links
            (depends on no feature), or ``nothing``: every owner alone.
        width: of the sum of columns; where all columns are fewer, as many as they are.
        travels: how far labels travel, in links: as many sums.
        accept_two_clients: take part although with two clients each can subtract its own rows from the sum.
    """

    sends: Literal["columns", "labels", "nothing"] = "columns"
    width: int = Field(512, ge=1, le=2**14)
    travels: int = Field(10, ge=1, le=1000)
    accept_two_clients: bool = False


class GlasuAtHome(Vertical):
    """GLASU with linear layers, in which one part of the data is read by its owners alone: a budget's form.

    With ``sends=columns`` each owner mixes its columns by a random matrix of its own, which it throws away,
    and everybody is given the sum: GLASU's first layer, aggregated once and not trained. With
    ``sends=labels`` labels travel: in each step an owner takes means over its own links, and everybody is
    given the mean over owners. Then each owner fits models of its own to its columns beside what it was
    given, and to means of these over its own links (:func:`secure_fedgraph.models.personal.by_parts`); with
    ``sends=labels`` it multiplies what they believe by what travelling labels say.

    Guarantees:
        - with ``sends=columns`` nothing that is sent depends on a link or a label, with ``sends=labels``
          nothing on a feature: clients answer as if they had none, so the epsilon of one is 0.

    Needs:
        Labels of the training nodes at every owner.

    Args:
        settings: :class:`AtHomeSettings`.

    References:
        Zhang et al., GLASU, TMLR 2024 (the split and the aggregation); Wu et al., Simplifying Graph
        Convolutional Networks, ICML 2019 (equation 8); Zhou et al., NeurIPS 2003 (travelling labels); Liu et
        al., Random Projection-Based Multiplicative Data Perturbation, TKDE 2006 (what mixing hides).
    """

    name = "glasu-at-home"
    alone: ClassVar[str] = "glasu-standalone"
    summary = "GLASU's form under a budget: links and labels, or features, are read at home only"
    reference = "Zhang et al., GLASU, TMLR 2024; Wu et al., ICML 2019"
    rounds = 1
    partitions: ClassVar[tuple[str, ...]] = ("vertical", "vertical_all_links")
    Settings: ClassVar[type[Settings]] = AtHomeSettings  # type: ignore[assignment]
    settings: AtHomeSettings  # type: ignore[assignment]

    COLUMNS = replace(
        HIDDEN,
        name="columns",
        links=False,
        labels=False,
        largest=1.0,
        without_noise="how alike any two nodes' features are, over all owners; a reader who knows some "
        "nodes' features can estimate others'",
    )
    """A client's mixed columns."""
    LABELS = replace(
        HIDDEN,
        name="labels",
        features=False,
        largest=1.0,
        without_noise="the labels of training nodes, and of each node which classes are near it in all links",
    )
    """Means of travelling labels over a client's links."""
    TAKE = Channel("take", Reveal.NOTHING)
    """What everybody has been sent together, for the models at home."""

    @property
    def hidden_channel(self) -> Channel:
        """The channel of sums: of columns, or of labels."""
        channel = self.LABELS if self.settings.sends == "labels" else self.COLUMNS
        return replace(channel, accept_too_few=self.settings.accept_two_clients)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """At most one channel of sums."""
        sums = () if self.settings.sends == "nothing" else (self.hidden_channel,)
        return (*sums, self.TAKE, EXAMINE)

    @property
    def divides_links(self) -> bool:
        """Nobody hands out links."""
        return False

    @property
    def hops(self) -> int:
        """How far from a training node an owner's model looks."""
        return personal.HOPS[0]

    def untouched_by(self, unit: str) -> Self:
        """In the form that sends nothing that depends on one unit; itself where another is set by hand."""
        try:
            return self.in_form(FORMS[unit]) if unit in FORMS else self
        except BadInput:
            return self

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Columns once; labels as often as they travel."""
        return self.settings.travels if channel.name == self.LABELS.name else 1

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Who takes part, and what the last exchange gave."""
        asked: Entries = {"parties": PARTIES}
        if channel == EXAMINE.name:
            return ({**asked, "nodes": Whole(1)},)
        sums: Entries = {**asked, **GIVEN}
        if channel == self.TAKE.name:
            return (asked if self.settings.sends == "nothing" else sums,)
        return (asked,) if channel == self.COLUMNS.name else (asked, sums)

    # -- the server -------------------------------------------------------------------------------

    def init(self, schema: Schema, seed: int) -> State:
        """Nothing: the server has no weights."""
        return {}

    def round(self, round: RoundApi, state: State) -> State:
        """All exchanges in the first round; whoever asks for more of them gets the same models again."""
        if state:
            return state
        state = self.with_all_clients(round, state)
        given: dict[str, Any] = {"parties": round.cohort}
        if self.settings.sends == "columns":
            given["rows"] = round.reduce(self.hidden_channel, given).total["rows"].float()
        elif self.settings.sends == "labels":
            for _ in range(self.settings.travels):
                given["rows"] = round.reduce(self.hidden_channel, given).mean["rows"]
        round.scatter(self.TAKE, dict.fromkeys(round.cohort, given))
        return state

    def predictions(self, state: State, round: RoundApi, inputs: Data, schema: Schema) -> dict[str, Tensor]:
        """Class scores of all nodes, ``[nodes, classes]``, by each client."""
        given = {"parties": round.cohort, "nodes": int(inputs.num_nodes or 0)}
        return {name: sent["scores"] for name, sent in round.gather(EXAMINE, given).items()}

    # -- the clients ------------------------------------------------------------------------------

    def _width(self, schema: Schema) -> int:
        return min(self.settings.width, schema.features)

    @COLUMNS.answer
    def columns(self, client: ClientContext, given: State) -> Upload:
        """This client's columns, mixed by a matrix that nobody keeps: ``[nodes, width]``."""
        self.parties(client, given)
        own, secret = ridge.records(client.graph.x), int.from_bytes(os.urandom(7))
        mixed = own @ linear.mixing(own.shape[1], self._width(client.schema), secret)
        client.memory[SENT] = mixed
        return Upload({"rows": mixed})

    @LABELS.answer
    def labels(self, client: ClientContext, given: State) -> Upload:
        """Labels one step on, over this client's links: ``[nodes, classes]``."""
        self.parties(client, given)
        graph, classes = client.graph, client.schema.classes
        known = linear.known(graph.y, graph.train_mask, classes)
        before = rows(given["rows"], *known.shape) if "rows" in given else known
        return Upload({"rows": linear.travelled(before, known, graph.edge_index)})

    @TAKE.answer
    def take(self, client: ClientContext, given: State) -> None:
        """Fits this client's own model to its own data and what it was given."""
        self.parties(client, given)
        graph, sends = client.graph, self.settings.sends
        own, classes = ridge.records(graph.x), client.schema.classes
        if sends == "columns":
            sum_of_all = rows(given["rows"], len(own), self._width(client.schema))
            # a client whose part is in no sum has forgotten it
            others = sum_of_all - client.memory.pop(SENT, torch.zeros(1))
            own = torch.cat([own, others], dim=1)
        read = Data(x=own, edge_index=graph.edge_index, y=graph.y, train_mask=graph.train_mask)
        scores = personal.by_parts(read, classes)
        if sends == "labels":
            scores = linear.beside(scores, rows(given["rows"], len(own), classes))
        client.memory[SCORES] = scores

    @EXAMINE.answer
    def examine(self, client: ClientContext, given: State) -> Upload:
        """What this client's own model says of every node."""
        self.parties(client, given)
        unknown = torch.zeros(examined(client, given), client.schema.classes)
        return Upload({"scores": client.memory.get(SCORES, unknown)})
