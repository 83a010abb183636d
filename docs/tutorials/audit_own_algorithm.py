# %% [markdown]
# # Audit an algorithm of your own
#
# You write an algorithm, and you want to know what it leaks. This tutorial writes one, attacks it, and
# sets both beside each other under two policies.
#
# ## The algorithm
#
# It classifies a node by the nearest class mean. Each client sends two things for every class: the sum of
# its training nodes' features, and how many there are. The server needs only the totals, so the channel
# declares `Reveal.SUM`. Nothing in the class is about privacy: the policy is chosen later.

# %%
import numpy as np
import torch

import secure_fedgraph as sfg
from secure_fedgraph.attacks import Attack, Blind, Guess, Knowledge


class ClassMeans(sfg.Algorithm):
    """Nearest class means, in one round."""

    name = "tutorial-class-means"
    STATISTICS = sfg.Channel("statistics", sfg.Reveal.SUM)

    def init(self, schema, seed):
        return {"means": torch.zeros(schema.classes, schema.features)}

    def round(self, round, state):  # the server's half
        total = round.reduce(self.STATISTICS).total
        return {"means": (total["features"] / total["nodes"].clamp(min=1e-3).unsqueeze(1)).float()}

    @STATISTICS.answer
    def statistics(self, client, given):  # the client's half; masks carry values up to 8, hence the 64
        graph = client.graph
        member = torch.nn.functional.one_hot(graph.y[graph.train_mask], client.schema.classes).float()
        features = member.T @ graph.x[graph.train_mask]
        return sfg.Upload({"features": features / 64, "nodes": member.sum(0) / 64})

    def predict(self, params, graph, schema):
        return -torch.cdist(graph.x, params["means"])


# %% [markdown]
# ## The attack
#
# It reads the numbers of training nodes by class, owner by owner. An attack gets a *view* and nothing
# else. It has two halves: `run` reads single uploads, and `residual` reads what is left where these are
# hidden.


# %%
class LabelCounts(Attack):
    """How many training nodes of each class an owner has."""

    id = "tutorial-label-counts"
    family = "statistics"
    summary = "numbers of training nodes by class"
    channel = "statistics"

    def run(self, view: sfg.View, knowledge: Knowledge) -> Guess:
        uploads = self.single_uploads(view)  # raises Blind where there is none to read
        counts = {one.clients[0]: np.round(64 * one.values["nodes"]) for one in uploads}
        return Guess("label counts", counts, {owner: (owner,) for owner in counts}, len(uploads))

    def residual(self, view: sfg.View, knowledge: Knowledge) -> Guess:
        (opened,) = self.opened_sums(view)
        return Guess(
            "label counts", {"all": np.round(64 * opened.values["nodes"])}, {"all": opened.clients}, 1
        )


# %% [markdown]
# ## The audit
#
# The judge stands outside: only it sees the owners' graphs. A blind attack is not a failed one. It means
# that nothing in the view could be read, and the reason is printed.

# %%
federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=240, features=24)


def truth(owners: tuple[str, ...]) -> np.ndarray:
    """The true counts of some owners together."""
    graphs = [federation.owners[owner] for owner in owners]
    return sum(np.bincount(one.y[one.train_mask], minlength=federation.schema.classes) for one in graphs)


for policy in ("plaintext", "masked"):
    done = sfg.train(ClassMeans(), federation, policy, rounds=1, keep=lambda channel, round: True)
    view = done.transcript.view("server")
    print(f"{policy}: accuracy {done.accuracy['global']:.2f}")
    for half in (LabelCounts().run, LabelCounts().residual):
        try:
            guess = half(view, Knowledge())
        except Blind as reason:
            print(f"  {half.__name__}: blind, {reason}")
            continue
        right = [np.array_equal(values, truth(guess.targets[name])) for name, values in guess.values.items()]
        print(f"  {half.__name__}: {sum(right)} of {len(right)} exact")

# %% [markdown]
# ```text
# run: 3 of 3 exact
# residual: 1 of 1 exact
# run: blind, tutorial-label-counts: every upload of channel 'statistics' is masked under policy masked
# residual: 1 of 1 exact
# ```
#
# Under `plaintext` the server reads every owner's counts exactly. Under `masked` it reads none, and still
# reads the counts of all owners together: masks hide single uploads, not the sum. Only noise changes
# that.
#
# ## The same by command
#
# Save the algorithm as `my_algorithm.py`. Then this command tries it out (does it use its channels
# only?), trains it under each policy, and checks its messages:
#
#     secure-fedgraph audit --algorithm my_algorithm:ClassMeans --policy plaintext,masked --attack all
#
# To have your attack in the audit's table, give it a `judge` and an entry point: [add an
# attack](../recipes/add_an_attack.md).
