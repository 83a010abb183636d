"""Conformance: runs as they are pass every check, and each check complains of what it is there for."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.audits.conformance import checks
from secure_fedgraph.audits.conformance.checks import CHECKS, check
from secure_fedgraph.audits.record import Finding, Record
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.links import RandomisedLinks
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
            rounds=1,
            keep=everything,
            allow_plaintext=True,
            **more,
        )


POLICIES: dict[str, Callable[[], Any]] = {
    "plaintext": P.plaintext,
    "masked": P.masked,
    "strictest": P.strictest,
    "local_dp": lambda: P.local_dp(1.0, 2.0),
    "distributed_dp": lambda: P.distributed_dp(1.0, 2.0, quorum=3, limit=4.0),
}
FAST = {(n, "masked") for n in ("fedego", "glasu", "gin-fedavg")} | {("fedavg", p) for p in POLICIES}
FAST |= {("fedsage+", "plaintext"), ("fairgraphfl", "plaintext")}
CELLS = [
    pytest.param(*cell, marks=() if cell in FAST else pytest.mark.slow)
    for cell in itertools.product(ALGORITHMS, POLICIES)
]


@pytest.mark.parametrize(("name", "policy"), CELLS)
def test_runs_as_they_are_pass(name, policy):
    try:
        made = run(name, POLICIES[policy]())
    except (Refused, BadInput) as refusal:
        pytest.skip(str(refusal))
    assert [str(finding) for finding in check(made)] == []


@cache
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=5, nodes=120, features=64, seed=0)


def sage(policy: Any, rounds: int = 2, **more: Any) -> sfg.Run:
    algorithm = sfg.FedSage(hidden=(4,), fanout=(2,), crowd=15)
    return sfg.train(algorithm, federation(), policy, rounds=rounds, keep=everything, **more)


@pytest.mark.parametrize(
    "policy",
    [
        P.central_dp(1.0, 2.0),
        P.homomorphic(),
        P.masked(bits=20, disputes=2),
        P.local_dp(1.0, 2.0, "replace"),
        replace(P.masked(), steps=PrivateSteps(4.0, rate=0.2, steps=2)),
        replace(P.plaintext(), randomizers=(RandomisedLinks(2.0),)),
    ],
    ids=["central_dp", "homomorphic", "20 bits", "replaced", "steps", "links"],
)
def test_other_roads_pass(policy):
    assert [str(finding) for finding in check(sage(policy))] == []


def test_who_drops_out_is_not_missed():
    made = sage(P.masked(), dropouts=Dropouts(0.4, seed=1))
    assert {len(o.contributors) for o in made.transcript.opened if o.channel == "update"} != {5}
    assert [str(finding) for finding in check(made)] == []


def test_a_run_that_kept_nothing_is_refused():
    made = sfg.train(sfg.FedSage(hidden=(4,), fanout=(2,), crowd=15), federation(), P.plaintext(), rounds=1)
    with pytest.raises(BadInput, match="keep=everything"):
        check(made)


# --- each check on a record that was changed


def found(made: sfg.Run, name: str) -> list[Finding]:
    return list(CHECKS[name](Record(made)))


@pytest.mark.parametrize("change", [lambda own: [], lambda own: own * 2], ids=["never", "twice"])
def test_randomised_inputs_are_paid_for_once(change):
    made = sage(replace(P.plaintext(), randomizers=(RandomisedLinks(2.0),)))
    others = [charge for charge in made.charges if charge.channel != "links"]
    own = change([charge for charge in made.charges if charge.channel == "links"])
    changed = replace(made, charges=(*others, *own))
    assert "links" in {one.where for name in CHECKS for one in found(changed, name)}


@pytest.mark.parametrize(
    ("key", "value"),
    [("unit", "node"), ("relation", "replace"), ("computational", False)],
)
def test_a_charge_is_of_its_channel(key: str, value: Any) -> None:
    made = run("fedavg", POLICIES["distributed_dp"]())
    assert not found(made, "ledger")
    first = replace(made.charges[0], **{key: value})
    second = replace(made.charges[0], exchange=made.charges[0].exchange + 1)  # the same owner's
    changed = found(replace(made, charges=(first, *made.charges[1:], second)), "ledger")
    assert any(key in str(one) for one in changed)


def test_a_finding_reads_as_a_sentence():
    assert str(Finding("ledger", "update", "nobody paid")) == "ledger: update: nobody paid"


def test_a_domain_that_is_another(monkeypatch):
    made = sage(P.plaintext())
    record = Record(made)
    record.replies[0][1]["domain"] = "masked"
    (wrong,) = CHECKS["domains"](record)
    assert "sent 'masked' numbers, the policy promises real" in wrong.what
    record = Record(made)
    record.replies[0][1]["data"] = np.zeros(3)
    (wrong,) = CHECKS["domains"](record)
    assert "sent float64 where real numbers travel" in wrong.what


def test_an_upload_on_a_channel_that_nobody_bound():
    made = sage(P.plaintext())
    made.transcript.sent[-1] = replace(made.transcript.sent[-1], channel="aside")
    last = [s for s in made.transcript.sent if s.recipient == "server"][-1]
    made.transcript.sent[made.transcript.sent.index(last)] = replace(last, channel="aside")
    assert {f.where for f in found(made, "domains")} == {"aside"}
    assert {f.where for f in found(made, "ledger")} >= {"aside"}


def test_words_that_are_not_uniform():
    made = sage(P.masked())
    record = Record(made)
    assert list(CHECKS["uniform"](record)) == []
    for _, tree in record.replies:
        tree["data"] = np.asarray(tree["data"]) % 2**24
    assert {f.check for f in CHECKS["uniform"](record)} == {"uniform"}


@pytest.mark.parametrize(("off", "found"), [(0.0, []), (0.2, ["grid"])])
def test_a_sum_of_a_million_steps_is_on_the_grid_as_far_as_float32_goes(off: float, found: list[str]) -> None:
    whole, step = np.arange(10**6, 10**6 + 500) + off, 0.0123
    sent = (whole * step).astype(np.float32).astype(np.float64) / step
    assert np.abs(sent - whole).max() > checks.WHOLE
    record: Any = SimpleNamespace(each=1e-9)
    assert [one.check for one in checks._noised(record, {}, "step", "server", sent, 1.0)] == found
