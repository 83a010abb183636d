"""The models that a run published, as anybody may ask them: everybody's one, or each owner's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.audits.finished_run import FinishedRun, once
from secure_fedgraph.audits.rerun import train_again
from secure_fedgraph.core import wire
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.sample.links import edge_values
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import REFEREE, Keep, nothing
from secure_fedgraph.running.run import Run

Answering = Callable[[Data], np.ndarray]
"""A graph -> ``[nodes, classes]`` log-probabilities of its nodes."""


@dataclass(frozen=True)
class Models:
    """What a run published.

    Args:
        shared: the released model; None where there is none.
        personal: owner -> its own model, as it would publish it; empty where there are none.
    """

    shared: Answering | None = None
    personal: Mapping[str, Answering] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.shared is not None or bool(self.personal)

    def of(self, owner: str) -> Answering:
        """The owner's own, or the released one."""
        answering = self.personal.get(owner, self.shared)
        assert answering is not None
        return answering


def published(finished: FinishedRun) -> Models:
    """The released model, and the owners' own where there are any: those of the same run once more.

    Nothing where the data are no graph of nodes, or the run keeps no configuration to run again.
    """
    algorithm, schema = finished.algorithm, finished.federation.schema
    if own_models(algorithm, schema) and "config" in finished.result:
        return once(
            ("again", id(finished.transcript)), finished, lambda: rerun(finished, finished.federation)
        )
    if finished.released is None or own_models(algorithm, schema):
        return Models()
    return _models(algorithm, {}, finished.released, {}, schema)


def rerun(finished: FinishedRun, federation: Federation) -> Models:
    """What the audited run publishes over another federation."""
    return models_of(train_again(finished, federation, keep=keeps(finished.algorithm)))


def models_of(run: Run) -> Models:
    """What a run published whose transcript keeps what :func:`keeps` says."""
    algorithm, schema = run.algorithm, run.federation.schema
    sent = _own_models_sent(algorithm, run.transcript) if own_models(algorithm, schema) else {}
    return _models(algorithm, run.state, algorithm.released(run.state), sent, schema)


def keeps(algorithm: Algorithm) -> Keep:
    """Of the messages, the models that the referee is sent; nothing where there are none."""
    channel = algorithm.personal()
    return nothing if channel is None else lambda name, round: name == channel.name


def own_models(algorithm: Algorithm, schema: Schema) -> bool:
    """Whether owners have models of their own that answer about any graph of nodes."""
    return (
        schema.kind == GraphDataset.kind
        and algorithm.personal() is not None
        and type(algorithm).predict is not Algorithm.predict
    )


def _own_models_sent(algorithm: Algorithm, transcript: Transcript) -> dict[str, State]:
    channel = algorithm.personal()
    assert channel is not None
    latest: dict[str, State] = {}
    for note in transcript.opened:
        if (note.channel, note.reader) == (channel.name, REFEREE) and note.kept:
            values = wire.decode(transcript.body(note.number))
            latest[note.contributors[0]] = {name: torch.tensor(np.array(one)) for name, one in values.items()}
    return latest


def _models(
    algorithm: Algorithm, state: State, released: State | None, personal: Mapping[str, State], schema: Schema
) -> Models:
    if schema.kind != GraphDataset.kind or type(algorithm).predict is Algorithm.predict:
        return Models()

    def shared(graph: Data) -> np.ndarray:
        assert released is not None
        return logs(algorithm.predict(released, graph, schema))

    def own(owner: str) -> Answering:
        return lambda graph: logs(_examined(algorithm, state, {owner: personal[owner]}, graph, schema)[owner])

    return Models(None if released is None else shared, {owner: own(owner) for owner in personal})


def _examined(
    algorithm: Algorithm, state: State, personal: Mapping[str, State], graph: Data, schema: Schema
) -> Mapping[str, torch.Tensor]:
    """What the referee would mark: some algorithms mix a personal model with the shared one."""
    referees_round = SimpleNamespace(gather=lambda channel, given=None: personal)
    return algorithm.predictions(state, cast(Any, referees_round), graph, schema)


def logs(scores: torch.Tensor) -> np.ndarray:
    """``[nodes, classes]`` log-probabilities."""
    return F.log_softmax(scores.detach().double(), dim=1).numpy()


def cut(graph: Data, kept: torch.Tensor) -> Data:
    """The graph with the links among these nodes only.

    Args:
        kept: ``[nodes]`` booleans.
    """
    source, target = graph.edge_index
    made = graph.clone()
    inside = kept[source] & kept[target]
    made.edge_index = graph.edge_index[:, inside]
    for key, values in edge_values(graph, inside).items():
        made[key] = values
    return made


def without_links(graph: Data) -> Data:
    """The graph with every node by itself."""
    return cut(graph, torch.zeros(int(graph.num_nodes or 0), dtype=torch.bool))
