"""Every example runs offline and prints what it promises."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.scripts import offline, printed  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PROMISED = {
    "apflgate_molecules": ["apflgate", "0 of 4 updates", "mean_update (nothing)"],
    "attack_mashed_egos": [
        "b1-mash-single       exact rows 1.00",
        "is masked under policy masked",
        "all owners together",
    ],
    "attack_prototypes": ["support=1: 48 of 48 graphs solved, 48 right", "support=2: 4 of 48 graphs solved"],
    "attack_released_model": [
        "plaintext  g1-link-stealing",
        "masked     g3-node-membership",
        "local_dp   g3",
    ],
    "attack_vertical": ["plaintext, sampler=paper", "masked, sampler=public", "exact entries 1.00", "blind"],
    "audit_in_python": ["masked: no attack that was tried reads a single owner", "exact"],
    "fedego_mashes": ["0 uploads of single clients and 6 sums", "channel 'egos' needs each upload"],
    "fairgraphfl_rewards": ["plain      owner-0 low", "encrypted  owner-0 low", "to 1.000000", "0 of 6"],
    "fedsage_under_each_policy": ["plaintext", "3 of 3", "masked", "0 of 3", "server inf, peers"],
    "glasu_by_columns": ["2   4", "plaintext: accuracy", "masked: accuracy", "0 single", "two owners:"],
    "measure_epsilon": [
        "a whole owner, noise in shares: channel update, one upload: holds, claimed 2.69, at least",
        "one node, noisy steps: noisy steps, all 20 steps, 13 records a node: holds, claimed 4.00",
        "one link, randomised: links randomised, the one drawing: holds, claimed 4.00",
    ],
    "own_algorithm": ["plaintext", "masked", "homomorphic", "accuracy"],
    "own_attack": ["plaintext  right for", "masked     blind: own-majority-class"],
    "rewards_and_clusters": ["gcfl+ ", "cgsv ", "fairgraphfl ", "fedstar under masks: 0 updates"],
    "run_under_a_budget": ["client ", "node ", "edge          8.0 sum"],
    "sums_meta_gradients_and_a_ring": [
        "0 single uploads and 0 sums of 'neighbour_sums'",
        "nodes of others from sums of one term",
        "the server is blind",
        "0 single uploads and 3 sums of 'meta_gradient'",
        "0 single uploads and 0 sums of 'model'",
    ],
    "three_banks": [
        "owns_home: yes or no",
        "masked: AUC 0.",
        "budget: AUC ",
        "101 rows: scores.csv",
        "next-100,",
    ],
    "three_silos": ["silos/silo-1: ", "silos/silo-3: ", "1433 features"],
    "own_graph_and_model": [
        "accuracy on all owners' test nodes",
        "within two points",
        "norm.running_mean",
        "first.att_src",
    ],
}
QUICK = ("own_algorithm", "three_silos")
"""What `make test` runs, where torch is loaded already; `make slow` runs each in a process of its own."""


@pytest.mark.parametrize(
    ("example", "apart"),
    [
        *[pytest.param(ROOT / f"examples/{name}.py", False, id=name) for name in QUICK],
        *[pytest.param(path, True, id=f"{path.stem}-apart", marks=pytest.mark.slow) for path in EXAMPLES],
    ],
)
@pytest.mark.timeout(3000)  # more than ten times what the longest takes on two idle cores
@pytest.mark.usefixtures("offline")
def test_it_runs_and_prints_what_it_promises(
    example: Path, apart: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    said = printed(example, apart, capfd)
    for words in PROMISED[example.stem]:
        assert words in said


def test_every_example_promises_something() -> None:
    assert {path.stem for path in EXAMPLES} == set(PROMISED)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_short_and_says_what_it_shows(example: Path) -> None:
    text = example.read_text()
    assert len(text.splitlines()) <= 60
    assert ast.get_docstring(ast.parse(text))
