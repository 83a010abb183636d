"""What an algorithm of a user's own returns by mistake: the error names the method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput, WrongType

STATE, SCORES = "returns a dict from names.*returned ", "predict returns a "
MISTAKES: dict[str, tuple[str, object, type[Exception], str]] = {
    "sparse": ("round", {"w": torch.eye(2).to_sparse()}, WrongType, f"round {STATE}Tensor under 'w'"),
    "nothing": ("round", None, WrongType, f"round {STATE}NoneType under"),
    "no tensor": ("predict", np.zeros((60, 7)), WrongType, f"{SCORES}tensor of real.*, not ndarray"),
    "whole": ("predict", torch.zeros(60, 7).long(), WrongType, f"{SCORES}tensor of real.*, not torch.int64"),
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
