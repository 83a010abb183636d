"""Settings of stages that read noised sums over links. None of them is chosen by data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from secure_fedgraph.algorithms.fedsgd.settings import SgdSettings


class ProGapSettings(SgdSettings):
    """As :class:`~secure_fedgraph.algorithms.fedsgd.settings.SgdSettings`, and the stages and their sums.

    Args:
        hops: how many stages read sums over links; before them is one that reads none.
        stage: rounds of each stage; the last has all that are left.
        neighbours: how many neighbours a node may have before it counts for less in each of its sums.
        crowd: how many neighbours with more than that a node has at most: a public bound, of every owner's
            graph.
        degree: how many neighbours a node has at most: a public bound too.
        sums_length: sums are read as of this length, each hop's.
    """

    network: Literal["mlp"] = "mlp"
    hops: int = Field(1, ge=1, le=8)
    stage: int = Field(100, ge=1)
    neighbours: int = Field(32, ge=1, le=4096)
    crowd: int = Field(32, ge=0, le=2**20)
    degree: int = Field(512, ge=1, le=2**16)
    sums_length: float = Field(3.0, gt=0, le=1000)
