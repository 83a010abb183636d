"""Writes ``jax_privacy_values.json``: others' bounds, for ``audits/empirical_dp/epsilon.py``.

    python -m venv /tmp/jax && /tmp/jax/bin/pip install jax-privacy==2.0.0
    /tmp/jax/bin/python tests/audits/empirical_dp/jax_privacy_values.py

Values only: the tests read the file and need no jax. Scores are quantiles, so no generator has to agree.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORLDS = [
    # scores, mu, threshold, significance, delta
    (100, 1.0, 0.5, 0.05, 1e-5),
    (1000, 0.925, 2.0, 0.05, 1e-5),
    (1000, 3.0, 2.5, 0.01, 0.0),
    (10_000, 1.7, -1.0, 0.0001, 1e-3),
    (10_000, 9.0, 4.5, 0.05, 1e-5),
]


def main() -> None:
    import numpy as np
    from jax_privacy import auditing
    from scipy.special import ndtri

    worlds: list[dict[str, Any]] = []
    for scores, mu, threshold, significance, delta in WORLDS:
        quantiles = ndtri((np.arange(scores) + 0.5) / scores)
        found = auditing.CanaryScoreAuditor(quantiles + mu, quantiles).epsilon_clopper_pearson(
            significance, delta, one_sided=False, threshold_strategy=auditing.Explicit(threshold)
        )
        worlds.append({"given": (scores, mu, threshold, significance, delta), "two_worlds": float(found)})
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"jax_privacy": "2.0.0", "worlds": worlds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
