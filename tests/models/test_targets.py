"""Slopes: an item's are the same bits whichever other items there are."""

from __future__ import annotations

import pytest
import torch

from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.targets import slopes


@pytest.mark.parametrize("task", [Task.LABELS, Task.CLASSES])
def test_an_items_slopes_do_not_depend_on_others(task: Task) -> None:
    schema = Schema(features=2, classes=3, task=task)
    scores = torch.randn(20000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(len(scores), 3) if task == Task.LABELS else torch.zeros(len(scores), dtype=torch.long)
    whole = slopes(scores, y, schema)
    alone = [slopes(scores[i : i + 1], y[i : i + 1], schema) for i in range(2000)]
    assert torch.equal(torch.cat(alone), whole[:2000])
    for some in (5, 7, 1001, 19999):
        assert torch.equal(slopes(scores[:some], y[:some], schema), whole[:some])
