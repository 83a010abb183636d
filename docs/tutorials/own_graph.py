# %% [markdown]
# # Train on your own graph
#
# You have one PyG `Data`. You want to know what several owners of its parts would learn together, and
# what the server would see. This takes a minute, and nothing is downloaded.
#
# ## The graph
#
# The synthetic graph below stands for yours. It has your own split, and some nodes without a label (`y =
# -1`).

# %%
import torch

import secure_fedgraph as sfg
from secure_fedgraph.graph.data.synthetic import citation

data = citation(nodes=300, features=32, classes=3)
data.train_mask, data.val_mask, data.test_mask = (torch.arange(300) % 3 == part for part in range(3))
data.y[:10] = -1  # ten nodes have no label
for mask in (data.train_mask, data.val_mask, data.test_mask):
    mask[:10] = False

# %% [markdown]
# ## The owners
#
# `federate` divides the graph among made-up owners. `random` gives each owner random nodes; `louvain`
# gives whole communities. A link between two owners belongs to nobody, so no owner trains on it. Your
# masks stay as they are.

# %%
federation = sfg.federate(data, clients=3, partition="random", seed=0)
nodes = [graph.num_nodes for graph in federation.owners.values()]
print(len(nodes), "owners,", sum(nodes), "nodes")

# %% [markdown]
# ```text
# 3 owners, 300 nodes
# ```
#
# ## Train under masks
#
# Under `masked` each client adds masks to its update. The masks cancel in the sum, so the server reads
# the sum of three updates, and no single one. `keep` keeps all messages; we need them below.

# %%
settings = {"hidden": [16, 16], "fanout": [4, 4], "learning_rate": 0.02}
run = sfg.train(
    sfg.FedSage(**settings), federation, "masked", rounds=10, seed=0, keep=lambda channel, round: True
)
print(run.report())

# %% [markdown]
# ```text
# fedsage on your graph, 3 clients, under policy masked
# one client: epsilon inf at delta 1e-05, against the server (update: no noise protects this unit)
# channel update: the server learns sum, masked
# ```
#
# Masks are not differential privacy: they hide single updates, and nothing bounds what the sum reveals.
# So epsilon is `inf`. The [budget tutorial](budget.py) adds noise.
#
# ## What the server saw
#
# A *view* is everything that one party could read. It is also all that an attack gets.

# %%
view = run.transcript.view("server")
print(len(view.uploads("update")), "single updates,", len(view.sums("update")), "sums")

# %% [markdown]
# ```text
# 0 single updates, 10 sums
# ```
#
# ## Is it worth it?
#
# Compare with two baselines: every owner alone, and no protection at all.

# %%
alone = sfg.train(sfg.Local(**settings), federation, rounds=10, seed=0)
open_run = sfg.train(sfg.FedSage(**settings), federation, "plaintext", rounds=10, seed=0)
print(f"alone     {alone.accuracy['global']:.2f}")
print(f"masked    {run.accuracy['global']:.2f}")
print(f"plaintext {open_run.accuracy['global']:.2f}")
assert run.accuracy["global"] > alone.accuracy["global"]
assert abs(run.accuracy["global"] - open_run.accuracy["global"]) < 0.05

# %% [markdown]
# Together the owners do better than alone, and masks cost no accuracy. `run.model` is the trained module:

# %%
classes = run.model(data.x.float(), data.edge_index).argmax(dim=1)
print("predictions for", len(classes), "nodes")

# %% [markdown]
# ```text
# predictions for 300 nodes
# ```
#
# Next: [your own model](own_model.py), or owners who come with [files of their own](../own_silos.md).
