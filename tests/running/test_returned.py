"""What an algorithm of a user's own returns by mistake: the error names the method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg

MISTAKES: dict[str, tuple[str, Any, type[Exception], str]] = {
    "init": ("init", lambda *_: [1], TypeError, "init returns the server's state.*returned list"),
    "a key": ("init", lambda *_: {1: torch.zeros(2)}, TypeError, "init .*dict with keys other than str"),
    "round": ("round", lambda *_: None, TypeError, "round returns the server's state.*returned NoneType"),
    "no tensor": (
        "predict",
        lambda *_: np.zeros((60, 3)),
        TypeError,
        "predict returns a tensor.*not ndarray",
    ),
    "too short": (
        "predict",
        lambda *_: torch.zeros(3),
        ValueError,
        r"predict returns a row of scores for every.*shape \(3,\)",
    ),
    "a number": ("predict", lambda *_: torch.tensor(1.0), ValueError, r".*returned the shape \(\)"),
    "a list": ("predictions", lambda *_: [1], TypeError, r"predictions returns a dict.*not \[1\]"),
    "nobody": ("predictions", lambda *_: {}, TypeError, r"predictions returns a dict.*not {}"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_by_its_method(mistake: str) -> None:
    method, replacement, error, message = MISTAKES[mistake]
    own = type("Own", (sfg.FedAvg,), {method: replacement, "name": "own"})
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=8)
    with pytest.raises(error, match=f"own: {message}"):
        sfg.train(own(), federation, "plaintext", rounds=1)
