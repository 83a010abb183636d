# %% [markdown]
# # Train your own model
#
# Any `torch.nn.Module` whose `forward(x, edge_index)` gives one row of class scores for each node can be
# trained. This tutorial trains a graph attention network with a BatchNorm, and looks at what is sent.
#
# ## The model

# %%
import torch
from torch import nn
from torch_geometric.nn import GATConv

import secure_fedgraph as sfg


class Net(nn.Module):
    """Attention, BatchNorm, attention."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = GATConv(features, 8, heads=2)
        self.norm = nn.BatchNorm1d(16)
        self.second = GATConv(16, classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Class scores [nodes, classes]."""
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


# %% [markdown]
# ## Give it to an algorithm
#
# `model=` takes a class, an instance, or a function `schema -> Module`. A class is made from the data's
# schema: its arguments `features` and `classes` are filled in. `batch="full"` trains on each owner's
# whole graph.

# %%
federation = sfg.federate("synthetic-citation", clients=3, partition="random", seed=0, nodes=300, features=32)
algorithm = sfg.FedAvg(model=Net, batch="full", learning_rate=0.02)
run = sfg.train(algorithm, federation, "masked", rounds=15, seed=0)
print(f"accuracy {run.accuracy['global']:.2f}")
assert run.accuracy["global"] > 0.6

# %% [markdown]
# ## What was federated
#
# Parameters, and the buffers of the BatchNorm too. All of them travel in one upload, so a clip bounds
# them together.

# %%
print(*sorted(run.state), sep="\n")

# %% [markdown]
# ```text
# first.att_src
# norm.running_mean
# norm.weight
# ```
#
# ## A mistake is found before anything is sent
#
# A model of the wrong width is refused with one sentence. Errors of this package say what to change;
# their [classes](../reference/errors.md) say what kind of mistake it is.

# %%
try:
    sfg.train(sfg.FedAvg(model=Net(16, 4), batch="full"), federation, "masked", rounds=1)
except sfg.errors.BadInput as error:
    print("refused:", error)

# %% [markdown]
# ```text
# refused: model Net takes 16 features a node, and the data have 32: build it with 32
# ```
#
# ## Under noise
#
# Noise is added to every number of the upload. BatchNorm's running statistics are large, so they use up
# much of the clip: prefer LayerNorm there. More on models: [your own graph, your own
# model](../own_graphs_and_models.md).
