"""Three banks with tables of words and amounts: a schema, a run, a budget, and next week's table scored.

Offline, about 20 seconds. The tables are generated: applicants for credit, of whom some pay back late. Every
line that is printed after a `$` can be typed as it stands, in the folder where the tables are.
"""

from __future__ import annotations

import csv
import json
import random
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner

from secure_fedgraph.cli.main import main

BANKS = ("bank-a", "bank-b", "bank-c")
HEAD = ("id", "age", "amount", "purpose", "owns_home", "late")
PURPOSES = {"car": 0.2, "business": 0.9, "furniture": -0.3, "studies": -0.8}
BUDGET = "--algorithm auto --unit node --epsilon 4"
SILOS = " ".join(f"--silo {name}={name}/" for name in BANKS)


def applicants(bank: str, number: int, draw: random.Random) -> list[tuple[object, ...]]:
    """So many rows of a table; who borrows much when young, for a business, pays late more often."""
    rows: list[tuple[object, ...]] = []
    for place in range(number):
        age, amount, purpose = (
            draw.randint(19, 75),
            round(draw.lognormvariate(8, 0.7)),
            draw.choice([*PURPOSES]),
        )
        home = draw.random() < age / 100
        risk = amount / 4000 - age / 25 + PURPOSES[purpose] - home + draw.gauss(0, 0.6)
        rows.append((f"{bank}-{place:03d}", age, amount, purpose, "yes" if home else "no", int(risk > -0.3)))
    return rows


def write(path: Path, head: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """One table."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def secure_fedgraph(words: str) -> str:
    """Types a command, in this process: each of its own would load torch again."""
    print("$ secure-fedgraph", words)
    done = CliRunner().invoke(main, shlex.split(words))
    return done.stdout if not done.exit_code else sys.exit(done.stderr)


if __name__ == "__main__":
    draw = random.Random(0)
    for name in BANKS:
        write(Path(name, "nodes.csv"), HEAD, applicants(name, 300, draw))
    print(secure_fedgraph("silo describe bank-a/ --label late --out schema.toml"))
    for folder, how in (("masked", "--algorithm fedridge --policy masked"), ("budget", BUDGET)):
        secure_fedgraph(f"run {how} {SILOS} --schema schema.toml --seed 0 --overwrite --out {folder}")
        result = json.loads(Path(folder, "result.json").read_text())
        auc, alone = result["metrics"]["auc"], result["baselines"]["alone"]
        interval = f"{auc['low']:.3f} to {auc['high']:.3f}"
        print(f"  AUC {auc['global']:.3f} ({interval}), the best alone {alone['best']:.3f}")
    week = [row[:-1] for row in applicants("next", 100, draw)]
    week[0] = ("next-000", "", 9000, "wedding", "no")  # an empty cell, and a word that no schema lists
    write(Path("next-week.csv"), HEAD[:-1], week)
    print(secure_fedgraph("predict budget next-week.csv --overwrite --out scores.csv"))
    print("".join(Path("scores.csv").read_text().splitlines(keepends=True)[:4]))
