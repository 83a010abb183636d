"""Federated ridge regression: one sum of moments, and links only where predictions are made."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State
from secure_fedgraph.algorithms.fedridge.settings import RidgeSettings
from secure_fedgraph.algorithms.training.records import OfRecords, check_held
from secure_fedgraph.core.channel import Channel, Reveal, UnitContributionMoments
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Expected
from secure_fedgraph.core.upload import OFF, ON, ContributionMoments, moments_of
from secure_fedgraph.graph import descriptors
from secure_fedgraph.graph.own import pairs
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import ridge
from secure_fedgraph.models import ridge as feature_maps
from secure_fedgraph.models.targets import ridge_targets
from secure_fedgraph.seams import ClientContext, RoundApi, Total

WEIGHTS, CLASSES, OWNERS, NOISE = "weights", "classes", "owners", "noise"
"""What is released: weights; or class sums, of how many owners, with which noise."""
PLAIN = "plain"
"""In the state, whether targets are not one-hot classes, whose columns add up to 0."""
NUMBERS = "numbers"
"""In the state, whether targets are numbers, beside a column that counts them."""
OWN, ALL, FOURIER = "own", "all", "fourier"
MOST_NODES = 4096
"""Records of which a reader takes second moments, where there are more features than that."""
UNKNOWN = 0.002
"""Second moments are sent where noise alone has eigenvalues below this share of the number of records: with
more of it what they add is less than what their noise costs the class sums."""
MOST_VALUES = 2**27
"""Second moments that are sent: a gigabyte of them."""
FEW_FEATURES = 128
"""With no more, noisy sums of nodes have second moments of all nodes, and a score reads its own row alone."""
PROJECTED = 2048
"""Random directions that are offered where second moments of all features are too many."""
TRAINED = 0.6
"""The share of nodes that is taken to train."""


class FedRidge(OfRecords):
    """Ridge regression of classes on features, from one sum over all owners.

    A record is a training node: its features ``z``, of length 1, and its class ``t``. Each owner sends
    ``A = sum z z^T`` and ``B = sum z t^T`` once (each round, if there are more). The server solves
    ``(A + ridge I) W = B``, and whoever predicts spreads the scores ``z W`` over the links that it has. In
    the form ``second_moments=own`` only ``B`` is sent, and whoever predicts takes the second moments of the
    records that it is asked about: noise that would drown ``A`` costs nothing.

    Guarantees:
        - one node is one record, so it moves a client's upload by at most a known amount, which the client
          enforces: noise on that upload (``local_dp``, ``distributed_dp``, ``central_dp``) has a finite
          epsilon for a node;
        - nothing that is sent depends on a link.

    Needs:
        - features that say something by themselves: links are used at inference only;
        - with ``second_moments=own``, questions about many records at a time (a graph, not a node).

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedridge.settings.RidgeSettings`.

    References:
        Vu and Slavkovic, Differential privacy for clinical trial data, ICDM Workshops 2009; Wang, Revisiting
        differentially private linear regression, UAI 2018; Gasteiger et al., Predict then Propagate, ICLR
        2019.
    """

    name = "fedridge"
    tasks: ClassVar[tuple[str, ...]] = tuple(Task)
    summary = "ridge regression from one sum of moments; links at inference only"
    reference = "Vu and Slavkovic 2009"
    rounds = 1
    data: ClassVar[str] = "pubmed"
    partitions: ClassVar[tuple[str, ...]] = ("louvain", "louvain_compiled", "random", "label_skew")
    Settings: ClassVar[type[RidgeSettings]] = RidgeSettings
    settings: RidgeSettings
    without_links: ClassVar[Mapping[str, Any] | None] = {"steps": 0}
    target_norm: ClassVar[float] = 0.5
    """The length of a target, where the settings give none."""
    map: ClassVar[str] = "none"
    """The public map of records, where the settings name none."""

    MOMENTS = Channel("moments", Reveal.SUM)

    @property
    def _sends_second(self) -> bool:
        return self.settings.second_moments != OWN

    @property
    def _sums_all(self) -> bool:
        """Whether second moments are of nodes without an answer too."""
        return self.settings.second_moments == ALL

    @property
    def _contribution(self) -> UnitContributionMoments:
        targets = self.settings.target_norm or self.target_norm
        records, second = self.settings.records, self._sends_second
        return UnitContributionMoments(targets=targets, records=records, second=second)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The channel with what one record moves of it."""
        moments = replace(
            self.MOMENTS, unit=self.record, links=self.reads_links, unit_contribution=self._contribution
        )
        return (moments,)

    def suited(
        self, channel: Channel, noise: float, schema: Schema, clients: int, sizes: Mapping[str, int]
    ) -> Self:
        """Class sums only, where noise drowns second moments: by features, records and noise.

        Of links' classes both are sent: these are seldom even, and what one reader's records have of the
        commonest class differs from all owners' by more than what tells the classes apart.
        """
        s = self.settings
        if channel.name != self.MOMENTS.name or s.second_moments != "auto" or not noise:
            return self
        if schema.task == Task.LINK_CLASSES:
            return self
        known = TRAINED * sizes.get(self.record, 0)
        records = known or clients * s.records
        deviation = noise * s.records * ON / OFF
        edge = 2 * deviation * math.sqrt(self.width(schema))
        few = self.record == Unit.NODE and self.width(schema) <= FEW_FEATURES
        if edge <= UNKNOWN * records and (known or not few):  # nobody knows how many: perhaps few
            return self
        free = copy.copy(self)  # auto leaves the choice open, by hand too
        free.by_hand = {key: value for key, value in self.by_hand.items() if key != "second_moments"}
        if few and schema.task != Task.NUMBER:  # a number is better learned about one's own mean
            taken: dict[str, Any] = {"second_moments": ALL} | ({} if s.target_norm else {"target_norm": 1.0})
            return free.in_form(
                Form(taken, "features are few, so second moments are of unlabelled nodes too")
            )
        why = (
            f"noise on second moments would move their eigenvalues by up to {edge:.0f}, too much for "
            f"{records:.0f} records; so clients send class sums only, and the model takes second "
            "moments of the records that it predicts; scores under noise are of the class sums alone"
        )
        return free.in_form(Form({"second_moments": OWN}, why))

    def width(self, schema: Schema) -> int:
        """Numbers in a record; where numbers are learned, one of them is the same in all."""
        given = self.settings.map_width if self._maps else self.described(schema)
        return given + (schema.task == Task.NUMBER)

    def records(self, graph: Data, schema: Schema) -> torch.Tensor:
        """A graph's records: ``[n, width]``, of length 1."""
        given, s = self.describe(graph, schema), self.settings
        if self._maps:
            given = feature_maps.fourier(given, s.map_width, s.map_scale)
        return ridge.with_constant(given) if schema.task == Task.NUMBER else given

    @property
    def _maps(self) -> bool:
        return (self.settings.map or self.map) == FOURIER

    def described(self, schema: Schema) -> int:
        """Numbers in a record before the public map."""
        return schema.features

    def describe(self, graph: Data, schema: Schema) -> torch.Tensor:
        """A graph's records before the public map: ``[n, described]``, of length 1."""
        return ridge.records(graph.x)

    @property
    def hops(self) -> int:
        """No link is read in training."""
        return 0

    def check_own(self, graph: Data, name: str) -> None:
        """That sums over its nodes are not cut."""
        held = len(graph.train_mask) if self._sums_all else int(graph.train_mask.sum())
        which = f"{'' if self._sums_all else 'training '}{self.record.value}"
        check_held(held, self.settings.records, name, which)

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """Nothing; the model for its scores."""
        return NOTHING if channel == self.MOMENTS.name else self._takes_released(schema)

    def check(self, schema: Schema) -> None:
        """As :meth:`~secure_fedgraph.algorithm.Algorithm.check`, and that second moments fit into memory."""
        super().check(schema)
        width = self.width(schema)
        values = width * (width + 1) // 2
        if self._sends_second and values > MOST_VALUES:
            raise BadInput(
                f"training.second_moments = {self.settings.second_moments}: {width} features have "
                f"{values} second moments, more than {MOST_VALUES}: set training.second_moments=own, which "
                "sends class sums only, or project them with training.map=fourier training.map_width="
                f"{PROJECTED} ({PROJECTED * (PROJECTED + 1) * 2 // 2**20} MiB a client, and what {PROJECTED} "
                "random directions lose)"
            )

    def combines(self, schema: Schema) -> bool:
        """For classes of nodes, in both forms."""
        return schema.kind == "node" and schema.task == Task.CLASSES

    def init(self, schema: Schema, seed: int) -> State:
        """No moments yet, and no weights."""
        width, classes = self.width(schema), schema.classes
        sent, counted = width if self._sends_second else 0, schema.task == Task.NUMBER
        return {
            WEIGHTS: torch.zeros(sent, classes),
            "second": torch.zeros(sent, sent, dtype=torch.float64),
            CLASSES: torch.zeros(width, classes + counted, dtype=torch.float64),
            OWNERS: torch.zeros((), dtype=torch.float64),
            "variance": torch.zeros((), dtype=torch.float64),
            PLAIN: torch.tensor(float(schema.task == Task.LABELS), dtype=torch.float64),
            NUMBERS: torch.tensor(float(counted), dtype=torch.float64),
        }

    def released(self, state: State) -> State:
        """The weights; or the class sums, the number of owners in them, and the deviation of their noise."""
        if self._sends_second:
            return {WEIGHTS: state[WEIGHTS]}
        return {CLASSES: state[CLASSES], OWNERS: state[OWNERS], NOISE: state["variance"].sqrt()}

    def solved(self, released: State, graph: Data, schema: Schema) -> torch.Tensor:
        """The weights, ``[width, classes]``; by second moments of the graph where none were sent.

        These are the same whenever the same graph is asked about, so they are kept.
        """
        if WEIGHTS in released:
            return released[WEIGHTS].float()  # a server may send doubles
        # a question about other links is answered by the same weights as one about the owner's own
        source = Data(x=pairs.learned(graph)) if pairs.PAIRS in graph else graph
        by_features = schema.kind == "node" and source.x.layout == torch.strided
        read = source.x if by_features else self.records(source, schema)
        facts = (float(released[OWNERS]), float(released[NOISE]), float(tuple(Task).index(schema.task)))
        numbers = torch.tensor(facts, dtype=torch.float64)
        asked = (released[CLASSES], numbers, read)
        return self.kept.of(asked, lambda: self._solved(released, self.records(source, schema), schema))

    def _solved(self, released: State, z: torch.Tensor, schema: Schema) -> torch.Tensor:
        if z.shape[1] > MOST_NODES < len(z):
            z = z[torch.linspace(0, len(z) - 1, MOST_NODES).long()]
        owners, noise = max(round(float(released[OWNERS])), 1), float(released[NOISE])
        norm = self._contribution.targets
        if schema.task == Task.NUMBER:
            return ridge.own_number_weights(released[CLASSES].double(), z, norm, noise).float()
        centred = schema.task != Task.LABELS
        if not centred:  # the size of outputs counts here, and sums are over training items alone
            z = z * math.sqrt(TRAINED)
        return ridge.own_weights(released[CLASSES].double(), z, owners, norm, noise, centred).float()

    def by_item(self, params: State, schema: Schema) -> State:
        """The weights; in the form ``own`` the class sums in their place, which read no other row."""
        if WEIGHTS in params:
            return params
        sums = params[CLASSES].double()
        if schema.task == Task.NUMBER:
            norm = self._contribution.targets
            alike, noise = ridge.alike(sums, norm), float(params[NOISE])
            return {WEIGHTS: ridge.number_weights(alike, sums, norm, 0, noise).float()}
        sums = sums if schema.task == Task.LABELS else sums - sums.mean(dim=1, keepdim=True)
        longest = sums.norm(dim=0).max().clamp(min=1e-12)
        return {WEIGHTS: (sums * (self._contribution.targets / longest)).float()}

    def round(self, round: RoundApi, state: State) -> State:
        """Adds moments to those of the rounds before, if any, and solves.

        One round is enough. More of them share a budget, and their mean carries as much noise as one alone.
        """
        return self.with_sums(round.reduce(self.in_use[0]), state)

    def with_sums(self, opened: Total, state: State) -> State:
        """The state with one more sum of moments."""
        contribution = self._contribution
        second, classes = moments_of(opened.total, contribution)
        noise = opened.deviation * contribution.records
        after = {
            **state,
            CLASSES: classes + state[CLASSES],
            OWNERS: state[OWNERS] + len(opened.contributors),
            "variance": state["variance"] + noise**2,
        }
        if second is None:
            return after
        after["second"] = second + state["second"]
        deviation = float(after["variance"].sqrt())
        share = TRAINED if self._sums_all else 1.0
        norm, apart = contribution.targets, share * deviation * ON / OFF
        sums = (share * after["second"], after[CLASSES])
        if bool(state[NUMBERS]):
            solved = ridge.number_weights(*sums, norm, apart, deviation)
        else:
            solved = ridge.weights(*sums, norm, apart, deviation, centred=not bool(state[PLAIN]))
        return {**after, WEIGHTS: solved.float()}

    @MOMENTS.answer
    def moments(self, client: ClientContext, given: Mapping[str, Any]) -> ContributionMoments:
        """The training nodes' features and classes, of which the client's door makes sums.

        In the form ``all`` of the other nodes too, which add nothing to the sums of classes.
        """
        graph = client.graph
        nodes = graph.train_mask.nonzero().flatten()
        wanted = self._targets(graph.y[nodes], client.schema)
        records = self.records(graph, client.schema)
        if self.settings.class_weight:
            heaviest = max(self.settings.class_weight)
            shares = (torch.tensor(self.settings.class_weight)[graph.y[nodes]] / heaviest).sqrt()[:, None]
            records, wanted = records.index_copy(0, nodes, records[nodes] * shares), wanted * shares
        if self._sums_all:
            wanted = wanted.new_zeros(len(records), wanted.shape[1]).index_copy(0, nodes, wanted)
        else:
            records = records[nodes]
        return ContributionMoments(records, wanted)

    def _targets(self, y: torch.Tensor, schema: Schema) -> torch.Tensor:
        """Targets of an L2 norm of at most the declared one; beside numbers one that counts them."""
        norm = self._contribution.targets
        if schema.task == Task.NUMBER:
            return ridge.with_count(ridge_targets(y, schema, 1.0), norm)
        return ridge_targets(y, schema, norm)

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Logarithms of shares of classes, or numbers, spread over the graph's links; labels themselves."""
        s, norm = self.settings, self._contribution.targets
        scores = self.records(graph, schema) @ self.solved(params, graph, schema)
        spreads = self.record != Unit.GRAPH and s.steps and graph.edge_index.numel()
        if schema.task == Task.NUMBER:
            return ridge.spread_numbers(scores, graph.edge_index, s.steps, s.restart) if spreads else scores
        if schema.task == Task.LABELS:
            return ridge.outputs(scores, norm, labels=True)
        if schema.task == Task.LINKS:
            return ridge.margins(scores, norm)
        if not spreads:  # the regression's own shares
            return ridge.as_shares(scores, norm)
        return ridge.spread(scores, graph.edge_index, s.steps, s.restart, s.sharpness)


class GraphFedRidge(FedRidge):
    """Federated ridge regression where a record is a graph, and ``z`` describes it.

    :mod:`secure_fedgraph.graph.descriptors` has what describes one: sizes, labels, degrees, triangles.

    Guarantees:
        - one graph is one record: as :class:`~secure_fedgraph.algorithms.fedridge.algorithm.FedRidge`, for a
          graph, and for any node or link of it.

    Args:
        settings: :class:`~secure_fedgraph.algorithms.fedridge.settings.RidgeSettings`.
    """

    name = "fedridge-graphs"
    summary = "ridge regression of whole graphs on their descriptors, from one sum of moments"
    data: ClassVar[str] = "proteins"
    clients: ClassVar[Mapping[str, int]] = {"proteins": 10, "dd": 10, "imdb-binary": 10}
    kinds: ClassVar[tuple[str, ...]] = ("graph",)
    partitions: ClassVar[tuple[str, ...]] = ("random", "file_order", "dirichlet")
    alone = "gin-local"
    record: Unit = Unit.GRAPH
    reads_links: bool = True
    without_links = None
    target_norm: ClassVar[float] = 1.0
    map: ClassVar[str] = "fourier"

    def described(self, schema: Schema) -> int:
        """Numbers that describe a graph."""
        return descriptors.width(schema)

    def describe(self, graph: Data, schema: Schema) -> torch.Tensor:
        """What describes each graph: ``[graphs, described]``, of length 1."""
        return descriptors.descriptors(graph, schema)


FedRidge.of_graphs = GraphFedRidge
