"""FedGCN's sums, GraphFL's meta-gradients and D-FedGNN's ring: what the server reads, and what an owner does.

Generated data, offline, a few seconds.
"""

from __future__ import annotations

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Blind, Knowledge, NeighbourSums


def main() -> None:
    """Three algorithms under masks; then a look into a neighbour's sums."""
    federation = sfg.federate("synthetic-citation", clients=3, partition="random", nodes=120, features=30)
    for algorithm, channel in (
        (sfg.FedGcn(hops=1), "neighbour_sums"),
        (sfg.GraphFL(support=6, query=6, meta_rounds=3), "meta_gradient"),
        (sfg.DFedGnn(), "model"),
    ):
        run = sfg.train(algorithm, federation, "masked", rounds=3, keep=lambda channel, round: True)
        server, owner = run.transcript.view("server"), run.transcript.view("owner-0")
        single, sums = len(server.uploads(channel)), len(server.sums(channel))
        read = f"{single} single uploads and {sums} sums of {channel!r}"
        print(f"{algorithm.name}: accuracy {run.accuracy['global']:.2f}; the server reads {read}")
        if isinstance(algorithm, sfg.FedGcn):
            rows = NeighbourSums().residual(owner, Knowledge()).values
            print(f"  owner-0 reads {sum(map(len, rows.values()))} nodes of others from sums of one term")
            try:
                NeighbourSums().residual(server, Knowledge())
            except Blind as reason:
                print(f"  the server is blind: {reason}")


if __name__ == "__main__":
    main()
