"""Settings of steps under shared noise. None of them is chosen by data."""

from __future__ import annotations

from pydantic import Field

from secure_fedgraph.algorithm import Settings


class SgdSettings(Settings):
    """The network, what a step takes, and inference.

    Args:
        hidden: units of the hidden layer.
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


class GraphSgdSettings(SgdSettings):
    """As :class:`SgdSettings`, with more of the graphs in a step: there are fewer of them than nodes."""

    rate: float = Field(0.2, gt=0, le=1)
