"""A new attack: the most frequent class among an owner's training labels, from the last bias of its update.

It reads a view and nothing else, says what it was granted, returns a guess and no metric, and raises `Blind`
where nothing can be read. The judge at the bottom stands outside: only it sees the owners' graphs.
"""

from __future__ import annotations

import numpy as np

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Attack, Guess, Knowledge


class MajorityClass(Attack):
    """Training raises the score of a class the more often it occurs: the largest step names it."""

    id = "own-majority-class"
    family = "weights"
    summary = "an owner's most frequent training label, from the step of the last bias"
    channel = "update"

    def run(self, view: sfg.View, knowledge: Knowledge) -> Guess:
        """For each owner the steps of the last bias, all rounds together."""
        uploads = self.single_uploads(view)  # raises Blind, in the view's own words
        steps: dict[str, np.ndarray] = {}
        for seen in uploads:
            steps[seen.clients[0]] = steps.get(seen.clients[0], 0) + seen.values["head.bias"]
        return Guess("majority class", steps, {owner: (owner,) for owner in steps}, len(uploads))

    def residual(self, view: sfg.View, knowledge: Knowledge) -> Guess:
        """The same of all owners together, from the sums that the server opened."""
        sums = self.opened_sums(view)
        step = np.sum([seen.values["head.bias"] for seen in sums], axis=0)
        return Guess("majority class", {"all": step}, {"all": sums[0].clients}, len(sums))


def judge(guess: Guess, federation: sfg.Federation) -> str:
    """Which owners' most frequent label was named."""
    labels = {name: graph.y[graph.train_mask] for name, graph in federation.owners.items()}
    hits = {name: int(v.argmax()) == int(labels[name].mode().values) for name, v in guess.values.items()}
    return f"right for {sum(hits.values())} of {len(hits)} owners"


if __name__ == "__main__":
    federation = sfg.federate("synthetic-citation", clients=5, seed=0, nodes=400, features=60)
    for policy in (sfg.policies.plaintext(), sfg.policies.masked()):
        run = sfg.train(sfg.FedSage(), federation, policy, rounds=2, keep=lambda channel, round: True)
        view = run.transcript.view("server")
        try:
            print(f"{policy.name:10} {judge(MajorityClass().run(view, Knowledge()), federation)}")
        except sfg.errors.SecureFedGraphError as reason:  # attacks.Blind is one
            print(f"{policy.name:10} blind: {reason}")
