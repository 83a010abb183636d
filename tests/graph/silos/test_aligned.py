"""What owners of columns must have alike before their sums cancel."""

from __future__ import annotations

import numpy as np

from secure_fedgraph.core.carriers.history import History
from secure_fedgraph.graph.silos.aligned import digest_of_training_rows


def test_other_training_rows_are_another_history() -> None:
    some, others = np.array([1, 1, 0], dtype=np.uint8), np.array([0, 1, 1], dtype=np.uint8)
    heads = {
        History("run", common=one).head
        for one in ("", digest_of_training_rows(some), digest_of_training_rows(others))
    }
    assert len(heads) == 3
    assert digest_of_training_rows(some.astype(bool)) == digest_of_training_rows(some)
