"""Cuts Cora into the files of three silos, by Louvain; the third has no label of two classes.

    python examples/three_silos.py silos/        # silo-1/nodes.parquet, silo-1/edges.parquet, ...
    python examples/three_silos.py tables/ --columns    # the same nodes, each silo with a third of the words

Each folder is what ``--data`` of ``secure-fedgraph silo`` takes; see docs/silos_on_machines.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.graph.data.datasets import load

SILOS, ABSENT = 3, (5, 6)
"""How many silos, and the classes of which the last has no label."""


def write(folder: Path, graph: Data, ids: torch.Tensor, columns: range, labels: bool = True) -> None:
    """Writes one silo's two tables."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = pd.DataFrame(
        graph.x[:, columns.start : columns.stop].numpy(), columns=[f"word {n}" for n in columns]
    )
    nodes.insert(0, "id", ids.numpy())
    if labels:
        nodes["label"] = pd.array([int(one) if one >= 0 else None for one in graph.y], dtype="Int64")
    nodes.to_parquet(folder / "nodes.parquet", index=False)
    ends = ids[graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]]
    pd.DataFrame({"source": ends[0].numpy(), "target": ends[1].numpy()}).to_parquet(
        folder / "edges.parquet", index=False
    )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("--columns", action="store_true", help="columns of all nodes, in place of nodes")
    given = asked.parse_args()
    if given.columns:
        graph = load("cora").graph
        width = graph.x.shape[1] // SILOS
        for number in range(SILOS):
            own = range(number * width, graph.x.shape[1] if number == SILOS - 1 else (number + 1) * width)
            order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(number))
            place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
            part = Data(x=graph.x[order], y=graph.y[order], edge_index=place[graph.edge_index])
            write(given.folder / f"silo-{number + 1}", part, order, own, labels=number == 0)
    else:
        owners = sfg.federate("cora", clients=SILOS).owners
        for number, graph in enumerate(owners.values(), start=1):
            if number == SILOS:
                graph.y = torch.where(torch.isin(graph.y, torch.tensor(ABSENT)), -1, graph.y)
            write(
                given.folder / f"silo-{number}", graph, torch.arange(graph.num_nodes), range(graph.x.shape[1])
            )
    print(f"{given.folder}: {SILOS} silos")


if __name__ == "__main__":
    main()
