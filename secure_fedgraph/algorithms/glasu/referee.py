"""GLASU's inference for the referee: on whole neighbourhoods, segment by segment."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.glasu.channels import EXAMINE
from secure_fedgraph.algorithms.glasu.client import VerticalClient
from secure_fedgraph.algorithms.glasu.iteration import Value
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.sample.layers import links_between
from secure_fedgraph.graph.sample.trees import NeighbourTable
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.vertical.tower import Noise, Tower
from secure_fedgraph.seams import ClientContext, RoundApi


class RefereeInference(VerticalClient):
    """The referee aggregates in the server's place and reads nobody's features."""

    @property
    def examined_segments(self) -> range:
        """The segments after which the referee aggregates: all."""
        return self.segments

    def predictions(self, state: State, round: RoundApi, inputs: Data, schema: Schema) -> dict[str, Tensor]:
        """Class scores of all nodes, ``[nodes, classes]``, by each client that holds labels.

        Raises:
            Refused: where all of them are gone.
        """
        given: dict[str, Value] = {"parties": round.cohort, "nodes": int(inputs.num_nodes or 0)}
        for segment in self.examined_segments:
            uploads = round.gather(EXAMINE, {**given, "segment": segment})
            rows = [uploads[name]["rows"] for name in round.cohort if name in uploads]
            given["aggregate"] = torch.stack(rows).mean(0)
        uploads = round.gather(EXAMINE, {**given, "segment": len(self.examined_segments)})
        holders = self.label_holders(round.cohort)
        scores = {name: uploads[name]["scores"] for name in holders if name in uploads}
        if not scores:
            raise Refused(f"{holders[0]} holds the labels and is gone, so nobody says what a node's class is")
        return scores

    @EXAMINE.answer
    def examine(self, client: ClientContext, given: State) -> Upload:
        """This client's rows of one segment on all nodes, or class scores of what was aggregated last."""
        self.parties(client, given)
        table, tower = self.table(client), self.tower(client)
        nodes = table.num_nodes
        if given.get("nodes") != nodes:
            raise BadInput(
                f"{client.name} has {nodes} nodes and the test data {given.get('nodes')}: in a vertical "
                "split every client has every node"
            )
        segment = int(given["segment"])
        rows = self._rows(given, "aggregate", nodes) if segment else None
        tower.eval()
        with torch.no_grad():
            if segment < len(self.segments):
                return Upload({"rows": self.whole_rows(client, table, tower, segment, rows)})
            assert rows is not None
            return Upload({"scores": tower.scores(rows)})

    def whole_rows(
        self, client: ClientContext, table: NeighbourTable, tower: Tower, segment: int, rows: Tensor | None
    ) -> Tensor:
        """A client's rows of a segment, on all nodes and all its links."""
        everywhere = torch.arange(table.num_nodes)
        between = links_between(table, everywhere, everywhere, tower.loop)
        depth = len(tower.segments[segment])
        return tower.segment(segment, rows, client.graph.x, [between] * depth, Noise())
