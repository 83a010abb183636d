# %% [markdown]
# # Silos over Flower
#
# Here each owner is a process of its own, with its own data and keys. A server without data coordinates
# them, over [Flower](https://flower.ai) with TLS. Everything runs on this machine. It needs `pip install
# 'secure-fedgraph[flower]'` and some minutes: every command is a process that loads torch.
#
# The notebook calls the command line, since that is what owners use. Each line is a command to type.

# %%
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import secure_fedgraph as sfg

os.chdir(tempfile.mkdtemp())  # keys and data of this tutorial go into a new folder


def secure_fedgraph(*words: str) -> None:
    """Runs one command and prints what it prints."""
    print("$ secure-fedgraph", *words)
    done = subprocess.run([sys.executable, "-m", "secure_fedgraph", *words], text=True, capture_output=True)
    print(done.stdout)
    assert done.returncode == 0, done.stderr


# %% [markdown]
# ## Each owner: data, keys, a card
#
# `card.toml` holds two public keys and public facts about the data (how many features and classes). It
# goes to the operator. The data and the secret keys stay.

# %%
owners = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=150, features=16).owners
names = ("bank-a", "bank-b", "bank-c")
for name, graph in zip(names, owners.values(), strict=True):
    torch.save(graph.to_dict(), f"{name}.pt")
    secure_fedgraph("silo", "keygen", f"silo-{name}", "--name", name, "--data", f"{name}.pt")

# %% [markdown]
# ## The operator: one file for the federation
#
# `federation.toml` says everything that will happen: who takes part, which algorithm and policy, how many
# rounds.

# %%
with socket.create_server(("127.0.0.1", 0)) as free:
    port = str(free.getsockname()[1])
cards = [f"silo-{name}/card.toml" for name in names]
secure_fedgraph(
    "federation", "init", *cards, "--algorithm", "fedsage", "--policy", "masked", "--rounds", "2",
    "--set", "training.hidden=[8,4]", "--host", "127.0.0.1", "--port", port, "--out", "federation.toml",
)  # fmt: skip

# %% [markdown]
# ## Each owner: look, then approve
#
# `silo check` sends nothing. It lists what would leave, who would read it, and what it would cost. `silo
# approve` approves this file and no other: a byte more or less is another file.

# %%
secure_fedgraph("silo", "check", "silo-bank-a", "federation.toml", "--data", "bank-a.pt")
for name in names:
    secure_fedgraph("silo", "approve", f"silo-{name}", "federation.toml")

# %% [markdown]
# ```text
# update … masked … inf
# ```
#
# ## Everybody starts
#
# Each `silo start` runs until it is ended. The server waits for the silos, runs the rounds, and ends.

# %%
command = [sys.executable, "-m", "secure_fedgraph", "silo", "start"]
silos = [
    subprocess.Popen([*command, f"silo-{name}", "--data", f"{name}.pt"], stderr=subprocess.DEVNULL)
    for name in names
]
try:
    secure_fedgraph("server", "start", "federation.toml", "--out", "results", "--wait", "300")
finally:
    for silo in silos:
        silo.terminate()
        silo.wait()

# %% [markdown]
# ## What is there now
#
# The server has results and no data. Each silo has the model, its own scores, and a ledger of what it
# sent.

# %%
print(*sorted(path.name for path in Path("results").iterdir()))
secure_fedgraph("silo", "ledger", "silo-bank-a")

# %% [markdown]
# ```text
# … model.pt … result.json …
# ```
#
# Over machines: [silos on machines of their own](../silos_on_machines.md). Before you do so in earnest:
# [deployment](../deployment.md) says what protects whom.
