"""Somebody else's package, as text: an algorithm, an attack, a policy and a data set, a module each."""

from __future__ import annotations

from pathlib import Path

from class_means import MEANS

ATTACK = '''
import numpy as np

from secure_fedgraph.attacks import Attack, Guess


class ClassSizes(Attack):
    """How many training nodes of each class an owner has: it sends that."""

    id = "x1-class-sizes"
    subject = "sizes of classes"
    family = "means"
    summary = "an owner's class sizes, as it sends them"
    channel = "statistics"
    grants = ("by what the counts are divided",)
    needs = ("scale",)

    def run(self, view, knowledge):
        seen = self.single_uploads(view)
        values = {one.clients[0]: one.values["nodes"] * knowledge.facts["scale"] for one in seen}
        return Guess("sizes of classes", values, {owner: (owner,) for owner in values}, len(seen))

    def residual(self, view, knowledge):
        sums = self.opened_sums(view)
        values = {"all": sums[0].values["nodes"] * knowledge.facts["scale"]}
        return Guess("sizes of classes", values, {"all": sums[0].clients}, len(sums))

    @classmethod
    def makers(cls):
        return {"scale": lambda case: 64}

    @classmethod
    def judge(cls):
        from secure_fedgraph.audits import truth
        from secure_fedgraph.audits.judgement import Judgement
        from secure_fedgraph.audits.scoring import Score, ScoreKind

        def right(guess, case):
            """The share of owners' class sizes that are right."""
            counts = truth.label_counts(case.federation)
            true = {t: sum(counts[owner] for owner in owners) for t, owners in guess.targets.items()}
            guessed = {t: np.round(values) for t, values in guess.values.items()}
            share = float(np.mean([(guessed[t] == true[t]).mean() for t in true]))
            score = Score("sizes right", share, share, share, {"none": 0.0}, kind=ScoreKind.MEAN)
            return Judgement(score, true, guessed)

        return right
'''

POLICY = '''
from dataclasses import replace

from secure_fedgraph.policies import masked


def wide(limit: float = 64.0):
    """Masks over a grid that reaches further."""
    return replace(masked(limit=limit), name="wide")
'''

DATA = '''
import torch
from torch_geometric.data import Data


def ring(seed: int = 0, nodes: int = 120) -> Data:
    """A ring of nodes in two classes."""
    drawn = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) // (nodes // 2)
    x = torch.rand(nodes, 6, generator=drawn) + 3 * y.unsqueeze(1)
    here, there = torch.arange(nodes), (torch.arange(nodes) + 1) % nodes
    links = torch.cat([torch.stack([here, there]), torch.stack([there, here])], dim=1)
    return Data(x=x.float(), y=y, edge_index=links)
'''

MODULES = {"means": MEANS, "sizes": ATTACK, "wide": POLICY, "rings": DATA}
ENTRY_POINTS = """
[secure_fedgraph.algorithms]
means = somebody.means:Means

[secure_fedgraph.attacks]
x1-class-sizes = somebody.sizes:ClassSizes

[secure_fedgraph.policies]
wide = somebody.wide:wide

[secure_fedgraph.datasets]
ring = somebody.rings:ring
"""


def install(folder: Path, entry_points: str = ENTRY_POINTS, name: str = "somebody") -> Path:
    """Puts the package and what ``pip`` writes beside it into a folder that is to stand on ``sys.path``."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    for module, text in MODULES.items():
        (package / f"{module}.py").write_text(text)
    beside = folder / f"{name}-1.0.dist-info"
    beside.mkdir()
    (beside / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (beside / "entry_points.txt").write_text(entry_points)
    return folder
