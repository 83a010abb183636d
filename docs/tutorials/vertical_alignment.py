# %% [markdown]
# # Owners of columns, with aligned rows
#
# A bank and two shops know different things about the same people. Before they can train together they
# need the rows that all of them have, in one order, and none of them wants to show its list of customers.
# This tutorial aligns the rows by private set intersection, and then trains GLASU under masks.
#
# It needs `pip install 'secure-fedgraph[align]'`.
#
# ## Who has which columns
#
# The bank has the labels and the links. Each owner has customers whom the others lack, in an order of its
# own.

# %%
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

import secure_fedgraph as sfg
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.deployment.alignment import Hub, Member, Terms, align_together, new_alignment
from secure_fedgraph.graph.data.synthetic import citation

people = citation(nodes=120, features=24, classes=3)  # what all know together
columns = {"a-bank": slice(0, 8), "b-shop": slice(8, 16), "c-shop": slice(16, 24)}
customers = {
    name: torch.randperm(120, generator=torch.Generator().manual_seed(number))[:105]
    for number, name in enumerate(columns)
}
lists = {name: [f"customer-{row}" for row in rows.tolist()] for name, rows in customers.items()}
print({name: len(rows) for name, rows in lists.items()})

# %% [markdown]
# ```text
# {'a-bank': 105, 'b-shop': 105, 'c-shop': 105}
# ```
#
# ## Align
#
# The first owner is the *hub*: the others, the *members*, speak with it alone. Every letter is signed,
# and sealed for its reader. On machines of their own `secure-fedgraph silo align` does this; here the
# letters go by hand.

# %%
keys = {name: Identity.generate() for name in columns}
terms = Terms(
    federation=bytes(32),  # the digest of the federation's file
    alignment=new_alignment(),
    parties={name: key.public for name, key in keys.items()},
    rows_at_most=128,
)
hub = Hub(terms, keys["a-bank"], lists["a-bank"])
members = {name: Member(terms, keys[name], lists[name], name) for name in ("b-shop", "c-shop")}
aligned = align_together({"a-bank": hub, **members})
common = set.intersection(*(set(rows) for rows in lists.values()))
assert all(set(one.rows) == common for one in aligned.values())
print("the same order everywhere:", len({tuple(one.rows) for one in aligned.values()}) == 1)

# %% [markdown]
# ```text
# the same order everywhere: True
# ```
#
# Each owner now knows which of its own customers *all* owners have. [Who learns
# what](../aligning_rows.md#who-learns-what) has the exact table; the hub learns more than a member.
#
# ## Train on the common rows
#
# Each owner puts its own table into the common order. The bank keeps the links among the common rows.

# %%
owned = {}
for name, part in columns.items():
    places = torch.as_tensor([lists[name].index(row) for row in aligned[name].rows])
    rows = customers[name][places]
    owned[name] = Data(x=people.x[rows][:, part], id=list(aligned[name].rows))
    if name == "a-bank":
        links, _ = subgraph(rows, people.edge_index, num_nodes=120)
        place = torch.full((120,), -1).scatter_(0, rows, torch.arange(len(rows)))
        owned[name].y, owned[name].edge_index = people.y[rows], place[links]

federation = sfg.federate(owned, rows="id")
glasu = sfg.algorithms.ALGORITHMS["glasu-one-label-holder"](sampler="public", hidden=8)
run = sfg.train(glasu, federation, "masked", rounds=3, seed=0, keep=lambda channel, round: True)
view = run.transcript.view("server")
print("single uploads of hidden rows that the server read:", len(view.uploads("hidden")))
print(f"accuracy {run.accuracy['global']:.2f}")

# %% [markdown]
# ```text
# single uploads of hidden rows that the server read: 0
# ```
#
# The bank reads sums of hidden rows, and sends gradients back to each owner, sealed. What such sums still
# give away is measured in [attacks on a split by columns](../attacks/vertical.md).
