"""Sums over buckets of owners, and what the buckets have in common: one liar moves one bucket.

Under masks nobody sees a single update, so no single update can be judged. The mean of a bucket can.

References:
    Karimireddy, He and Jaggi, Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing, ICLR 2022.
    There buckets are drawn anew in every step. Here they are fixed: a server that saw the sums of other
    buckets of the same owners could subtract them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from secure_fedgraph.algorithms.training.weighting import AveragingSettings
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.models.parameters import Parameters

FEWEST = 3
"""Owners of a bucket, and buckets: a sum of two shows each the other's, and of two means none is outvoted."""

FAR = 2.0


class BucketedSettings(AveragingSettings):
    """How a client trains, how much its update weighs, and with whom it is summed.

    Args:
        bucket: owners are summed in fixed buckets of at least so many, and the model moves by what the
            buckets' means have in common: an owner that lies moves its own bucket alone. 0: one sum of all.
        combine: the mean of the buckets that are ``inliers``, or the ``median`` of all at each coordinate.
    """

    bucket: int = Field(0, ge=0)
    combine: Literal["inliers", "median"] = "inliers"

    @model_validator(mode="after")
    def _check_bucket(self) -> BucketedSettings:
        said = ""
        if 0 < self.bucket < FEWEST:
            said = (
                f"training.bucket = {self.bucket}: the sum of fewer than three owners tells one of them the "
                "other's update; set 3 or more"
            )
        elif self.bucket and self.clip == "adaptive":
            said = "training.clip = adaptive counts all owners in one sum: with buckets set clip=policy"
        elif not self.bucket and self.combine != "inliers":
            said = f"training.combine = {self.combine} combines buckets: set training.bucket=3 or more"
        if said:
            raise PydanticCustomError("bucket", said)
        return self


def buckets(clients: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Owners in the order of their names, so many a bucket; who is left over goes to the last.

    Raises:
        BadInput: where they make fewer than three buckets.

    >>> buckets(["d", "b", "c", "a", "e", "f", "g", "h", "i", "j"], 3)
    [('a', 'b', 'c'), ('d', 'e', 'f'), ('g', 'h', 'i', 'j')]
    """
    names, count = sorted(clients), len(clients) // size
    if count < FEWEST:
        raise BadInput(
            f"training.bucket = {size} makes {count} of {len(names)} owners, and it takes {FEWEST} to "
            f"outvote one: from {FEWEST * FEWEST} owners on set a third of them or less; else 0"
        )
    whole = [tuple(names[i * size : (i + 1) * size]) for i in range(count - 1)]
    return [*whole, tuple(names[(count - 1) * size :])]


def median(means: Sequence[Parameters]) -> Parameters:
    """The median of buckets' means at each coordinate; of an even number, between the two in the middle.

    >>> median([{"w": torch.tensor([value])} for value in (1.0, 2.0, -50.0)])["w"]
    tensor([1.])
    """
    found, before = {}, (len(means) - 1) // 2
    for name in means[0]:
        ordered = torch.stack([one[name] for one in means]).sort(dim=0).values
        found[name] = ordered[before : len(means) - before].mean(dim=0)
    return found


def inliers(means: Sequence[Parameters]) -> Parameters:
    """The mean of the buckets without outliers.

    A bucket is an outlier if it is :data:`FAR` times as far from its nearest others as buckets usually are. A
    third of the buckets at most is left out; Multi-Krum always leaves out so many.

    References:
        Blanchard et al., Machine Learning with Adversaries, NeurIPS 2017.

    >>> values = [(1.0, 3.0, -50.0), (1.0, 3.0, 4.5)]
    >>> [float(inliers([{"w": torch.tensor([v])} for v in one])["w"]) for one in values]
    [2.0, 2.8333332538604736]
    """
    rows = torch.stack([torch.cat([one[name].flatten().double() for name in means[0]]) for one in means])
    sure = len(means) - max(1, len(means) // 3)
    away = torch.cdist(rows, rows).sort(dim=1).values[:, 1:sure].sum(dim=1)
    order = away.argsort(stable=True).tolist()
    usual = float(away.median())
    chosen = order[:sure] + [i for i in order[sure:] if float(away[i]) <= FAR * usual]
    return {name: torch.stack([means[i][name] for i in chosen]).mean(dim=0) for name in means[0]}


COMBINED = {"inliers": inliers, "median": median}
