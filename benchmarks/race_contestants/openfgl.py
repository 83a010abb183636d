"""OpenFGL from a checkout: its own trainer, unchanged, on Cora in three parts by its own Louvain.

    python openfgl.py --path CHECKOUT --data FOLDER --rounds 20 [--algorithm fedavg|fedsage_plus]
                      [--steps gaussian]

Three packages that it imports and does not need for this are stood in for where they are not installed:
``pymetis``, ``dgl`` and ``munkres``. It reads its own files by ``torch.load`` as it was written for, with
``weights_only=False``. The data folder is OpenFGL's root, with ``global/subgraph_fl/Cora/raw``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import types
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import torch


class StandIn(types.ModuleType):
    """A module whose every name fails once it is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: Any, **__: Any) -> None:
            raise RuntimeError(f"{self.__name__}.{name} was called, and {self.__name__} is not installed")

        return missing


def main() -> None:
    """Reads the options, trains, prints one JSON object."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--path", required=True)
    asked.add_argument("--data", required=True)
    asked.add_argument("--rounds", type=int, required=True)
    asked.add_argument("--algorithm", choices=("fedavg", "fedsage_plus"), default="fedavg")
    asked.add_argument("--steps", choices=("no_dp", "gaussian", "laplace"), default="no_dp")
    given = asked.parse_args()
    torch.set_num_threads(1)
    for name in ("pymetis", "dgl", "munkres"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = StandIn(name)
    torch.load = partial(torch.load, weights_only=False)
    sys.path.insert(0, given.path)
    sys.argv = sys.argv[:1]  # OpenFGL reads the command line as it is imported
    with redirect_stdout(sys.stderr):
        from openfgl import config
        from openfgl.flcore.trainer import FGLTrainer
        from openfgl.utils.basic_utils import seed_everything

        args = config.args
        args.root, args.dataset, args.model, args.metrics = given.data, ["Cora"], ["graphsage"], ["accuracy"]
        args.simulation_mode, args.num_clients, args.num_rounds = "subgraph_fl_louvain", 3, given.rounds
        args.fl_algorithm, args.num_epochs, args.use_cuda = given.algorithm, 1, False
        args.train_val_test, args.dp_mech = "0.6-0.2-0.2", given.steps
        args.dp_eps, args.dp_delta = 8.0, 1e-5
        seed_everything(0)
        trainer = FGLTrainer(args)
        trainer.train()
    sent = 4 * sum(p.numel() for p in trainer.server.task.model.parameters())
    print(json.dumps({"accuracy": trainer.evaluation_result["best_test_accuracy"], "bytes": sent}))


if __name__ == "__main__":
    main()
