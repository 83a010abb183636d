"""Conformance as rows of an audit: right runs pass, a leak that was left open is no failure, mutants fail."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
import small
import torch

import secure_fedgraph as sfg
from secure_fedgraph.audits.conformance import rows as rows_module
from secure_fedgraph.audits.conformance.checks import CHECKS
from secure_fedgraph.audits.conformance.rows import (
    FAILED,
    NOTHING,
    PASSED,
    PROBES,
    SAYS,
    conformance_rows,
)
from secure_fedgraph.audits.record import Finding
from secure_fedgraph.core.errors import BrokenClaim
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import everything

P = sfg.policies


def run(name: str, policy: Any, **more: Any) -> sfg.Run:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        warnings.simplefilter("ignore", FormWarning)
        return sfg.train(
            small.algorithm(name),
            small.federation(name),
            policy,
            **{"rounds": 1, "keep": everything, "allow_plaintext": True, **more},
        )


def outcomes(made: sfg.Run, **more: Any) -> dict[str, str]:
    return {row["check"]: row["outcome"] for row in conformance_rows(made, **more)}


def test_every_check_says_what_it_holds():
    assert set(SAYS) == {*CHECKS, *PROBES, "predictable"}


@pytest.mark.parametrize(
    ("policy", "seeded"),
    [(P.masked(), NOTHING), (P.local_dp(1.0, 2.0), PASSED), (P.distributed_dp(1.0, 2.0, quorum=3), PASSED)],
    ids=["masked", "local_dp", "distributed_dp"],
)
def test_a_right_run_passes(policy: Any, seeded: str):
    found = outcomes(run("fedavg", policy))
    assert found.pop("predictable") == seeded
    assert found.pop("composed") == NOTHING  # no result was written
    assert set(found.values()) == {PASSED}


def test_sums_of_fewer_clients_hold_fewer_shares():
    """Sums over ten and over seven clients lie less far apart than two over ten, and are fresh too."""
    federation = sfg.federate("synthetic-citation", clients=10, nodes=600, features=16, seed=0)
    policy = P.distributed_dp(1.0, 4.0, quorum=5, dropouts=0.3)
    made = sfg.train(
        sfg.FedAvg(hidden=(256, 256)),
        federation,
        policy,
        rounds=8,
        keep=everything,
        dropouts=Dropouts(0.25, 1),
    )
    numbers = [len(note.contributors) for note in made.transcript.opened if note.channel == "update"]
    assert len(set(numbers)) > 1
    assert outcomes(made)["noise"] == PASSED
    assert outcomes(made, most=10**9)["noise"] == PASSED


def test_what_was_not_kept_cannot_be_checked():
    made = run("fedavg", P.masked(), keep=lambda channel, round: False)
    assert set(outcomes(made).values()) == {NOTHING}


def test_of_a_channel_only_the_first_bytes_are_read(monkeypatch: pytest.MonkeyPatch):
    made = run("fedavg", P.plaintext(), rounds=3)
    kept: list[int] = []
    monkeypatch.setitem(
        rows_module.CHECKS, "ledger", lambda record: iter(kept.append(len(record.replies)) or ())
    )
    outcomes(made)
    outcomes(made, most=1)
    assert kept[0] > kept[1]


@pytest.mark.parametrize("source", ["numpy", "random", "torch"])
def test_noise_of_a_seed_fails(monkeypatch: pytest.MonkeyPatch, source: str):
    def seeded(self: Gaussian, matrix: np.ndarray, scope: Any) -> np.ndarray:
        if source == "numpy":
            noise = np.random.standard_normal(matrix.shape)  # noqa: NPY002
        elif source == "torch":
            noise = torch.randn(matrix.shape).numpy()
        else:
            noise = np.array([random.gauss(0, 1) for _ in range(matrix.size)]).reshape(matrix.shape)
        return matrix + np.rint(noise * self.sigma).astype(matrix.dtype)

    made = run("fedavg", P.local_dp(1.0, 2.0))
    monkeypatch.setattr(Gaussian, "apply", seeded)
    assert outcomes(made)["predictable"] == FAILED


def test_a_run_that_fails_a_check_breaks_a_claim(monkeypatch: pytest.MonkeyPatch, tmp_path: Any):
    from click.testing import CliRunner

    from secure_fedgraph.cli.main import main

    flags = ["audit", "--data", "synthetic-citation", "--set=dataset.nodes=90", "--set=dataset.features=24"]
    flags += [
        "--rounds",
        "1",
        "--attack",
        "a1",
        "--policy",
        "masked",
        "--quiet",
        "--out",
        str(tmp_path / "a"),
    ]
    monkeypatch.setitem(
        rows_module.CHECKS, "ledger", lambda record: iter([Finding("ledger", "update", "nobody paid")])
    )
    done = CliRunner().invoke(main, flags)
    assert done.exit_code == BrokenClaim.exit_status
    assert "A run under policy masked fails the check 'ledger': update: nobody paid." in done.output
