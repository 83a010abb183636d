# %% [markdown]
# # Keep to a privacy budget
#
# A budget is an epsilon for one *unit*: a client, a graph, a node or a link. The smaller epsilon is, the
# less a reader can learn about one unit. This tutorial trains under a budget, and shows what happens when
# one runs out.
#
# ## A budget for one node
#
# `fedridge` was made for small budgets: every owner sends one upload, and then it is over. Under
# `distributed_dp` each owner adds a share of the noise, under masks. So nobody has to trust the server.

# %%
import warnings

import secure_fedgraph as sfg

federation = sfg.federate(
    "synthetic-citation", clients=3, partition="random", seed=0, nodes=1200, features=24
)
# what is sent are sums of features by class, and nothing else
fedridge = sfg.algorithms.ALGORITHMS["fedridge"](second_moments="own")
run = sfg.train(fedridge, federation, "distributed_dp", budget=sfg.Budget(4.0, unit="node"))
spent = run.privacy("node")
print("spent on one node:", spent["epsilon"], "at delta", spent["delta"])
assert spent["epsilon"] <= 4

# %% [markdown]
# ```text
# spent on one node: 3.99… at delta 1e-05
# ```
#
# The noise was planned before round 1, so that the whole run keeps to the budget.
#
# ## What the budget costs

# %%
without_noise = sfg.train(fedridge, federation, "masked")
smaller = sfg.train(fedridge, federation, "distributed_dp", budget=sfg.Budget(0.1, unit="node"))
for name, one in (("no noise", without_noise), ("epsilon 4", run), ("epsilon 0.1", smaller)):
    print(f"{name:12} {one.accuracy['global']:.2f}")
assert without_noise.accuracy["global"] > smaller.accuracy["global"]

# %% [markdown]
# ## One epsilon is not another
#
# A budget for a node says nothing about a whole client, who has many nodes. Always read an epsilon
# together with its unit, its delta, and the reader whom it holds against.

# %%
print("one node:  ", run.privacy("node")["epsilon"])
print("one client:", run.privacy("client")["epsilon"])

# %% [markdown]
# ```text
# one client: inf
# ```
#
# ## When the budget runs out
#
# Here the noise is set by hand, and too small for eight rounds. A warning says so before round 1. The
# message that would exceed the budget is not sent.

# %%
too_little = sfg.policies.distributed_dp(norm=1.0, multiplier=2.0)
with warnings.catch_warnings(record=True) as before:
    warnings.simplefilter("always")
    try:
        sfg.train(
            sfg.FedSage(hidden=[8], fanout=[2]), federation, too_little, rounds=8, budget=sfg.Budget(4.0)
        )
    except sfg.errors.BudgetExhausted as error:
        print("stopped:", error)
print("warned:", any(one.category is sfg.EarlyStopWarning for one in before))

# %% [markdown]
# ```text
# stopped: channel 'update': … it is not sent; give a larger budget, more noise, or fewer rounds
# warned: True
# ```
#
# ## Which algorithm is a budget worth most to?
#
# `secure-fedgraph plan` compares them from public facts, before anything is sent: [plan a
# budget](../how_to/plan_a_budget.md). Figures on real data: [budgets](../budgets.md).
