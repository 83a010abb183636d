"""FederatedScope from a checkout: its own runner, unchanged, on Cora in three parts by its own splitter.

    python federatedscope.py --path CHECKOUT --data FOLDER --rounds 20 [--algorithm fedavg|fedsage_plus]

Server and clients are objects of this process, as its standalone mode has them. Model, widths, Adam, its
rate, weight decay and dropout are those of OpenFGL in this race, and clients score after every round. A round
of ``fedsage_plus`` is one federated epoch of the generator, after one at home; then its classifier trains for
one round, however many epochs there were. The data folder has ``federatedscope/cora/raw``.

Three packages are stood in for where they are not installed:

- ``community``: networkx' Louvain, in whose communities its splitter divides Cora before the first round.
- ``pympler``: every message weighs nothing, so counting bytes costs nothing here.
- ``torch_sparse``: the sparse matrix that PyTorch Geometric draws neighbours from. Only that one round of the
  classifier draws any, and the short run has it as the long one has: it is no part of an epoch.

Three things are as in the versions that it was written for: a transform needs no ``forward``; protobuf reads
its generated code in Python (no message is packed by it here); and ``fedsage_plus`` has gradients set to zero
between steps, not dropped: it adds to those of layers that it froze, and would stop.

There is no row with 64 nodes a step. The loader of sampled neighbours never hears of the batch size: its
steps have one node each, and those of validation and test are among them. The loader of random walks starts
from as many nodes as the batch has, and trains on every training node that a walk meets.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import types
from contextlib import redirect_stdout
from functools import partialmethod
from pathlib import Path
from typing import Any

import networkx as nx
import torch
from torch import Tensor
from torch_geometric.loader import neighbor_sampler
from torch_geometric.transforms import BaseTransform

CLIENTS, GENERATED_FROM = 3, 128
"""Clients, and the width of the embeddings that FedSage+'s generator starts from: OpenFGL's."""


class Storage:
    """What of a sparse matrix the sampler asks its storage for."""

    def __init__(self, starts: Tensor, values: Tensor) -> None:
        self._starts, self._values = starts, values

    def rowptr(self) -> Tensor:
        """Where each row starts."""
        return self._starts

    def value(self) -> Tensor:
        """Values, row after row."""
        return self._values


class Sparse:
    """As much of ``torch_sparse.SparseTensor`` as sampling neighbours takes."""

    def __init__(self, row: Tensor, col: Tensor, value: Tensor, sparse_sizes: tuple[int, int]) -> None:
        order = row.argsort(stable=True)
        self._row, self._col, self._sizes = row[order], col[order], sparse_sizes
        self._count = torch.bincount(row, minlength=sparse_sizes[0])
        self.storage = Storage(torch.cat([row.new_zeros(1), self._count.cumsum(0)]), value[order])

    def t(self) -> Sparse:
        """Transposed."""
        return Sparse(self._col, self._row, self.storage.value(), self._sizes[::-1])

    def sparse_size(self, which: int) -> int:
        """How many rows, or columns."""
        return self._sizes[which]

    def sparse_sizes(self) -> tuple[int, int]:
        """How many rows and columns."""
        return self._sizes

    def coo(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and values."""
        return self._row, self._col, self.storage.value()

    def sample_adj(self, rows: Tensor, most: int, replace: bool) -> tuple[Sparse, Tensor]:
        """These rows with at most that many entries each, drawn without replacement; -1: with all.

        Columns are numbered anew, the rows' own nodes first; second is whose number is which.
        """
        if replace:
            raise NotImplementedError("drawing with replacement")
        count = self._count[rows]
        row = torch.arange(len(rows)).repeat_interleave(count)
        rank = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
        at = self.storage.rowptr()[rows][row] + rank
        if most >= 0:
            at = at[(row + torch.rand(len(row), dtype=torch.double)).argsort()]
            row, at = row[rank < most], at[rank < most]
        col = self._col[at]
        met = col.unique()
        nodes = torch.cat([rows, met[~torch.isin(met, rows)]])
        place = torch.empty(self._sizes[1], dtype=torch.long)
        place[nodes] = torch.arange(len(nodes))
        return Sparse(row, place[col], self.storage.value()[at], (len(rows), len(nodes))), nodes


def best_partition(graph: nx.Graph) -> dict[int, int]:
    """Node -> community, in the place of ``community.best_partition``."""
    found = nx.community.louvain_communities(graph, seed=0)
    return {node: number for number, nodes in enumerate(found) for node in nodes}


def stand_in() -> None:
    """Modules in the places of those that are not installed."""
    if importlib.util.find_spec("community") is None:
        sys.modules["community"] = community = types.ModuleType("community")
        vars(community)["best_partition"] = best_partition
    if importlib.util.find_spec("pympler") is None:
        sys.modules["pympler"] = pympler = types.ModuleType("pympler")
        vars(pympler)["asizeof"] = types.SimpleNamespace(asizeof=lambda _: 0)
    if importlib.util.find_spec("torch_sparse") is None:
        vars(neighbor_sampler)["SparseTensor"] = Sparse


def as_it_was_written_for(algorithm: str) -> None:
    """Later versions' ways put back."""
    os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"
    BaseTransform.__abstractmethods__ = frozenset()
    if algorithm == "fedsage_plus":
        optimizer: Any = torch.optim.Optimizer
        optimizer.zero_grad = partialmethod(optimizer.zero_grad, set_to_none=False)


def settings_of(given: argparse.Namespace, out: str) -> dict[str, Any]:
    """Names of its settings -> values."""
    epochs = given.rounds if given.algorithm == "fedsage_plus" else 0
    return {
        "outdir": out,
        "use_gpu": False,
        "seed": 0,
        "data.root": str(Path(given.data) / "federatedscope"),
        "data.type": "cora",
        "data.splitter": "louvain",
        "dataloader.type": "pyg",
        "dataloader.batch_size": 1,  # one graph: all of its nodes
        "federate.mode": "standalone",
        "federate.client_num": CLIENTS,
        "federate.method": "fedsageplus" if epochs else "FedAvg",
        # Two states are an epoch. Its server stops at this number plus twice that of those states.
        "federate.total_round_num": 2 - 2 * epochs if epochs else given.rounds,
        "fedsageplus.fedgen_epoch": 2 * epochs,
        "fedsageplus.loc_epoch": 1,
        "fedsageplus.gen_hidden": GENERATED_FROM,
        "train.batch_or_epoch": "epoch",
        "train.local_update_steps": 1,
        "train.optimizer.type": "Adam",
        "train.optimizer.lr": 0.01,
        "model.task": "node",
        "model.type": "sage",
        "model.layer": 2,
        "model.hidden": 64,
        "model.dropout": 0.5,
        "model.out_channels": 7,
        "criterion.type": "CrossEntropyLoss",
        "trainer.type": "nodefullbatch_trainer",
        "eval.freq": 1,
        "eval.metrics": ["acc"],
        "eval.count_flops": False,
        "early_stop.patience": 0,  # never
    }


def sent(client: Any, epochs: bool) -> int:
    """Bytes that one client sends up in a round.

    Of an epoch: its generator, an embedding and a count a node, and gradients for each of the others.
    """
    weights = sum(int(p.numel()) for p in (client.fedgen if epochs else client.model).parameters())
    nodes = int(client.hide_data["data"].num_nodes) if epochs else 0
    return 4 * ((CLIENTS if epochs else 1) * weights + nodes * (GENERATED_FROM + 1))


def main() -> None:
    """Reads the options, trains, prints one JSON object."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--path", required=True)
    asked.add_argument("--data", required=True)
    asked.add_argument("--rounds", type=int, required=True)
    asked.add_argument("--algorithm", choices=("fedavg", "fedsage_plus"), default="fedavg")
    given = asked.parse_args()
    torch.set_num_threads(1)
    stand_in()
    as_it_was_written_for(given.algorithm)
    sys.path.insert(0, given.path)
    with redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as out:
        from federatedscope.core.auxiliaries.data_builder import get_data
        from federatedscope.core.auxiliaries.logging import update_logger
        from federatedscope.core.auxiliaries.runner_builder import get_runner
        from federatedscope.core.auxiliaries.utils import setup_seed
        from federatedscope.core.auxiliaries.worker_builder import get_client_cls, get_server_cls
        from federatedscope.core.configs.config import global_cfg

        settings = global_cfg.clone()
        settings.merge_from_list([one for pair in settings_of(given, out).items() for one in pair])
        settings.train.optimizer.weight_decay = 5e-4
        update_logger(settings, clear_before_add=True)
        setup_seed(settings.seed)
        data, changed = get_data(config=settings.clone())
        settings.merge_from_other_cfg(changed)
        settings.freeze()
        classes = get_server_cls(settings), get_client_cls(settings)
        runner = get_runner(*classes, settings.clone(), data=data)
        best = runner.run()["client_summarized_weighted_avg"]
    each = [sent(client, given.algorithm == "fedsage_plus") for client in runner.client.values()]
    print(json.dumps({"accuracy": best["test_acc"], "bytes": sum(each) / CLIENTS}))


if __name__ == "__main__":
    main()
