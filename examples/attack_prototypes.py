"""E2 on FairGraphFL: single graphs' embeddings from prototypes of motifs; `support` does not end it.

An informed adversary knows which graph holds which motif. Every prototype is a linear equation in the graphs'
embeddings, and some graphs follow from several of them. Generated graphs, offline.
"""

from __future__ import annotations

import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import FairGraphFL
from secure_fedgraph.attacks import SubsetAlgebra
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES, knowledge
from secure_fedgraph.graph.kinds import GraphSetDataset


def graphs(count: int, seed: int) -> GraphSetDataset:
    """Rings of four to nine nodes with three labels; every second one has a chord that makes a triangle."""
    generator, found = torch.Generator().manual_seed(seed), []
    for number in range(count):
        nodes = int(torch.randint(4, 10, (), generator=generator))
        ring = torch.arange(nodes)
        once = torch.stack([ring, (ring + 1) % nodes])
        if number % 2:
            once = torch.cat([once, torch.tensor([[0], [2]])], dim=1)
        x = torch.eye(3)[torch.randint(3, (nodes,), generator=generator)]
        both = torch.cat([once, once.flip(0)], dim=1)
        found.append(Data(x=x, edge_index=both, y=torch.tensor([number % 2])))
    return GraphSetDataset("rings", found, "generated", "", features=3, classes=2)


def main() -> None:
    """One round with every motif, and one where motifs of fewer than two graphs stay at home."""
    federation = sfg.federate(graphs(60, seed=0), clients=3, partition="random", seed=0)
    for support in (1, 2):
        algorithm = FairGraphFL(
            hidden=8, layers=2, prototypes="each", rings=6, motif_keep=1.0, support=support
        )
        run = sfg.train(algorithm, federation, sfg.policies.plaintext(), rounds=1, keep=lambda *_: True)
        finished, attack = FinishedRun.of(run, 0), SubsetAlgebra()
        guess = attack.run(run.transcript.view("server"), knowledge(attack, finished))
        score = JUDGES[guess.about](guess, finished).score
        read, right = int(score.details["solved"]), int(score.details["right"])
        print(f"support={support}: {read} of {int(score.details['graphs'])} graphs solved, {right} right")


if __name__ == "__main__":
    main()
