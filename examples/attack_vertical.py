"""Attacks on a split by columns: what lists, means and gradients tell about links, rows and labels.

One run in the open and one under masks with public index sets, attacked by the server and by an owner.
Generated data, offline.
"""

from __future__ import annotations

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Attack, Blind, GradientClusters, ListLinks, OthersRows
from secure_fedgraph.audits.finished_run import FinishedRun
from secure_fedgraph.audits.surfaces.registry import JUDGES, knowledge


def describe(finished: FinishedRun, attack: Attack, adversary: str, aim: str) -> str:
    """One line: what the attack reached beside the best trivial guess, or why it saw nothing."""
    try:
        view = finished.transcript.view(*finished.parties(adversary))
        guess = getattr(attack, aim)(view, knowledge(attack, finished))
    except Blind as reason:
        return f"blind: {str(reason).split(': ', 1)[1]}"
    score = JUDGES[guess.about](guess, finished).score
    return f"{score.metric} {score.value:.2f}, trivial {score.baseline:.2f}"


def main() -> None:
    """Trains twice and attacks."""
    federation = sfg.federate("synthetic-citation", clients=3, partition="vertical", nodes=150, features=60)
    lists = sfg.Glasu(layers=2, hidden=8, steps=32)
    public = sfg.Glasu(layers=2, hidden=8, steps=32, sampler="public", public_nodes=100)
    for policy, algorithm in ((sfg.policies.plaintext(), lists), (sfg.policies.masked(), public)):
        run = sfg.train(algorithm, federation, policy, rounds=2, keep=lambda channel, round: True)
        finished = FinishedRun.of(run, seed=0)
        print(f"{policy.name}, sampler={algorithm.settings.sampler}")
        print("  links from lists, server:      ", describe(finished, ListLinks(), "server", "run"))
        print("  labels from gradients, server: ", describe(finished, GradientClusters(), "server", "run"))
        print(
            "  labels from their sum, server: ", describe(finished, GradientClusters(), "server", "residual")
        )
        print("  one owner's rows, by an owner: ", describe(finished, OthersRows(), "client", "run"))
        print("  the others' mean, by an owner: ", describe(finished, OthersRows(), "client", "residual"))


if __name__ == "__main__":
    main()
