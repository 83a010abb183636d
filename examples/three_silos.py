"""Cuts Cora into the files of three silos: `python examples/three_silos.py [FOLDER] [--columns]`.

Without a flag by Louvain, and the third has no label of two classes; with `--columns` each silo has a third
of the words of all nodes, in an order of its own. Each folder is what `--data` of `secure-fedgraph silo`
takes (docs/silos_on_machines.md).
"""

import sys
from pathlib import Path

import pandas as pd
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.graph.data.datasets import load

ABSENT = (5, 6)
"""The classes of which the third silo has no label."""


def write(folder: Path, graph: Data, ids: torch.Tensor, words: list[int], labels: bool = True) -> None:
    """Writes one silo's two tables."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = pd.DataFrame(graph.x[:, words].numpy(), columns=[f"word {number}" for number in words])
    nodes.insert(0, "id", ids.numpy())
    if labels:
        nodes["label"] = pd.array([int(one) if one >= 0 else None for one in graph.y], dtype="Int64")
    nodes.to_parquet(folder / "nodes.parquet", index=False)
    ends = ids[graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]]
    links = pd.DataFrame({"source": ends[0].numpy(), "target": ends[1].numpy()})
    links.to_parquet(folder / "edges.parquet", index=False)
    print(f"{folder}: {len(nodes)} nodes, {len(words)} features, {len(links)} links")


target = Path(next((word for word in sys.argv[1:] if not word.startswith("--")), "silos"))
if "--columns" in sys.argv:
    graph = load("cora").graph
    for number, words in enumerate(torch.arange(graph.x.shape[1]).chunk(3)):
        order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(number))
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        part = Data(x=graph.x[order], y=graph.y[order], edge_index=place[graph.edge_index])
        write(target / f"silo-{number + 1}", part, order, words.tolist(), labels=number == 0)
else:
    for number, graph in enumerate(sfg.federate("cora", clients=3).owners.values(), start=1):
        if number == 3:
            graph.y = torch.where(torch.isin(graph.y, torch.tensor(ABSENT)), -1, graph.y)
        every = list(range(graph.x.shape[1]))
        write(target / f"silo-{number}", graph, torch.arange(graph.num_nodes), every)
