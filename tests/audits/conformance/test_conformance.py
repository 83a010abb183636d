"""Conformance: runs as they are pass every check, and each check complains of what it is there for."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import small
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.audits.conformance.checks import CHECKS, Finding, Record, check
from secure_fedgraph.audits.conformance.data import rows_in, surprise
from secure_fedgraph.audits.conformance.secrets import secrets_in
from secure_fedgraph.core.crypto import AgreementKey, Identity
from secure_fedgraph.core.errors import BadInput, Refused
from secure_fedgraph.core.protection.party import Party
from secure_fedgraph.core.upload import Upload
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


def test_a_node_with_two_homes_breaks_a_claim(monkeypatch):
    made = run("fedego-sums", P.distributed_dp(1.0, 2.0))
    for own in made.federation.owners.values():
        monkeypatch.setattr(own, "home", torch.ones_like(own.home))
    assert "home" in {finding.where for finding in check(made)}


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
        P.masked(bits=20),
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
    [("unit", "node"), ("relation", "replace"), ("computational", False), ("data", "others")],
)
def test_a_charge_is_of_its_channel_and_of_one_owners_data(key: str, value: Any) -> None:
    made = run("fedavg", POLICIES["distributed_dp"]())
    assert not found(made, "ledger")
    first = replace(made.charges[0], **{key: value})
    second = replace(made.charges[0], exchange=made.charges[0].exchange + 1)  # the same owner's
    changed = found(replace(made, charges=(first, *made.charges[1:], second)), "ledger")
    assert any(key in str(one) for one in changed)


def test_every_check_has_a_name_and_a_line():
    for name, one in CHECKS.items():
        assert one.__doc__ and name


def test_a_finding_reads_as_a_sentence():
    assert str(Finding("ledger", "update", "nobody paid")) == "ledger: update: nobody paid"


def changed_note(made: sfg.Run, **fields: Any) -> sfg.Run:
    made.transcript.sent[-1] = replace(made.transcript.sent[-1], **fields)
    return made


def test_bytes_that_were_noted_wrong():
    assert found(sage(P.plaintext()), "bytes") == []
    (wrong,) = found(changed_note(sage(P.plaintext()), bytes=7), "bytes")
    assert "is noted as 7 bytes" in wrong.what


def test_traffic_that_leaves_something_out(monkeypatch):
    made = sage(P.plaintext())
    traffic = made.transcript.traffic
    monkeypatch.setattr(made.transcript, "traffic", lambda: {**traffic(), "up": traffic()["up"] - 1})
    assert len(found(made, "bytes")) == 1


def test_an_excess_that_nobody_was_told(monkeypatch):
    made = sage(P.plaintext())
    monkeypatch.setattr(type(made.policy["update"].carrier), "excess", lambda *_: ())
    said = {f.what for f in found(made, "excess")}
    assert any("single uploads" in what for what in said)
    assert any("the published excess" in what for what in said)


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


def test_secrets_are_found_wherever_they_hide():
    made = sage(P.masked())
    assert found(made, "secrets") == []
    key = AgreementKey.generate()
    hidden = {
        "a list": [{"deep": (key,)}],
        "a closure": lambda: key,
        "an attribute": Party("owner-0", Identity.generate(), {}),
        "a bound method": key.shared_with,
        "a default": lambda kept=key: kept,
    }
    assert {place for place, _ in secrets_in(hidden)} == set(hidden)
    made.state["kept"] = key  # type: ignore[assignment]
    (wrong,) = found(made, "secrets")
    assert "AgreementKey can be reached from its state" in wrong.what


# --- data in messages

X = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
BITS = (torch.rand(6, 96, generator=torch.Generator().manual_seed(0)) < 0.3).float()


def owner(x: torch.Tensor) -> Any:
    generator = torch.Generator().manual_seed(1)
    return Data(
        x=x,
        y=torch.randint(0, 7, (40,), generator=generator),
        edge_index=torch.randint(0, 40, (2, 60), generator=generator),
    )


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda g: g.x[3].numpy().tobytes(), "a row as float32"),
        (lambda g: g.x[3].double().numpy().tobytes(), "a row as float64"),
        (lambda g: g.x[3].half().numpy().tobytes(), "a row as float16"),
        (lambda g: (-g.x[3]).numpy().tobytes(), "a negated row"),
        (lambda g: g.x[3].sort().values.numpy().tobytes(), "a sorted row"),
        (lambda g: g.y.to(torch.int8).numpy().tobytes(), "its labels"),
        (lambda g: g.y.float().numpy().tobytes(), "its labels"),
        (lambda g: g.edge_index.numpy().tobytes(), "its links"),
    ],
)
@pytest.mark.parametrize("offset", [0, 5])
def test_data_are_found_byte_by_byte(make, what, offset):
    graph = owner(X)
    raw = bytes(offset) + b"before" + make(graph) + b"behind"
    assert ("owner-0", what) in rows_in(raw, {"owner-0": graph})
    assert rows_in(raw[:-20], {"owner-0": graph}) != [("owner-0", what)] or what == "its links"
    assert rows_in(np.random.default_rng(0).bytes(20_000), {"owner-0": graph}) == []


def test_rows_of_bits_are_found_as_bytes():
    graph = owner(BITS)
    raw = BITS[2].to(torch.int8).numpy().tobytes()
    assert rows_in(b"12345" + raw, {"owner-0": graph}) == [("owner-0", "a row as int8")]


def test_plain_rows_are_left_out():
    plain = torch.zeros(6, 32)
    plain[:, 0] = 1
    assert surprise(plain.numpy()).max() == pytest.approx(5.0)
    assert rows_in(plain[0].numpy().tobytes() * 3, {"owner-0": owner(plain)}) == []


def sending(change: Callable[[torch.Tensor], torch.Tensor]) -> sfg.Run:
    """A run in which somebody adds something made of its rows to the upload."""
    algorithm = sfg.FedSage(hidden=(4,), fanout=(2,), crowd=15)
    work = algorithm.update

    def leaking(client: Any, given: Any) -> Upload:
        values = work(client, given).values
        return Upload({**values, "more": change(client.graph.x[:4])})

    algorithm.update = leaking  # type: ignore[method-assign]
    algorithm.round = lambda round, state: (round.reduce(algorithm.UPDATE, state), state)[1]  # type: ignore[method-assign]
    return sfg.train(algorithm, federation(), P.plaintext(), rounds=1, keep=everything)


@pytest.mark.parametrize(
    "change", [lambda x: x, lambda x: -x, lambda x: 0.017 * x, lambda x: -3 * x.T, lambda x: x.repeat(2, 1)]
)
def test_rows_in_an_upload_are_found(change):
    told = {f.what.split(" holds ")[1] for f in found(sending(change), "data")}
    assert any(what.startswith("a row") for what in told)


def test_a_mean_of_many_rows_is_none():
    assert found(sending(lambda x: x.mean(0, keepdim=True)), "data") == []
