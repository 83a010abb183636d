"""FedSGC: a linear model on features that travelled over links, trained by one gradient a round."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import APPNP

from secure_fedgraph.algorithm import Algorithm, Settings, State
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.inputs import NOTHING, Expected, like
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models import ridge
from secure_fedgraph.seams import ClientContext, RoundApi

WEIGHTS, SPEED = "weights", "speed"


class SgcSettings(Settings):
    """How the linear model is trained.

    Args:
        reach: how far features travel over a client's own links, once, before training.
        learning_rate: of the server's step.
        momentum: of the server's step.
        sharpness: scores are multiplied by it before the softmax, for features of length 1 give small ones.
        length: the length of a client's gradient: every client's is brought to it, so all count alike, and a
            policy's clip of that norm takes nothing off.
    """

    reach: int = Field(2, ge=0, le=20)
    learning_rate: float = Field(1.0, gt=0, allow_inf_nan=False)
    momentum: float = Field(0.8, ge=0, lt=1)
    sharpness: float = Field(8.0, gt=0, le=1000)
    length: float = Field(0.99, gt=0, le=1000)


class FedSgc(Algorithm):
    """Simple graph convolution, federated: made for budgets of whole clients.

    Features travel over a client's own links before training, where that costs nothing. What is trained is
    one matrix, ``[features, classes]``, from zero: each round every client sends the gradient of its mean
    cross entropy, brought to one length, and the server takes a step with momentum along their mean. So few
    numbers and few rounds leave most of a sum of many clients above its noise.

    Guarantees:
        - a client sends a gradient of a public length and nothing else; the server needs the sum only.

    Needs:
        - many clients, where a whole client is protected: noise is for one of them, whatever their number.

    Args:
        settings: :class:`SgcSettings`.

    References:
        Wu et al., Simplifying graph convolutional networks, ICML 2019; McMahan et al., Learning
        differentially private recurrent language models, ICLR 2018 (updates of one length under noise).
    """

    name = "fedsgc"
    summary = "a linear model on smoothed features, one gradient a round, for clients' budgets"
    reference = "Wu et al. 2019"
    rounds = 10
    data: ClassVar[str] = "pubmed"
    partitions: ClassVar[tuple[str, ...]] = ("louvain", "louvain_compiled", "random", "label_skew")
    Settings: ClassVar[type[SgcSettings]] = SgcSettings
    settings: SgcSettings

    GRADIENT = Channel("gradient", Reveal.SUM)

    @property
    def hops(self) -> int:
        """As far as features travel."""
        return self.settings.reach

    def init(self, schema: Schema, seed: int) -> State:
        """Weights of zero: nothing is random."""
        zeros = torch.zeros(schema.features, schema.classes)
        return {WEIGHTS: zeros, SPEED: zeros.clone()}

    def released(self, state: State) -> State:
        """The weights."""
        return {WEIGHTS: state[WEIGHTS]}

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The weights."""
        if channel == self.GRADIENT.name:
            return (like(self.released(self.init(schema, 0))),)
        return self._takes_released(schema) if channel in {c.name for c in self.examiners()} else NOTHING

    def round(self, round: RoundApi, state: State) -> State:
        """A step with momentum along the mean gradient, by its direction in units of a gradient's length."""
        mean = round.reduce(self.GRADIENT, given=self.released(state)).mean[WEIGHTS] / self.settings.length
        # the loss does not change where all classes' weights move alike: what noise adds there is taken off
        mean = mean - mean.mean(dim=1, keepdim=True)
        speed = self.settings.momentum * state[SPEED] + mean
        return {WEIGHTS: state[WEIGHTS] + self.settings.learning_rate * speed, SPEED: speed}

    @GRADIENT.answer
    def gradient(self, client: ClientContext, given: State) -> Upload:
        """The way down of the mean cross entropy of its training nodes, of the public length."""
        graph, s = client.graph, self.settings
        nodes = graph.train_mask.nonzero().flatten()
        z, y = self._smoothed(graph)[nodes], graph.y[nodes]
        weights = torch.nan_to_num(given[WEIGHTS]).to(z.dtype)  # a server may send doubles
        shares = F.softmax(s.sharpness * z @ weights, dim=1)
        down = z.T @ (F.one_hot(y, client.schema.classes).float() - shares)
        return Upload({WEIGHTS: s.length * down / down.norm().clamp(min=1e-12)})

    def predict(self, params: State, graph: Data, schema: Schema) -> Tensor:
        """Scores of features, spread over the graph's links: logarithms of shares."""
        return ridge.spread(ridge.records(graph.x) @ params[WEIGHTS], graph.edge_index)

    def _smoothed(self, graph: Data) -> Tensor:
        z, mean = ridge.records(graph.x), APPNP(1, 0.0)
        for _ in range(self.settings.reach):
            z = mean(z, graph.edge_index)
        return F.normalize(z, dim=1)
