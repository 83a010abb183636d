"""What an algorithm is: channels, the clients' answers on them, and a round from state to state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch_geometric.data import Data

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.protocol.channel import Channel, Reveal
from secure_fedgraph.protocol.upload import Upload

State = dict[str, torch.Tensor]


class Settings(BaseModel):
    """An algorithm's settings: checked on construction, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Algorithm:
    """Base of every algorithm: one file declares its channels, answers them, and runs a round.

    A subclass sets class attributes and writes three things::

        UPDATE = Channel("update", Reveal.SUM)      # what leaves a client, and what the reader learns

        @UPDATE.answer
        def update(self, me, given): ...            # the client's half: -> Upload

        def round(self, fed, state): ...            # the server's half: state in, state out

    An answer may use ``me`` (the client: its graph, its memory, its generators) and what it was given,
    and nothing else. The server's half sees the round's verbs and the state, and no client.

    Args:
        settings: keys of the class's ``Settings``.

    Raises:
        BadInput: for a setting that is unknown or out of range, naming it.
    """

    name: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    rounds: ClassVar[int] = 50
    pools: ClassVar[bool] = False
    """Whether the algorithm pools all owners' data: a baseline that is not federated."""
    Settings: ClassVar[type[Settings]] = Settings
    channels: ClassVar[tuple[Channel, ...]] = ()
    answers: ClassVar[Mapping[str, str]] = {}
    readers: ClassVar[Mapping[str, str]] = {}

    METRICS = Channel("metrics", Reveal.SUM)

    def __init__(self, **settings: Any) -> None:
        try:
            self.settings = self.Settings(**settings)
        except ValidationError as error:
            raise BadInput(_sentence(error, f"{self.name or type(self).__name__} setting")) from None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared: dict[str, Channel] = {
            c.name: c for base in cls.__bases__ for c in getattr(base, "channels", ())
        }
        answers = {k: v for base in cls.__bases__ for k, v in getattr(base, "answers", {}).items()}
        readers = {k: v for base in cls.__bases__ for k, v in getattr(base, "readers", {}).items()}
        for attribute, value in vars(cls).items():
            channel = getattr(value, "__answers__", None)
            if isinstance(channel, Channel):
                declared[channel.name] = channel
                answers[channel.name] = attribute
            read = getattr(value, "__reads__", None)
            if isinstance(read, Channel):
                readers[read.name] = attribute
        cls.channels = tuple(c for c in declared.values() if c.name != cls.METRICS.name)
        cls.answers, cls.readers = answers, readers

    def init(self, schema: Schema, seed: int) -> State:
        """The server's state before round 1, from public facts and the seed only."""
        raise NotImplementedError

    def round(self, fed: Any, state: State) -> State:
        """One round on the server: what to ask, and what to make of what comes back."""
        raise NotImplementedError

    def released(self, state: State) -> State | None:
        """The model that the round has released to everybody, or None where there is none."""
        return state

    def personal(self) -> Channel | None:
        """The channel on which the referee may examine personal models, where there are any."""
        return next((c for c in self.channels if c.to == "referee"), None)

    @property
    def warm_up(self) -> int:
        """Rounds before the first that is scored."""
        return 0

    @property
    def hops(self) -> int:
        """How far from a training node training looks, in links."""
        raise NotImplementedError

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Class scores ``[nodes, classes]`` of a model on a graph."""
        raise NotImplementedError

    @METRICS.answer
    def metrics(self, me: Any, given: State) -> Upload:
        """The client's accuracy on its own test nodes, in [0, 1] (``evaluation="in_band"``)."""
        scores = self.predict(given, me.graph, me.schema)
        right = (scores.argmax(1) == me.graph.y)[me.graph.test_mask]
        return Upload({"accuracy": right.float().mean().reshape(1)})

    def made_with(self) -> dict[str, Any]:
        """What ``__init__`` was given besides settings, for another process to make the same algorithm."""
        return {}

    def public(self) -> dict[str, Any]:
        """What everybody knows about the algorithm: its name and settings."""
        return {"algorithm": self.name, "settings": self.settings.model_dump(mode="json")}


# the base's own answer, which __init_subclass__ cannot see
Algorithm.answers = {Algorithm.METRICS.name: "metrics"}


def _sentence(error: ValidationError, what: str) -> str:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{what} {key!r} is unknown"
    return f"{what} {key!r} = {first['input']!r}: {first['msg']}"
