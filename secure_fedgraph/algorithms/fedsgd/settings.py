"""Settings of steps under shared noise. None of them is chosen by data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from secure_fedgraph.algorithm import Settings, Widths


class SgdSettings(Settings):
    """What a step takes, and inference.

    Args:
        hidden: units of a hidden layer.
        rate: the probability with which a record is in a step.
        clip: the L2 norm of a record's gradient over all weights.
        learning_rate: the length of a step, over all weights.
        momentum: of the gradients' mean over steps.
        length: records are read as of this length.
        records: about how many training nodes or graphs an owner has at most.
        steps: how far the shares of nodes' classes travel at inference, in links.
        restart: the share of a node's own that comes back at each step.
    """

    hidden: int = Field(32, ge=1, le=4096)
    rate: float = Field(0.1, gt=0, le=1)
    clip: float = Field(1.0, gt=0, le=1000)
    learning_rate: float = Field(0.3, gt=0, allow_inf_nan=False)
    momentum: float = Field(0.9, ge=0, lt=1)
    length: float = Field(5.0, gt=0, le=1000)
    records: int = Field(2**13, ge=1, le=2**24)
    steps: int = Field(10, ge=0, le=100)
    restart: float = Field(0.2, gt=0, le=1)


class SageStepSettings(SgdSettings):
    """As :class:`SgdSettings`, for FedSage's network of several layers, and for class sums before the steps.

    Args:
        hidden: widths of the GraphSAGE layers, each even.
        inference: where predictions are made, shares of classes ``spread`` over links; or the
            network reads ``neighbours``, as it would without a budget.
        sums: whether owners send class sums once, before the first step, and predictions add what these say;
            ``auto`` chooses under a budget by public facts, and without one sends none.
        share: of a budget, what the class sums weigh beside 1 of the steps.
        trust: how much the network's shares count beside those of the class sums.
        mend: whether an owner's personal model reads the released one on the owner's graph alone, or may read
            it on that graph mended ``at_home``, by a generator of missing neighbours that nobody else sees.
    """

    network: Literal["sage"] = "sage"
    hidden: Widths = (64, 32)  # type: ignore[assignment]
    rate: float = Field(0.14, gt=0, le=1)
    learning_rate: float = Field(0.9, gt=0, allow_inf_nan=False)
    inference: Literal["spread", "neighbours"] = "spread"
    sums: Literal["auto", "none", "sent"] = "auto"
    share: float = Field(19.0, gt=0, le=1e6)
    trust: float = Field(1.0, ge=0, le=1)
    mend: Literal["none", "at_home"] = "none"


class GcnStepSettings(SageStepSettings):
    """As :class:`SageStepSettings`, for FedGCN's network, which has one width, of the layer between its two.

    Shares of classes travel over links where predictions are made: the network itself has no part that reads
    a node without its neighbours.
    """

    network: Literal["gcn"] = "gcn"  # type: ignore[assignment]
    hidden: tuple[int] = (64,)
    inference: Literal["spread"] = "spread"


class GraphSgdSettings(SgdSettings):
    """As :class:`SgdSettings`, with more records in a step: there are fewer graphs."""

    rate: float = Field(0.2, gt=0, le=1)
