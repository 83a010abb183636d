"""``secure-fedgraph budget``: the figures, the noise, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from secure_fedgraph.cli.commands.budgets import budget
from secure_fedgraph.core.errors import BadInput

TRAINING = ["--sampling-rate", "0.01", "--steps", "1000", "--delta", "1e-5"]


def told(*arguments: str) -> str:
    result = CliRunner().invoke(budget, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def told_json(*arguments: str) -> dict[str, Any]:
    return json.loads(told(*arguments, "--json"))


def test_the_figures() -> None:
    """Show 1 of the issue."""
    found = told_json("--noise-multiplier", "1", *TRAINING)
    assert found["epsilon"] == pytest.approx({"pld": 1.829, "rdp": 2.101, "prv": 1.838}, abs=0.02)
    assert found["relation"] == "zero-out" and found["unit"] == "record"
    text = told("--noise-multiplier", "1", *TRAINING)
    assert all(word in text for word in ("PLD", "RDP", "PRV", "zero-out", "1e-05", "one record"))


def test_a_node_in_several_records() -> None:
    arguments = ["--noise-multiplier", "69.1", "--sampling-rate", "0.032", "--steps", "1000"]
    found = told_json(*arguments, "--unit", "node", "--occurrences", "43")["epsilon"]
    assert found["pld"] == pytest.approx(5.74, rel=0.02)


def test_the_noise_that_a_budget_takes() -> None:
    noise = told_json("--epsilon", "8", *TRAINING)["noise_multiplier"]
    spent = told_json("--noise-multiplier", str(noise), *TRAINING)["epsilon"]
    assert 7.95 < spent["pld"] <= 8
    assert f"{noise:g}" in told("--epsilon", "8", *TRAINING)


def test_an_epsilon_beyond_all_use_is_no_number() -> None:
    found = told_json("--noise-multiplier", "1e-12", "--steps", "1")["epsilon"]
    assert set(found.values()) == {"inf"}


def test_a_delta_too_large_for_the_records() -> None:
    result = CliRunner().invoke(budget, ["--noise-multiplier", "1", "--steps", "1", "--records", "100000"])
    assert result.exit_code == 0 and "not below 1/100000" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--noise-multiplier", "0", *TRAINING], "without noise"),
        (["--noise-multiplier", "-1", *TRAINING], "without noise"),
        (["--noise-multiplier", "nan", *TRAINING], "without noise"),
        (["--epsilon", "0", *TRAINING], "epsilon 0.0 must be a positive"),
        (["--epsilon", "-2", *TRAINING], "positive"),
        (["--epsilon", "nan", *TRAINING], "positive"),
        (["--epsilon", "8", "--steps", "0"], "--steps 0"),
        (["--epsilon", "8", "--steps", "3", "--delta", "1"], "delta 1.0"),
        (["--epsilon", "8", "--steps", "3", "--delta", "0"], "delta 0.0"),
        (["--epsilon", "8", "--steps", "3", "--delta", "nan"], "delta nan"),
        (["--epsilon", "8", "--steps", "3", "--sampling-rate", "0"], "--sampling-rate 0"),
        (["--epsilon", "8", "--steps", "3", "--sampling-rate", "1.01"], "--sampling-rate 1.01"),
        (["--epsilon", "8", "--steps", "3", "--sampling-rate", "nan"], "--sampling-rate nan"),
        (["--steps", "3"], "one of them"),
        (["--steps", "3", "--epsilon", "8", "--noise-multiplier", "1"], "one of them"),
        (["--epsilon", "8", "--unit", "node", *TRAINING], "--occurrences"),
        (["--epsilon", "8", "--occurrences", "43", "--relation", "add-remove", *TRAINING], "zero-out"),
        (["--epsilon", "8", "--unit", "client", "--relation", "add-remove", *TRAINING], "--unit client"),
        (["--epsilon", "8", "--unit", "graph", "--relation", "add-remove", *TRAINING], "--unit graph"),
        (["--epsilon", "8", "--unit", "node", "--occurrences", "0", *TRAINING], "occurrences 0"),
    ],
)
def test_bad_input_in_words(arguments: list[str], words: str) -> None:
    with pytest.raises(BadInput) as error:
        CliRunner().invoke(budget, arguments, catch_exceptions=False)
    assert words in str(error.value)
