"""Processor seconds of one exchange of ``fedridge``, all parties in one process, besides data and scores.

    python benchmarks/one_exchange.py [--policy masked] [--repeat 3] [--json]

One row a data set: the seconds of all owners' sums (of graphs' descriptors too), their protection, the
server's opening and solving (the smallest of the repetitions), and the megabytes that went up.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedridge.algorithm import FedRidge
from secure_fedgraph.algorithms.fedridge.graphs import GraphFedRidge

ROWS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "pubmed": (FedRidge, 3, {}),
    "cora": (FedRidge, 3, {}),
    "proteins": (GraphFedRidge, 10, {"partition": "random"}),
}


def seconds(data: str, policy: str, repeat: int) -> dict[str, Any]:
    """One row."""
    kind, clients, more = ROWS[data]
    federation = sfg.federate(data, clients=clients, seed=0, **more)
    taken, sent = [], 0
    for seed in range(repeat):
        started = time.process_time()
        run = sfg.train(kind(), federation, policy, rounds=1, seed=seed, evaluation="at_home")
        taken.append(time.process_time() - started)
        sent = sum(one.bytes for one in run.transcript.sent if one.recipient == "server")
    return {
        "data": data,
        "owners": clients,
        "features": federation.schema.features,
        "policy": policy,
        "cpu_s": round(min(taken), 2),
        "mb_up": round(sent / 1e6, 2),
    }


def main() -> None:
    """The command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="masked")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for data in ROWS:
        rows.append(seconds(data, asked.policy, asked.repeat))
        if not asked.json:
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if asked.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
