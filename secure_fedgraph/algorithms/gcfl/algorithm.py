"""GCFL and GCFL+: clustered federated graph classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from secure_fedgraph.algorithm import Settings, State
from secure_fedgraph.algorithms.fairgraphfl import state as kept
from secure_fedgraph.algorithms.fairgraphfl.agents import are_known, ask_sizes
from secure_fedgraph.algorithms.fairgraphfl.channels import SIZE
from secure_fedgraph.algorithms.training.gin_classifier import GinClassifier, GinSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.inputs import NOTHING, Expected, Numbers, Whole
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.loading import postponed
from secure_fedgraph.models.finite import all_finite
from secure_fedgraph.seams import ClientContext, RoundApi

networkx = postponed("networkx")
SMALLEST = 3
"""Agents that a cluster has at least before it is split: two agents have one cut, which says nothing."""


def cosine_similarity(updates: Tensor) -> np.ndarray:
    """``[agents, agents]``: cosines plus 1, so none is negative; that of a zero update is 1 (GCFL).

    Args:
        updates: ``[agents, D]``.
    """
    scaled = torch.nn.functional.normalize(updates.double(), dim=1)
    return (scaled @ scaled.T + 1).clamp(min=0).numpy()


def sequence_similarity(norms: Tensor) -> np.ndarray:
    """``[agents, agents]``: the largest distance less each, by dynamic time warping (GCFL+).

    Args:
        norms: ``[rounds, agents]`` lengths of updates.

    >>> sequence_similarity(torch.tensor([[1.0, 1.0, 5.0], [2.0, 2.0, 5.0]])).round(2).tolist()
    [[5.0, 5.0, 0.0], [5.0, 5.0, 0.0], [0.0, 0.0, 5.0]]
    """
    from dtaidistance import dtw  # loads its C code

    sequences = np.ascontiguousarray(norms.double().T.numpy())
    distances = np.asarray(dtw.distance_matrix_fast(sequences))
    return np.asarray(distances.max() - distances)


def is_settled(updates: Tensor, mean_below: float, one_above: float) -> bool:
    """Whether a cluster as a whole moves little while one of its agents still moves much.

    Args:
        updates: ``[agents, D]``.
        mean_below: what the length of their mean is below.
        one_above: what the longest of them is above.
    """
    mean, longest = updates.mean(0).norm(), updates.norm(dim=1).max()
    return bool(mean < mean_below) and bool(longest > one_above)


def minimum_cut(similarity: np.ndarray) -> Tensor | None:
    """``[agents]`` booleans: the side of the cut that the first agent is not on (Stoer and Wagner).

    None where all pairs are equally similar: every cut is then as good as another.

    >>> minimum_cut(np.array([[2.0, 1.9, 0.1], [1.9, 2.0, 0.1], [0.1, 0.1, 2.0]])).tolist()
    [False, False, True]
    """
    agents = len(similarity)
    pairs = similarity[np.triu_indices(agents, 1)]
    if agents < SMALLEST or np.ptp(pairs) <= 1e-12 * max(1.0, float(np.abs(pairs).max())):
        return None
    graph = networkx.from_numpy_array(np.ones((agents, agents)) - np.eye(agents))
    for one, other, edge in graph.edges(data=True):
        edge["weight"] = float(similarity[one, other])
    _, (side, _) = networkx.stoer_wagner(graph)
    cut = torch.zeros(agents, dtype=torch.bool)
    cut[list(side)] = True
    return ~cut if bool(cut[0]) else cut


def split(clusters: Tensor, members: Tensor, apart: Tensor) -> Tensor:
    """``[agents]`` cluster numbers after some members of one left it for a new one.

    Args:
        clusters: ``[agents]`` numbers from 0.
        members: ``[m]`` the agents of one cluster.
        apart: ``[m]`` booleans.

    >>> split(torch.tensor([0, 0, 0]), torch.tensor([0, 1, 2]), torch.tensor([False, False, True])).tolist()
    [0, 0, 1]
    """
    found = clusters.clone()
    found[members[apart]] = int(clusters.max()) + 1
    return found


CLUSTERS, NORMS, LAST_SPLIT = "fair.clusters", "fair.norms", "fair.last_split"
STEP = "step"
WHY = "who is in whose cluster follows from how each agent's update differs from the others'"


class GcflSettings(GinSettings):
    """How agents train (as :class:`GinSettings`), and when a cluster is split.

    The two lengths are the released code's for data that it does not name; it has .03 and .06 for PROTEINS,
    .025 and .045 for IMDB-BINARY.

    Args:
        mean_below: a cluster is split where the length of its mean update is below this,
        one_above: and that of some agent's update above this,
        after: from the round after this one on.
        weighted: means by number of training graphs, which agents tell the server; else equal ones.
    """

    mean_below: float = Field(0.05, gt=0, allow_inf_nan=False)
    one_above: float = Field(0.1, gt=0, allow_inf_nan=False)
    after: int = Field(20, ge=0)
    weighted: bool = True


class GcflPlusSettings(GcflSettings):
    """As :class:`GcflSettings`, and how long a sequence of norms is.

    Args:
        window: rounds of it, since the cluster's last split; 10 for PROTEINS and 5 for IMDB-BINARY.
    """

    window: int = Field(10, ge=2)


class Gcfl(GinClassifier):
    """Graph clustered federated learning: agents whose updates disagree stop sharing them.

    Agents share the convolutions of a GIN; the layer before them and the head stay at home. All start in
    one cluster. Each adds its cluster's mean update to its convolutions in place of its own. A cluster whose
    mean has become small while one of its agents still moves much is split in two, along the minimum cut of
    the similarity of its updates.

    Guarantees:
        - an agent is given the mean of its own cluster, and nothing of any other;
        - layers that are not convolutions, and moments, stay with the agent.
    Needs:
        - the same agents in every round;
        - a server that reads every update. Sums over clusters would be no protection: the server says who
          is in which, and could give each agent one of its own.

    References:
        Xie, Ma, Xiong, Yang, Federated Graph Classification over Non-IID Graphs, NeurIPS 2021.
    """

    name = "gcfl"
    alone: ClassVar[str] = "gin-local"
    summary = "graph classification; agents are split into clusters by how their updates agree"
    reference = "Xie et al., NeurIPS 2021"
    Settings: ClassVar[type[Settings]] = GcflSettings
    settings: GcflSettings
    UPDATE = Channel("update", Reveal.EACH, why=WHY)
    MEAN = Channel("cluster_mean", Reveal.NOTHING, alike=False)
    PERSONAL = Channel("personal_model", Reveal.EACH, to="referee")

    # --- the server

    def round(self, round: RoundApi, state: State) -> State:
        """Updates in, each cluster's mean out, and clusters that are split for the rounds after."""
        state = self._with_agents(round, state)
        like = kept.convolutions_of(self._public(state))
        uploads = round.gather(self.UPDATE, given={kept.SEED: int(state[kept.SEED])})
        updates = torch.stack([kept.vector_of(uploads[name], like, name) for name in round.cohort])
        of = state[CLUSTERS]
        steps = {}
        for i, name in enumerate(round.cohort):
            steps[name] = {STEP: self._mean(updates, (of == of[i]).nonzero().flatten(), state)}
        round.scatter(self.MEAN, steps)
        norms = torch.cat([state[NORMS], updates.norm(dim=1)[None]])
        state |= {NORMS: norms}
        late = round.number > self.settings.after
        return state | self._split(updates, state, round.number) if late else state

    def similarity(self, updates: Tensor, norms: Tensor) -> np.ndarray | None:
        """``[m, m]`` of a cluster's agents, not negative; None where it is too early to say.

        Args:
            updates: ``[m, D]`` of this round.
            norms: ``[rounds, m]`` lengths of their updates since the cluster's last split.
        """
        return cosine_similarity(updates)

    def _split(self, updates: Tensor, state: State, number: int) -> State:
        s, of, last = self.settings, state[CLUSTERS], state[LAST_SPLIT]
        for cluster in of.unique().tolist():
            members = (of == cluster).nonzero().flatten()
            mine = updates[members]
            if len(members) < SMALLEST or not is_settled(mine, s.mean_below, s.one_above):
                continue
            since = int(last[members].max())
            alike = self.similarity(mine, state[NORMS][since:, members])
            apart = None if alike is None else minimum_cut(alike)
            if apart is not None:
                of = split(of, members, apart)
                last = last.clone()
                last[members] = number
        return {CLUSTERS: of, LAST_SPLIT: last}

    def _mean(self, updates: Tensor, members: Tensor, state: State) -> Tensor:
        weights = (
            state[kept.SIZES][members]
            if kept.SIZES in state
            else torch.ones(len(members), dtype=torch.float64)
        )
        return ((weights / weights.sum()) @ updates[members].double()).float()

    def _with_agents(self, round: RoundApi, state: State) -> State:
        if are_known(round, state, self.name):
            return dict(state)
        agents = len(round.cohort)
        met = {
            kept.AGENTS: kept.names_to_tensor(round.cohort),
            CLUSTERS: torch.zeros(agents, dtype=torch.long),
            LAST_SPLIT: torch.zeros(agents, dtype=torch.long),
            NORMS: torch.zeros(0, agents),
        }
        return {**state, **met, **({kept.SIZES: ask_sizes(round)} if self.settings.weighted else {})}

    @staticmethod
    def _public(state: State) -> State:
        return {key: value for key, value in state.items() if not key.startswith("fair.")}

    # --- the agents

    @SIZE.answer
    def size(self, client: ClientContext, given: State) -> Upload:
        """How many training graphs the agent has."""
        return Upload({"graphs": client.graph.train_mask.sum().float().reshape(1)})

    @UPDATE.answer
    def update(self, client: ClientContext, given: State) -> Upload:
        """Trains its own model and returns how its convolutions moved."""
        start = client.memory.get("model") or self.start(client.schema, int(given[kept.SEED]))
        client.memory["model"] = self.fit(client, start)
        client.memory["before"] = before = kept.convolutions_of(start)
        return Upload({k: client.memory["model"][k] - v for k, v in before.items()})

    @MEAN.answer
    def take_mean(self, client: ClientContext, given: Mapping[str, Any]) -> None:
        """Adds its cluster's mean update to the convolutions that it had before its own."""
        before = client.memory.pop("before", None)
        if before is None:
            raise HostileMessage(f"{client.name} was given a mean before it sent an update")
        client.memory["model"] = client.memory["model"] | all_finite(kept.add_vector(before, given[STEP]))

    @PERSONAL.answer
    def personal_model(self, client: ClientContext, given: State) -> Upload:
        """The personal model, for the referee: there is no global one."""
        return Upload(self.own_model(client))

    # --- what the settings choose, and what a run has besides

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """What these settings send."""
        return (*((SIZE,) if self.settings.weighted else ()), self.UPDATE, self.MEAN, self.PERSONAL)

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """Sizes once, the rest every round."""
        return 1 if channel.name == SIZE.name else rounds

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed, and means."""
        if channel == self.UPDATE.name:
            return ({kept.SEED: Whole()},)
        if channel == self.MEAN.name:
            length = len(kept.flatten(kept.convolutions_of(self.start(schema, 0))))
            return ({STEP: Numbers((length,))},)
        return NOTHING if channel in (SIZE.name, self.PERSONAL.name) else super().takes(channel, schema)

    def init(self, schema: Schema, seed: int) -> State:
        """First convolutions, which follow from a public seed."""
        return {kept.SEED: torch.tensor(seed), **kept.convolutions_of(self.start(schema, seed))}

    def released(self, state: State) -> None:
        """No model is released: nobody has a head for all."""
        return None

    def notes(self, state: State) -> dict[str, Any]:
        """Who is in which cluster."""
        if kept.AGENTS not in state:
            return {}
        agents = kept.names_from_tensor(state[kept.AGENTS])
        return {"agents": agents, "clusters": dict(zip(agents, state[CLUSTERS].tolist(), strict=True))}


class GcflPlus(Gcfl):
    """GCFL that compares how the lengths of agents' updates went, by dynamic time warping.

    A single round's update is noisy; a sequence of norms shows which agents learn alike.

    References:
        Xie, Ma, Xiong, Yang, Federated Graph Classification over Non-IID Graphs, NeurIPS 2021, section 4.3.
    """

    name = "gcfl+"
    summary = "GCFL by sequences of the updates' norms, compared by dynamic time warping"
    Settings: ClassVar[type[Settings]] = GcflPlusSettings
    settings: GcflPlusSettings

    def similarity(self, updates: Tensor, norms: Tensor) -> np.ndarray | None:
        """By the last norms; None before there are as many as the window holds."""
        window = self.settings.window
        return None if len(norms) < window else sequence_similarity(norms[-window:])
