"""FedGraph from an unpacked wheel: its own FedGCN under CKKS, unchanged, on Cora in three random parts.

    python fedgraph.py --path FOLDER --data FOLDER --rounds 1

A round is all of ``run_NC``: the encrypted sums of neighbours, one round of training with encrypted weights,
and the test. Ray is stood in for by calls in this process, so its start, its workers and its copies cost
nothing here; packages that FedGraph imports and does not need for this are stood in for where they are not
installed. The key in its wheel, which everybody has, cannot be read by today's TenSEAL; in its place is a new
one with the parameters that the wheel's has: 8192, (60, 40, 40, 60), a scale of 2^40.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import types
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any, ClassVar

import tenseal
import torch
from torch_geometric.datasets import Planetoid

CLIENTS = 3
NOT_NEEDED = {
    "attridict": (),
    "dtaidistance": (),
    "gdown": (),
    "huggingface_hub": (),
    "ogb": ("nodeproppred",),
    "omegaconf": (),
    "torch_sparse": (),
    "torchmetrics": ("functional", "functional.retrieval", "retrieval"),
}
"""Packages that FedGraph imports, and which modules of them."""


class StandIn(types.ModuleType):
    """A module in whose place nothing is installed: names are there, and do nothing."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_, **__: None, "set": lambda *_: None})


class Remote:
    """What ``ray.remote`` makes of a function, a class or an object: ``remote`` calls it at once."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def remote(self, *given: Any, **named: Any) -> Any:
        made = self._inner(*given, **named)
        return Remote(made) if isinstance(self._inner, type) else made

    def __getattr__(self, name: str) -> Remote:
        return Remote(getattr(self._inner, name))


class Settings(dict[str, Any]):
    """Settings by key or by attribute."""

    __getattr__ = dict.__getitem__


def ray_in_this_process() -> types.ModuleType:
    """The calls of Ray that FedGraph uses."""
    ray = StandIn("ray")
    wrapped: Callable[..., Any] = lambda *given, **_: Remote(given[0]) if given else Remote  # noqa: E731
    ray.remote = wrapped
    ray.init = ray.shutdown = lambda *_, **__: None
    ray.get = lambda done: done
    ray.wait = lambda done, **_: (done[:1], done[1:])
    return ray


def main() -> None:
    """Reads the options, trains, prints one JSON object."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--path", required=True)
    asked.add_argument("--data", required=True)
    asked.add_argument("--rounds", type=int, required=True)
    given = asked.parse_args()
    torch.set_num_threads(1)
    sys.modules["ray"] = ray_in_this_process()
    for name in ("ray.util", "ray.util.metrics"):
        sys.modules[name] = StandIn(name)
    for package, below in NOT_NEEDED.items():
        if importlib.util.find_spec(package) is None:
            for name in (package, *(f"{package}.{one}" for one in below)):
                sys.modules[name] = StandIn(name)
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
    context.global_scale = 2.0**40
    tenseal.context_from = lambda _: context
    sys.path.insert(0, given.path)
    from fedgraph.federated_methods import run_NC
    from fedgraph.utils_nc import get_in_comm_indexes

    data = Planetoid(given.data, "Cora")[0]
    torch.manual_seed(0)
    parts = [part.sort().values for part in torch.randperm(data.num_nodes).chunk(CLIENTS)]
    train, test = (mask.nonzero().flatten() for mask in (data.train_mask, data.test_mask))
    near, own_train, own_test, edges = get_in_comm_indexes(data.edge_index, parts, CLIENTS, 1, train, test)
    classes = int(data.y.max()) + 1
    tables = (
        data.edge_index, data.x, data.y, train, test, classes, parts, near, own_train, own_test, edges
    )  # fmt: skip
    settings = Settings(
        dataset="cora", method="FedGCN", use_encryption=True, num_hops=1, n_trainer=CLIENTS, global_rounds=1,
        local_step=1, learning_rate=0.1, num_layers=2, batch_size=-1, gpu=False, use_cluster=False,
        use_huggingface=False, saveto_huggingface=False, num_cpus_per_trainer=1, num_gpus_per_trainer=0,
        iid_beta=10000.0, distribution_type="average", logdir="",
    )  # fmt: skip
    said = StringIO()
    with redirect_stdout(said):
        for _ in range(given.rounds):
            run_NC(settings, tables)
    accuracy = float(re.findall(r"Average test accuracy, ([\d.]+)", said.getvalue())[-1])
    megabytes = sum(
        float(one) for one in re.findall(r"(?:Pre-t|T)raining Upload: ([\d.]+) MB", said.getvalue())
    )
    print(json.dumps({"accuracy": accuracy, "bytes": megabytes * 2**20 / CLIENTS / given.rounds}))


if __name__ == "__main__":
    main()
