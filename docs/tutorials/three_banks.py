# %% [markdown]
# # Three banks with tables
#
# Three banks have tables of applicants, with words, amounts and empty cells. Together they want to score
# who pays back late. This tutorial goes from three folders to a federation that everybody approved, a run
# under a budget, and next week's table scored. It needs `pip install 'secure-fedgraph[data]'` and `[flower]`
# for the keys of the silos; it takes half a minute.
#
# ## The tables
#
# The tables below are made up. In yours, one folder an owner holds `nodes.csv` and, where there are links,
# `edges.csv`. The third bank writes semicolons and decimal commas.

# %%
import os
import random
import shlex
import tempfile
from pathlib import Path

from click.testing import CliRunner

from secure_fedgraph.cli.main import main

os.chdir(tempfile.mkdtemp())
draw = random.Random(0)
purposes = {"car": 0.2, "business": 0.9, "furniture": -0.3, "studies": -0.8}
names = ("bank-a", "bank-b", "bank-c")
for name in names:
    lines = ["id,age,amount,purpose,late"]
    for place in range(200):
        age, amount, purpose = draw.randint(19, 75), draw.lognormvariate(8, 0.7), draw.choice([*purposes])
        late = amount / 4000 - age / 25 + purposes[purpose] + draw.gauss(0, 0.6) > -0.5
        lines.append(f"{name}-{place},{age},{amount:.2f},{purpose},{'yes' if late else 'no'}")
    if name == "bank-c":
        lines = [line.replace(",", ";").replace(".", ",") for line in lines]
    Path(name).mkdir()
    Path(name, "nodes.csv").write_text("\n".join(lines))


def secure_fedgraph(words: str) -> None:
    """Types one command and prints what it prints."""
    print("$ secure-fedgraph", words)
    done = CliRunner().invoke(main, shlex.split(words))
    assert done.exit_code == 0, done.output
    print(done.stdout)


# %% [markdown]
# ## A schema, agreed in the open
#
# One bank drafts what every column means. The draft says what showing it gives away: read it, mend it
# (ranges may be wider than one bank's), and send it to the others.

# %%
secure_fedgraph("silo describe bank-a/ --label late --positive yes --out schema.toml")

# %% [markdown]
# ```text
# late: label, task classes, classes 'no', 'yes', positive 'yes'
# purpose: category of 4 words: 'business', 'car', 'furniture', 'studies', and about how often each stands
# ```
#
# Each other bank holds its own tables to it, at home:

# %%
secure_fedgraph("silo check bank-c/ --schema schema.toml")

# %% [markdown]
# ```text
# purpose (category): fits 200, clipped 0, unknown 0, empty 0
# ```
#
# ## A federation that everybody approves
#
# Each bank makes keys; the operator writes one file, and the schema is part of it. A bank approves this
# file and no other. On machines of their own they would now start
# ([how](silos_on_flower.py)); here one process plays all three.

# %%
for name in names:
    secure_fedgraph(f"silo keygen silo-{name} --name {name} --data {name}/ --schema schema.toml")
cards = " ".join(f"silo-{name}/card.toml" for name in names)
secure_fedgraph(
    f"federation init {cards} --algorithm fedridge --policy distributed_dp --unit node --epsilon 4 "
    "--schema schema.toml --host 127.0.0.1 --out federation.toml"
)
for name in names:
    secure_fedgraph(f"silo check silo-{name} federation.toml --data {name}/")
    secure_fedgraph(f"silo approve silo-{name} federation.toml")

# %% [markdown]
# ## A budget, and a score
#
# An epsilon of 4 for one applicant. The score is counted under the same budget, and so it has an interval,
# which holds the noise. It stands beside the best that a bank does alone.

# %%
silos = " ".join(f"--silo {name}={name}/" for name in names)
secure_fedgraph(
    f"run --algorithm fedridge --policy distributed_dp --unit node --epsilon 4 {silos} --schema schema.toml "
    "--seed 0 --out run"
)

# %% [markdown]
# ## Next week's table
#
# It has no answers, another order of columns, a word that nobody had and an empty cell. The released
# model holds the schema, so the file `run/released.model` alone would do as well.

# %%
Path("next-week.csv").write_text(
    "purpose,id,amount,age\nbusiness,new-1,9000,23\nstudies,new-2,800,61\nwedding,new-3,3000,\n"
)
secure_fedgraph("predict run next-week.csv --out scores.csv")
print(Path("scores.csv").read_text())

# %% [markdown]
# ```text
# 3 rows: scores.csv
# id,prediction,score_no,score_yes
# new-1,yes,…
# new-2,no,…
# new-3,…
# ```
#
# `--threshold 0.3` names the positive class from there on, `--threshold best` from the run's own
# threshold. From Python, `run.predict(data)` gives the same probabilities of an encoded graph. A silo
# scores by the model that it was given: `predict my-silo/runs/DIGEST nodes.csv`. More on tables: [your own
# silos](../own_silos.md).
