"""Settings of federated ridge regression. None of them is chosen by data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from secure_fedgraph.algorithm import Settings


class RidgeSettings(Settings):
    """What one exchange of moments, and inference, need.

    Args:
        second_moments: ``sent``, of training records or of ``all``; or whoever predicts takes those of its
            ``own`` records for everybody's. ``auto`` chooses by the noise, and without any sends them.
        target_norm: the length of a target beside a record's length of 1. Shorter ones leave less of the
            noise's budget to class sums and more to second moments. By default 0.5 for nodes and 1 for
            graphs, whose descriptors are few.
        map: ``fourier`` takes random Fourier features of a record, ``none`` the record itself; by default
            ``none`` for nodes, whose features are many, ``fourier`` for graphs, whose descriptors are few.
        map_width: how many Fourier features, an even number.
        map_scale: the inverse width of their kernel; records have length 1.
        records: about how many training nodes or graphs an owner has at most.
        class_weight: how much a record of each class counts, a public number a class; by default all alike.
        steps: how far the scores of nodes travel at inference, in links.
        restart: the share of a node's own scores that comes back at each step.
        sharpness: how sharp scores are before they spread.
    """

    second_moments: Literal["auto", "sent", "all", "own"] = "auto"
    target_norm: float | None = Field(None, gt=0, le=10)
    map: Literal["none", "fourier"] | None = None
    map_width: int = Field(256, ge=2, le=2**14, multiple_of=2)
    map_scale: float = Field(2.0, gt=0, le=1000)
    records: int = Field(2**13, ge=1, le=2**24)
    class_weight: tuple[float, ...] = ()
    steps: int = Field(10, ge=0, le=100)
    restart: float = Field(0.1, gt=0, le=1)
    sharpness: float = Field(5.0, gt=0, le=1000)
