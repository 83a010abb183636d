"""The folder of a comparison: what may lie in it, and what ``--overwrite`` takes away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.compare.points import Point
from secure_fedgraph.experiment.compare.runs import KEY
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import read_json

OTHERS = {"audit.json": "an audit", "result.json": "a run", "cells": "an audit that did not finish"}
ELSEWHERE = ("algorithm", "policy", "epsilon", "seed")
"""Keys of the configuration that points and seeds set, or that change no run."""


def is_begun(out: Path) -> bool:
    """Whether an earlier call began runs in a folder."""
    return any(out.glob(f"runs/*/seed-*/{KEY}"))


def check_folder(out: Path, base: Experiment, chosen: Sequence[Point], seeds: Sequence[int]) -> None:
    """Checks that nothing is replaced that is not part of this comparison; more points or seeds may come in.

    Raises:
        BadInput: where the folder holds another kind's result, or a comparison of something else.
    """
    for name, kind in OTHERS.items():
        if (out / name).exists():
            raise BadInput(
                f"{out} already holds {name} of {kind}, whose page a comparison would replace: give another "
                "--out, or --overwrite"
            )
    if not (out / "compare.json").exists():
        return
    earlier, now = read_json(out / "compare.json", "compare"), base.model_dump(mode="json")
    before = earlier.get("config") or {}
    keys = [k for k in {**before, **now} if k not in ELSEWHERE and before.get(k) != now.get(k)]
    names = [row.get("name") for row in earlier.get("points") or ()]
    left = [name for name in names if name not in {point.name for point in chosen}]
    left += [f"seed {seed}" for seed in earlier.get("seeds") or () if seed not in seeds]
    if keys or left:
        differs = f"its {keys[0]} is another" if keys else f"its {left[0]} would be left out"
        raise BadInput(
            f"{out} already holds compare.json of another comparison ({differs}): give another --out, or "
            "--overwrite"
        )
