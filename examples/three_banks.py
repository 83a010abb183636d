"""Three banks with tables of words and amounts: a schema, a run, a budget, and next week's table scored.

Offline, about 25 seconds. The tables are generated: applicants for credit, of whom some pay back late. Each
line after a `$` can be typed as it stands, in the folder where the tables are.
"""

import json
import random
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from secure_fedgraph.cli.main import main

PURPOSES = {"car": 0.2, "business": 0.9, "furniture": -0.3, "studies": -0.8}
BANKS = ("bank-a", "bank-b", "bank-c")
SILOS = " ".join(f"--silo {name}={name}/" for name in BANKS)
WAYS = {
    "masked": "--algorithm fedridge --policy masked",
    "budget": "--algorithm auto --unit node --epsilon 4 --rounds 100",
}
draw = random.Random(0)


def table(bank: str, number: int, known: bool = True) -> str:
    """Applicants; who borrows much when young, or for a business, pays late more often."""
    lines = ["id,age,amount,purpose,owns_home" + ",late" * known]
    for place in range(number):
        age, amount, use = draw.randint(19, 75), round(draw.lognormvariate(8, 0.7)), draw.choice([*PURPOSES])
        home = draw.random() < age / 100
        late = amount / 4000 - age / 25 + PURPOSES[use] - home + draw.gauss(0, 0.6) > -0.3
        line = f"{bank}-{place:03d},{age},{amount},{use},{'yes' if home else 'no'}"
        lines.append(line + f",{int(late)}" * known)
    return "\n".join(lines) + "\n"


def secure_fedgraph(words: str) -> str:
    """Types a command, in this process: each of its own would load torch again."""
    print("$ secure-fedgraph", words)
    done = CliRunner().invoke(main, shlex.split(words))
    return done.stdout if not done.exit_code else sys.exit(done.stderr)


for name in BANKS:
    Path(name).mkdir(exist_ok=True)
    Path(name, "nodes.csv").write_text(table(name, 300))
print(secure_fedgraph("silo describe bank-a/ --label late --out schema.toml"))
for folder, way in WAYS.items():
    secure_fedgraph(f"run {way} {SILOS} --schema schema.toml --seed 0 --overwrite --out {folder}")
    result = json.loads(Path(folder, "result.json").read_text())
    auc, alone = result["metrics"]["auc"], result["baselines"]["alone"]["best"]
    print(f"{folder}: AUC {auc['global']:.3f} ({auc['low']:.3f} to {auc['high']:.3f}), alone {alone:.3f}\n")
# nobody knows yet who pays late; the last row has an empty cell, and a word that no schema lists
Path("next-week.csv").write_text(table("next", 100, known=False) + "next-100,,9000,wedding,no\n")
print(secure_fedgraph("predict budget next-week.csv --overwrite --out scores.csv"))
print(*Path("scores.csv").read_text().splitlines()[:3], "…", sep="\n")
print(Path("scores.csv").read_text().splitlines()[-1])
