"""APFLGate's form on ratings under a rating's budget: one noised sum, and personal models at home."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Form, State, in_band_score
from secure_fedgraph.algorithms.fedridge import at_home
from secure_fedgraph.algorithms.fedridge.algorithm import WEIGHTS, FedRidge
from secure_fedgraph.algorithms.fedridge.forms import MomentSettings
from secure_fedgraph.algorithms.fedridge.settings import RidgeSettings
from secure_fedgraph.algorithms.training.graph_classifier import RatingTask
from secure_fedgraph.core.channel import Channel, UnitContributionMoments
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import Expected
from secure_fedgraph.core.upload import ContributionMoments, Upload
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.seams import ClientContext

BANDS = 5
"""Steps of the scale: a rating is learned as whether it lies below the middle of each."""
PRIORS = (1.0, 5.0)
"""Numbers of ratings that pull a user's and a product's shares to one half."""
_LENGTH = math.sqrt(1 + 2 * len(PRIORS) * (BANDS / 4 + 1))
_LEVEL = 3.0
"""How much longer columns of the level are in an owner's own regression: owners differ in it above all."""
_SURE = 1.64
"""Standard errors by which the shared model has to help: one-sided, 95 %."""


class RatingSettings(MomentSettings):
    """As :class:`MomentSettings`, for ratings.

    Args:
        readers: how many ratings of one user, and of one product, are records of the sum at most. Noise grows
            with it, and so does what is learned from.
    """

    map: Literal["none"] = "none"
    class_weight: tuple[()] = ()
    records: int = Field(2**15, ge=1, le=2**24)
    readers: int = Field(4, ge=1, le=2**10)


class ApflGateRatings(FedRidge):
    """APFLGate's form on ratings under a rating's budget: one noised sum, personal models at home.

    A record is a training rating. What predicts it is how its user's and its product's other training ratings
    at this owner lie: the shares of them below each step of the scale. What is learned is whether the rating
    itself lies below the step. The prediction is the median: the first step below which half of the chance
    lies. So a rating is read by all others of its user and of its product, and of these no more than
    ``readers`` at each are records of the sum.

    The shared model is released under noise. Each owner fits a personal one to what it leaves over, as
    :class:`~secure_fedgraph.algorithms.fedridge.forms.ApflGateMoments` does, and one that has no part of the
    shared one. It keeps the first where its validation ratings are sure that it is better (one-sided, 95 %).
    Nothing of this leaves the owner, so it costs nothing.

    Guarantees:
        - taking out one rating moves the sum over all owners by at most ``2 readers`` exchanged records
          (``docs/guarantees.md``); the client's door enforces their length and number;
        - on its owner's validation ratings a personal model is not worse than the owner's alone.

    Args:
        settings: :class:`RatingSettings`.

    References:
        APFLGate (poster); Vu and Slavkovic, Differential privacy for clinical trial data, 2009.
    """

    name = "apflgate-ratings"
    summary = "APFLGate's form on ratings under a rating's budget: one noised sum, a personal model at home"
    reference = "APFLGate (poster)"
    data: ClassVar[str] = "ciao"
    clients: ClassVar[Mapping[str, int]] = {"ciao": 28}
    kinds: ClassVar[tuple[str, ...]] = ("ratings",)
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    partitions: ClassVar[tuple[str, ...]] = ("by_category",)
    metric = "mae"
    record: Unit = Unit.EDGE
    reads_links: bool = True
    without_links = None
    Settings: ClassVar[type[RidgeSettings]] = RatingSettings
    settings: RatingSettings

    @property
    def _contribution(self) -> UnitContributionMoments:
        return replace(super()._contribution, readers=self.settings.readers)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The sum; a rating is at one owner."""
        return tuple(replace(one, one_holder=True) for one in super().in_use)

    @property
    def hops(self) -> int:
        """The other ratings of the user and of the product."""
        return 1

    def under_budget(
        self, epsilon: float, delta: float, unit: str, schema: Schema, sizes: Mapping[str, int]
    ) -> Self:
        """Itself, said."""
        if unit != Unit.EDGE:
            return self
        return self.in_form(
            Form(
                {"second_moments": "sent"},
                f"owners send moments of up to {self.settings.readers} ratings of each user and product "
                "once, as one sum under one noise, and the shared model is ridge regression on these; no "
                "network is trained; each owner fits its personal model and its gate at home, which costs no "
                "budget",
            )
        )

    def init(self, schema: Schema, seed: int) -> State:
        """No moments yet, and no weights."""
        return super().init(replace(schema, task=Task.LABELS, classes=BANDS), seed)

    def described(self, schema: Schema) -> int:
        """One that is the same in all; of user and product, for each prior, shares and how sure they are."""
        return 1 + 2 * len(PRIORS) * (BANDS + 1)

    def describe(self, graph: Data, schema: Schema) -> Tensor:
        """What predicts each rating: ``[ratings, described]``, of length 1 at most."""
        counted = torch.cat([_below(graph), torch.ones(len(graph.rating), 1)], dim=1)
        counted = counted * graph.train_mask[:, None]
        columns = [torch.ones(len(counted), 1)]
        for side in graph.edge_index:
            total = torch.zeros(int(graph.num_nodes or 0), BANDS + 1).index_add(0, side, counted)
            others = total[side] - counted
            columns += [others / (others[:, -1:] + prior) for prior in PRIORS]
        return torch.cat(columns, dim=1) / _LENGTH

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """As fedridge's: nothing for the moments."""
        return super().takes(channel, schema)

    def _wanted(self, graph: Data) -> Tensor:
        return _below(graph) * (self._contribution.targets / math.sqrt(BANDS / 4))

    @FedRidge.MOMENTS.answer
    def moments(self, client: ClientContext, given: Mapping[str, Any]) -> ContributionMoments:
        """The training ratings, of which the client's door takes the first of each user and product."""
        graph = client.graph
        items = graph.train_mask.nonzero().flatten()
        z, t = self.records(graph, client.schema)[items], self._wanted(graph)[items]
        return ContributionMoments(z, t, graph.edge_index[:, items].T.contiguous())

    def predict(self, params: State, graph: Data, schema: Schema) -> Tensor:
        """Ratings, ``[ratings]``: medians of what the weights say."""
        low, high = graph.scale.tolist()
        scores = self.records(graph, schema) @ params[WEIGHTS].float()
        said: Tensor = low + (scores < 0).sum(dim=1) * ((high - low) / BANDS)
        return said

    def at_home(self, client: ClientContext, shared: Tensor) -> tuple[Tensor, Tensor]:
        """What an owner predicts with, and what it would predict with alone: weights ``[width, BANDS]`` each.

        Args:
            shared: weights that it was given, ``[width, BANDS]``.
        """
        graph, train, held = client.graph, client.graph.train_mask, client.graph.val_mask
        longer = torch.ones(len(shared), 1)
        longer[:: BANDS + 1] = _LEVEL
        z, t = self.records(graph, client.schema) * longer.T, self._wanted(graph)
        rows = z[train], t[train], z[held], t[held]
        made = at_home.personal(shared.float() / longer, *rows) * longer
        alone = at_home.personal(shared.float() / longer, *rows, shares=(0.0,)) * longer
        errors = [
            (self.predict({WEIGHTS: one}, graph, client.schema) - graph.rating).abs()[held].double()
            for one in (alone, made)
        ]
        gained = errors[0] - errors[1]
        sure = len(gained) > 1 and float(gained.mean()) > _SURE * float(gained.std()) / math.sqrt(len(gained))
        return (made if sure else alone), alone

    def _marked(self, client: ClientContext, given: State) -> dict[str, Tensor]:
        """Errors of the personal model; beside it of the owner alone, of the shared one, and of no model."""
        personal, alone = self.at_home(client, given[WEIGHTS])
        task, graph = RatingTask(()), client.graph
        marked: dict[str, Tensor] = {}
        for name, weights in (("mae_alone", alone), ("mae_shared", given[WEIGHTS]), ("test", personal)):
            found = task.marked(self.predict({WEIGHTS: weights}, graph, client.schema), graph)
            marked = {**marked, **found, name: found["test"]}
        return marked

    def metrics(self, client: ClientContext, given: State) -> Upload:
        """The mean absolute error of the personal model on the client's own test ratings."""
        return in_band_score("mae", *self._marked(client, given)["test"])


def _below(graph: Data) -> Tensor:
    """Whether each rating lies below the middle of each step of the scale, plus or minus one half."""
    low, high = graph.scale.tolist()
    middles = low + (torch.arange(BANDS) + 0.5) * ((high - low) / BANDS)
    below: Tensor = (graph.rating[:, None] <= middles).float() - 0.5
    return below
