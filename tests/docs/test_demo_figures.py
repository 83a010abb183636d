"""The README's figures of the demonstration are those of the run that is kept."""

import json
from pathlib import Path

from secure_fedgraph.experiment.schema import DemoResult, as_read
from secure_fedgraph.report.sections.demo_page import sentence

ROOT = Path(__file__).resolve().parents[2]


def test_the_sentence_of_the_readme_is_that_of_the_kept_run() -> None:
    kept = json.loads((ROOT / "benchmarks/results/demo.json").read_text())
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert sentence(as_read(DemoResult, kept)).replace("\u202f", " ") in readme
