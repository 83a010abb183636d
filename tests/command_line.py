"""The command line in the test's own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from secure_fedgraph.cli.main import main


def call(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def compare(out: Path, *more: object) -> Result:
    """A small comparison of FedSage, in this process where ``at_once`` says so; by default under masks."""
    small = "--data synthetic-citation --set dataset.nodes=60 --set dataset.features=16"
    policy = () if "--policy" in more else ("--policy", "masked")
    asked = f"compare --algorithm fedsage {small} --set training.hidden=[8,4]".split()
    return call(*asked, *policy, *more, "--out", out)


def held(path: Path | str) -> Any:
    """What a JSON file holds."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def compared(out: Path) -> dict[str, dict[str, Any]]:
    """The points of a comparison, by name."""
    return {row["name"]: row for row in held(out / "compare.json")["points"]}
