"""Every parser and every exchange with a message changed: a named error, or the exact sum. See hostile.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hostile import BODIES, EXCHANGES, PARSERS, TRIALS, Passed, measured, parse, promising
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedgraph.core.carriers.secagg import server
from secure_fedgraph.core.protection import contracts

ROOT = Path(__file__).resolve().parents[2]
RANDOM = st.randoms(use_true_random=False)
SLOW = ("homomorphic sum", "set-up: homomorphic key", "set-up: keys")
QUICK = [name for name in TRIALS if name not in SLOW and not name.startswith("parser")]


@pytest.mark.parametrize("name", [name for name in TRIALS if name.startswith("parser")])
@given(rng=RANDOM)
@settings(max_examples=200)
def test_a_parser_refuses_or_reads(name, rng):
    TRIALS[name](rng)


# sizes of what is sent differ from run to run, so hypothesis draws where and how by a seed
@pytest.mark.parametrize("name", QUICK)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_an_exchange_refuses_or_opens_what_it_should(name, seed):
    TRIALS[name](Random(seed))


@pytest.mark.parametrize("name", SLOW)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_so_do_those_that_take_their_time(name, seed):
    TRIALS[name](Random(seed))


@pytest.mark.parametrize("name", PARSERS)
@given(raw=st.binary(max_size=300))
def test_any_bytes(name, raw):
    parse(name, raw)


@pytest.mark.parametrize("name", PARSERS)
@given(rng=RANDOM)
def test_a_header_that_promises_the_world_on_ten_bytes(name, rng):
    parse(name, promising(rng))


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_honest_is_read(name):
    assert [parse(name, raw) for raw in BODIES[name]] == ["read"] * len(BODIES[name])


class TestTheHarness:
    """What is watched is seen: with a defence out, a trial says so."""

    def many(self, name, trials=400):
        made = EXCHANGES[name]
        made.made = None
        try:
            for seed in range(trials):
                made.trial(Random(seed))
        finally:
            made.made = None

    @pytest.mark.parametrize("name", ["masked sum", "sum under pairwise masks"])
    def test_uploads_that_do_not_say_what_they_are_bound_to_change_the_sum_unnoticed(self, name, monkeypatch):
        for kind in (
            server.Masked,
            type(EXCHANGES["sum under pairwise masks"].policy().recipe(None).carrier),
        ):
            monkeypatch.setattr(kind, "binding_mark", lambda self, scope, party: "")
        with pytest.raises(Passed, match="a changed message changed the sum, at update/answer from server"):
            self.many(name)

    def test_numbers_that_are_not_finite(self, monkeypatch):
        monkeypatch.setattr(contracts, "all_finite", lambda values: True)
        with pytest.raises(Passed, match="changed the sum, at update/answer from owner"):
            self.many("plaintext sum", 3000)

    def test_an_allocation(self):
        with pytest.raises(Passed, match="bytes allocated"), measured(2**20):
            np.ones(2**20)

    def test_a_parser_that_believes_a_header(self, monkeypatch):
        def trusting(raw):
            return bytearray(min(int.from_bytes(raw[-8:], "little"), 2**24))

        monkeypatch.setitem(PARSERS, "message", trusting)
        with pytest.raises(Passed, match="bytes allocated"):
            parse("message", bytes(8) + (2**40).to_bytes(8, "little"))


@pytest.mark.slow
def test_parsers_under_atheris(tmp_path):
    pytest.importorskip("atheris", reason="atheris is not installed: pip install -e '.[fuzz]'")
    script = ROOT / "tests" / "attackers" / "fuzz_parsers.py"
    command = [sys.executable, str(script), str(tmp_path / "corpus"), "-max_total_time=60"]
    limits = ["-rss_limit_mb=2048", "-timeout=20", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([*command, *limits], capture_output=True, text=True, timeout=2000, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "Done " in done.stderr
