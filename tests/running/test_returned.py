"""What an algorithm of a user's own returns by mistake: the error names the method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput, WrongType
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import run_result

STATE, SCORES = "returns a dict from names.*returned ", "predict returns a "
MISTAKES: dict[str, tuple[str, object, type[Exception], str]] = {
    "a list": ("init", [1], WrongType, f"init {STATE}list"),
    "a key": ("init", {1: torch.zeros(2)}, WrongType, f"init {STATE}a dict with a key of type int"),
    "an array": ("init", {"w": np.zeros(2)}, WrongType, f"init {STATE}ndarray under 'w'"),
    "nested": ("init", {"w": {"v": torch.zeros(2)}}, WrongType, f"init {STATE}dict under 'w'"),
    "meta": (
        "init",
        {"w": torch.zeros(2, device="meta")},
        WrongType,
        f"init {STATE}a tensor without values under 'w'",
    ),
    "sparse": (
        "round",
        {"w": torch.eye(2).to_sparse()},
        WrongType,
        f"round {STATE}torch.sparse_coo of torch.float32",
    ),
    "nothing": ("round", None, WrongType, f"round {STATE}NoneType"),
    "no tensor": ("predict", np.zeros((60, 7)), WrongType, f"{SCORES}tensor of real scores, not ndarray"),
    "whole numbers": (
        "predict",
        torch.zeros(60, 7).long(),
        WrongType,
        f"{SCORES}tensor of real scores, not torch.int64",
    ),
    "classes": ("predict", torch.zeros(60), BadInput, SCORES + r"score for every.*shape \[60\]"),
    "a row less": ("predict", torch.zeros(59, 7), BadInput, SCORES + r"score for every.*shape \[59, 7\]"),
    "wide": ("predict", torch.zeros(60, 9), BadInput, SCORES + r"score for every.*shape \[60, 9\]"),
    "no owners": ("predictions", [1], WrongType, r"predictions returns a dict.*not \[1\]"),
    "nobody": ("predictions", {}, WrongType, r"predictions returns a dict.*not {}"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_by_its_method(mistake: str) -> None:
    method, returned, error, message = MISTAKES[mistake]
    own = type("Own", (sfg.FedAvg,), {method: lambda *_: returned, "name": "own"})
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=8)
    with pytest.raises(error, match=f"own: {message}"):
        sfg.train(own(), federation, "plaintext", rounds=1)


@pytest.mark.parametrize("method", ["notes", "findings"])
@pytest.mark.parametrize(
    ("returned", "what"),
    [(5, "int"), ({"a": object()}, "a dict that is no JSON"), ({"a": float("nan")}, "a dict")],
)
def test_what_a_result_keeps_is_json(method: str, returned: object, what: str) -> None:
    own = type("Own", (sfg.FedAvg,), {method: lambda *_: returned, "name": "own"})
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=8)
    run = sfg.train(own(), federation, "plaintext", rounds=1)
    with pytest.raises(WrongType, match=f"own: {method} returns a dict.*returned {what}.*resume the run"):
        run_result(run, Experiment(data="synthetic-citation"))
