"""What owners of columns must have alike before their sums cancel."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from secure_fedgraph.graph.silos.aligned import aligned
from secure_fedgraph.protocol.history import History


def test_other_rows_another_order_or_other_training_rows_are_another_history() -> None:
    rows = ["a", "b", "c"]
    table = Data(x=torch.ones(3, 2), y=torch.tensor([0, 1, 0]), id=rows)
    train = torch.tensor([True, True, False])
    common = [
        aligned("owner", table, "id", order, True, 0).common(chosen)
        for order in (rows, rows[::-1])
        for chosen in (train, train.flip(0))
    ]
    heads = {History("run", common=one).head for one in ("", *common)}
    assert len(heads) == 5
    assert aligned("other", table, "id", rows, False, 1).common(train) == common[0]
