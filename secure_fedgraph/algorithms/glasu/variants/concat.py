"""GLASU with a concatenation of the clients' rows in place of their mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.glasu import checks, expected_fields
from secure_fedgraph.algorithms.glasu.algorithm import Glasu
from secure_fedgraph.algorithms.glasu.channels import HIDDEN
from secure_fedgraph.algorithms.glasu.forward_pass import Pass
from secure_fedgraph.algorithms.glasu.iteration import Iteration
from secure_fedgraph.algorithms.glasu.settings import GlasuSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.given import Entries, Expected, Numbers
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import ClientContext, RoundApi

HIDDEN_EACH = Channel("hidden_each", Reveal.EACH, Unit.NODE)
"""A client's rows of an aggregated layer, for the server."""
HIDDEN_SHARED = Channel("hidden_shared", Reveal.EACH, Unit.NODE, to="peer")
"""The same, for the other clients."""


class GlasuConcat(Glasu):
    """GLASU in which an aggregate has a block for each client.

    The server concatenates the clients' rows and hands them out, or (``carried="peers"``) carries them from
    client to client, and each concatenates for itself.

    What it does not hide: whoever concatenates reads every client's rows, and so does every client.

    References:
        Zhang et al., GLASU, TMLR 2024 (arXiv 2303.09531): Algorithms 1 to 4 with concatenation.
    """

    name = "glasu-concat"
    summary = "GLASU with rows concatenated, by the server or by the clients"
    settings_elsewhere: ClassVar[Mapping[str, str]] = {
        "labels": "glasu-concat-one-label-holder",
        "aggregation": "glasu-concat",
    }

    class Settings(GlasuSettings):
        """GLASU's, and who concatenates.

        Args:
            carried: rows go to the ``server``, or sealed to the other clients, ``peers``; then gradients are
                local unless it is said.
        """

        carried: Literal["server", "peers"] = "server"

        @classmethod
        def local_by_default(cls, values: Mapping[str, Any]) -> bool:
            """Also where the server does not read the rows."""
            return values.get("carried") == "peers" or super().local_by_default(values)

    settings: Settings

    def width(self, clients: int) -> int:
        """A block for each client."""
        return self.settings.hidden * clients

    def block(self, place: int) -> int | None:
        """In the order of the cohort."""
        return place

    def aggregated(self, rows: list[Tensor]) -> Tensor:
        """All blocks, side by side."""
        return torch.cat(rows, dim=1)

    @property
    def hidden_channel(self) -> Channel:
        """To the server or to the peers."""
        return HIDDEN_SHARED if self.settings.carried == "peers" else HIDDEN_EACH

    @property
    def aggregate_fields(self) -> Entries:
        """All blocks, where the server concatenates."""
        return {} if self.settings.carried == "peers" else {"aggregate": Numbers((None, None))}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As GLASU."""
        rows = channel in (HIDDEN_EACH.name, HIDDEN_SHARED.name)
        return super().takes(HIDDEN.name if rows else channel, schema)

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """A row a node."""
        return expected_fields.ROWS if channel == HIDDEN_SHARED.name else super().shows(channel, schema)

    def infer_jointly(self, round: RoundApi, iteration: Iteration) -> None:
        """Algorithm 3, with a concatenation by the server or by each client."""
        for segment in self.segments:
            iteration.summands[segment] = 1  # a block's gradient is divided by nobody
            if self.settings.carried == "peers":
                round.share(HIDDEN_SHARED, iteration.request(segment))
                iteration.opened = {}
            else:
                uploads = round.gather(HIDDEN_EACH, iteration.request(segment))
                rows = self.aggregated([uploads[name]["rows"] for name in round.cohort])
                iteration.opened = {"aggregate": rows}

    @HIDDEN_EACH.answer
    def hidden_each(self, client: ClientContext, given: State) -> Upload:
        """This client's rows of a segment, for the server."""
        return self.hidden(client, given)

    @HIDDEN_SHARED.answer
    def hidden_shared(self, client: ClientContext, given: State) -> Upload:
        """This client's rows of a segment, for the other clients."""
        return self.hidden(client, given)

    @HIDDEN_SHARED.read
    def take_rows(self, client: ClientContext, uploads: dict[str, dict[str, Tensor]]) -> None:
        """Keeps the other clients' rows of the segment that is aggregated now."""
        running = self.running(client)
        segment = len(running.own_rows) - 1
        if segment not in running.own_rows:
            raise HostileMessage(f"{client.name} was handed the others' rows before it made its own")
        own = running.own_rows[segment]
        running.others[segment] = {
            name: checks.rows(values, "rows", len(own), own.shape[1]) for name, values in uploads.items()
        }

    def take_aggregate(self, client: ClientContext, running: Pass, segment: int, given: State) -> None:
        """All blocks: from the server, or the peers' and this client's own."""
        own = self.own_rows(running, segment)
        if self.settings.carried == "server":
            rows = checks.rows(given, "aggregate", len(own), running.width)
        else:
            names = self.parties(client, given)
            blocks = {**running.others.pop(segment, {}), client.name: own}
            if blocks.keys() != {*names}:
                raise HostileMessage("the rows of some clients are missing, so nothing can be concatenated")
            rows = self.aggregated([blocks[name] for name in names])
        running.take(segment, rows, running.parties)
