"""FairGraphFL on generated graphs: what agents of three qualities are worth and paid, and what is read.

Offline, some seconds. The graphs are rings, half of them with a chord; a third of the agents has half of its
links rewired. The second run computes the same values on ciphertexts.
"""

from __future__ import annotations

import warnings

import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.graph.kinds import GraphSetDataset


def graphs(count: int, seed: int) -> GraphSetDataset:
    """Rings of six to nine nodes with three labels; every second one has a chord that makes a triangle."""
    generator, found = torch.Generator().manual_seed(seed), []
    for number in range(count):
        nodes = int(torch.randint(6, 10, (), generator=generator))
        ring = torch.arange(nodes)
        once = torch.stack([ring, (ring + 1) % nodes])
        if number % 2:
            once = torch.cat([once, torch.tensor([[0], [2]])], dim=1)
        x = torch.eye(3)[torch.randint(3, (nodes,), generator=generator)]
        both = torch.cat([once, once.flip(0)], dim=1)
        found.append(Data(x=x, edge_index=both, y=torch.tensor([number % 2])))
    return GraphSetDataset("rings", found, "generated", "", features=3, classes=2)


def main() -> None:
    """Two runs of the same rounds."""
    warnings.simplefilter("ignore")  # in which form it runs where updates and lists are encrypted
    federation = sfg.federate(
        graphs(240, seed=0), clients=6, partition="random", seed=0, split={"perturbed": True}
    )
    quality = federation.facts["partition"]["quality"]
    for valuation, policy in (("plain", sfg.policies.plaintext()), ("encrypted", sfg.policies.strictest())):
        algorithm = sfg.algorithms.FairGraphFL(valuation=valuation, hidden=16, learning_rate=0.01)
        run = sfg.train(algorithm, federation, policy, rounds=3, seed=0, keep=lambda channel, round: True)
        notes = run.algorithm.notes(run.state)
        for agent in federation.names:
            value, paid = notes["values"][agent], notes["payoffs"][agent]
            print(f"{valuation:10} {agent} {quality[agent]:6}  value {value:.4f}  payoff {paid:.4f}")
        channel = "update" if valuation == "plain" else "valued_update"
        read = {seen.clients[0] for seen in run.transcript.view("server").uploads(channel)}
        print(f"{valuation:10} payoffs add up to {sum(notes['payoffs'].values()):.6f}; ", end="")
        print(f"the server reads the updates of {len(read)} of {len(federation.names)} agents")


if __name__ == "__main__":
    main()
