"""Uploads of a masked sum that a quorum has opened: who lied, and what stops a false opening."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import secure_fedgraph as sfg
from secure_fedgraph.attacks.active.lies import ReversedUpdate
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.carriers.secagg import openings
from secure_fedgraph.core.carriers.secagg.openings import Request, opened
from secure_fedgraph.core.crypto import AgreementKey
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.protection.gaussian import Clip
from secure_fedgraph.core.spending.ledger import Ledger, read_ledger
from secure_fedgraph.disputes import judging, record
from secure_fedgraph.privacy.spent import spent

NAMES = ("owner-0", "owner-1", "owner-2")
LIAR, LIED, SENT = "owner-0", 4, {}
NAMED = {judging.APART: [LIAR]}
pytestmark = pytest.mark.filterwarnings("ignore")


class InRoundFour(ReversedUpdate):
    """One owner turns its update around, in one round."""

    @classmethod
    def sent(cls, update, client):
        lie = super().sent(update, client) if client.round == LIED else update
        SENT[client.round] = np.concatenate([value.numpy().reshape(-1) for value in lie.values()])
        return lie


def federation():
    return sfg.federate("synthetic-citation", clients=3, nodes=300, features=12, seed=0)


def trained(out, kind=None, policy=None, **options):
    kind = InRoundFour.plays(sfg.FedSage) if kind is None else kind
    policy = sfg.policies.masked(disputes=3) if policy is None else policy
    return sfg.train(kind(), federation(), policy, seed=0, out=out, **{"rounds": 5, **options})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("disputed")
    return out, trained(out)


class Case:
    """Three owners, an auditor, and the record of a finished run."""

    def __init__(self, out: Path, run, ledger: Path, round=LIED):
        self.sums, self.key = record.read_sums(out / "disputes" / "sums", round), AgreementKey.generate()
        self.bound, self.ledger, self.parties = run.policy["update"], Ledger(ledger), {}
        for name in NAMES:
            folder = record.owner_folder(out, name)
            kept = openings.read_file(folder / openings.FILE)
            self.roster = {one: bytes.fromhex(public) for one, public in kept["roster"].items()}
            party = Party(name, record.identity_in(folder), self.roster)
            party.secrets[openings._KEPT] = kept  # not the run's own file, which other tests read
            self.parties[name] = party
        run_name = self.sums[0]["run"] if self.sums else "of another time"
        self.request = Request(run_name, round, "update", NAMES, self.key.public)

    def signed(self, *names, request=None):
        statement = (request or self.request).statement
        return {name: self.parties[name].identity.sign(statement) for name in names or NAMES}

    def opened(self, name, signed=None, request=None):
        signed = self.signed() if signed is None else signed
        return opened(request or self.request, signed, self.parties[name], self.ledger)

    def all_opened(self):
        return {name: self.opened(name) for name in NAMES}

    def judged(self, opened=None, bound=None):
        opened = self.all_opened() if opened is None else opened
        signed, bound = self.signed(), bound or self.bound
        return judging.judge(self.request, signed, opened, self.sums, self.key, self.roster, bound)

    def verdicts(self, opened=None):
        return {one.name: one.verdict for one in self.judged(opened).findings}


@pytest.fixture
def case(run, tmp_path):
    return Case(*run, tmp_path / "ledger.jsonl")


def test_the_auditor_names_the_liar_and_clears_the_others(case, run, tmp_path):
    judged = case.judged()
    assert judged.sums is True
    assert judged.named == NAMED
    assert "times the others' median" in judged.findings[0].reasons[0]
    assert any("opened to an auditor" in one for one in case.bound.excess)
    assert Case(*run, tmp_path / "another", round=LIED - 1).judged().named == {}  # accused for nothing


@pytest.mark.parametrize(
    ("norms", "apart"),
    [((100, 1), "0"), ((1, 100), "1"), ((1, 2.9), ""), ((1, 0), "1"), ((0, 0), ""), ((1, 1, 9), "2"),
     ((1, 2, 3, 0), "3"), ((0.01, 1, 1), ""), ((5,), ""), ((0, 0, 1), "01")],
)  # fmt: skip
def test_who_stands_apart_is_compared_with_the_others(norms, apart):
    values = {str(at): np.full(4, float(one)) for at, one in enumerate(norms)}
    findings = {name: judging.Finding(name) for name in values}
    judging._compare(values, findings)
    assert "".join(name for name, one in findings.items() if one.verdict == judging.APART) == apart


def test_what_is_opened_is_what_was_sent(case):
    one = judging._Sum(case.sums[0], case.request, case.roster, case.bound)
    seeds = judging.read_opening(case.opened(LIAR), LIAR, case.request, case.key, case.roster)
    values, tally = one.values(one.words(LIAR, seeds[one.exchange]))
    assert np.abs(values - SENT[LIED]).max() <= case.bound.public["grid"] / 2
    assert tally.tolist() == [0]


def test_a_quorum_of_one_opens_nothing_and_costs_nothing(case):
    with pytest.raises(Refused, match="1 of 3 owners signed"):
        case.opened(LIAR, case.signed("owner-1"))
    assert case.ledger.charges == ()
    assert case.opened(LIAR, case.signed("owner-1", "owner-2"))


def test_the_auditor_reads_nothing_without_a_quorum(case):
    given = (case.all_opened(), case.sums, case.key, case.roster, case.bound)
    with pytest.raises(Refused, match="1 owners signed the request, and it takes 2"):
        judging.judge(case.request, {**case.signed(LIAR), "owner-9": bytes(64)}, *given)
    with pytest.raises(HostileMessage, match="signature"):
        judging.judge(case.request, {**case.signed(LIAR), "owner-1": bytes(64)}, *given)


@pytest.mark.parametrize(
    "changed", [{"round": 3}, {"auditor": bytes(32)}, {"channel": "scores"}, {"run": "another"}], ids=str
)
def test_signatures_of_another_request_are_refused(case, changed):
    signed = case.signed(request=replace(case.request, **changed))
    with pytest.raises(HostileMessage, match="signature"):
        case.opened(LIAR, signed)


def test_a_stranger_and_a_request_about_others_are_refused(case):
    stranger = {**case.signed("owner-1"), "owner-9": bytes(64)}
    with pytest.raises(HostileMessage, match="strangers"):
        case.opened(LIAR, stranger)
    others = replace(case.request, owners=("owner-1", "owner-2"))
    with pytest.raises(HostileMessage, match="not its own"):
        case.opened(LIAR, case.signed(request=others), others)


def test_a_round_is_opened_to_one_auditor(case):
    case.opened(LIAR)
    again = replace(case.request, auditor=AgreementKey.generate().public)
    with pytest.raises(Refused, match="another auditor"):
        case.opened(LIAR, case.signed(request=again), again)
    assert case.opened(LIAR)


def test_an_opening_is_charged_before_it_leaves(case):
    case.opened(LIAR)
    (charge,) = read_ledger(case.ledger.path)
    assert (charge.client, charge.round, charge.channel) == (LIAR, LIED, "update, opened to an auditor")
    assert math.isinf(spent([charge], 1e-5)["client"]["outsider"].epsilon)


def test_rounds_that_are_over_are_kept_by_nobody(case, run, tmp_path):
    assert Case(*run, tmp_path / "another", round=2).sums == []
    early = replace(case.request, round=2)
    with pytest.raises(Refused, match="keeps no seeds of round 2"):
        case.opened(LIAR, case.signed(request=early), early)


@pytest.mark.parametrize("seed", [0, 1])
def test_who_opens_other_values_is_caught(case, seed):
    kept = case.parties[LIAR].secrets[openings._KEPT]
    for one in kept["sums"]:
        seeds = bytearray.fromhex(one["seeds"])
        seeds[32 * seed] ^= 1
        one["seeds"] = seeds.hex()
    verdicts = case.verdicts()
    assert verdicts == {LIAR: judging.BROKE, "owner-1": judging.CLEARED, "owner-2": judging.CLEARED}
    assert case.judged().sums is None


def test_what_its_owner_did_not_sign_blames_nobody_for_a_lie(case):
    """Whoever hands another's opening on cannot make it look like a lie."""
    forger = Party("owner-1", case.parties[LIAR].identity, case.roster)
    forger.secrets[openings._KEPT] = case.parties[LIAR].secrets[openings._KEPT]  # seeds that do not fit
    forged = opened(case.request, case.signed(), forger, case.ledger)
    assert case.verdicts({**case.all_opened(), "owner-1": forged})["owner-1"] == judging.SILENT
    changed = {**case.opened("owner-1"), "content": b"something"}
    assert case.verdicts({**case.all_opened(), "owner-1": changed})["owner-1"] == judging.SILENT
    assert case.verdicts({"owner-1": case.opened("owner-1")})["owner-2"] == judging.SILENT


def test_an_owner_signs_for_one_auditor(case):
    again = replace(case.request, auditor=AgreementKey.generate().public)
    openings.agreed(case.request, case.parties[LIAR])
    assert openings.agreed(case.request, case.parties[LIAR])
    for refused in (lambda: openings.agreed(again, case.parties[LIAR]), lambda: case.opened(LIAR, {}, again)):
        with pytest.raises(Refused, match="another auditor"):
            refused()


@pytest.mark.parametrize("wrong", [{"total/": None}, {"noise/owner-1": 5}, {"noise/owner-1": b"short"}])
def test_a_record_without_its_sum_judges_nobody(case, wrong):
    (one,) = case.sums
    names = {key: next((name for name in one if name.startswith(key)), key) for key in wrong}
    changed = {**one, **{names[key]: value for key, value in wrong.items()}}
    case.sums = [{key: value for key, value in changed.items() if value is not None}]
    with pytest.raises(BadInput, match="nobody is judged"):
        case.judged()


@pytest.mark.parametrize("what", ["upload/owner-1", "senders/owner-1", "given", "advertised", "exchange"])
def test_a_record_that_owners_did_not_sign_judges_nobody(case, what):
    (one,) = case.sums
    value = one[what]
    changed = value + 1 if isinstance(value, int) else "" if isinstance(value, str) else None
    if changed is None:
        changed = bytearray(value)
        changed[len(changed) // 2] ^= 1
        changed = bytes(changed)
    case.sums = [{**one, what: changed}]
    with pytest.raises(BadInput, match="nobody is judged"):
        case.judged()


def test_a_policy_without_disputes_judges_nobody(case):
    for carrier in (Plain(), replace(case.bound.carrier, disputes=0)):
        with pytest.raises(BadInput, match="is not masked with"):
            case.judged(bound=replace(case.bound, carrier=carrier))


def test_an_upload_that_nobody_asked_for_is_not_judged(case):
    case.request = replace(case.request, owners=NAMES[:2])
    with pytest.raises(BadInput, match="nobody is judged"):
        case.judged({})


def test_a_server_that_used_another_sum_is_seen(case):
    (one,) = case.sums
    total = next(key for key in one if key.startswith(record.TOTAL))
    case.sums = [{**one, total: one[total] + 1e-3}]
    assert case.judged().sums is False
    assert case.judged().named == NAMED


def test_uploads_without_their_owners_signature_are_left_out(tmp_path, monkeypatch):
    sealed = openings.signed_and_kept

    def unsigned(reply, scope, party, rounds, signers):
        made = sealed(reply, scope, party, rounds, signers)
        if party.name == "owner-1":
            made[openings.SIGNATURE] = np.zeros_like(made[openings.SIGNATURE])
        return reply if party.name == LIAR else made

    monkeypatch.setattr(openings, "signed_and_kept", unsigned)
    with pytest.raises(Refused, match=r"(?s)owner-0 did not sign.*owner-1 signed another upload"):
        trained(tmp_path, rounds=1)


def test_a_killed_run_that_goes_on_can_be_disputed(tmp_path):
    def killed(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, on_round=killed)
    run = trained(tmp_path, resume=True)
    for round in (3, LIED):  # the third was asked for twice, and its first sum is used by nobody
        case = Case(tmp_path, run, tmp_path / "ledger.jsonl", round)
        assert len(case.sums) == 1
        assert case.judged().sums is True
        assert case.judged().named == (NAMED if round == LIED else {})


class ThreeSums(sfg.FedSage):
    """Three sums a round on one channel."""

    def round(self, round, state):
        for _ in range(3):
            state = super().round(round, state)
        return state


def test_several_sums_of_one_set_up(tmp_path):
    run = trained(tmp_path, ThreeSums, sfg.policies.masked(disputes=1, bits=20), rounds=2)
    case = Case(tmp_path, run, tmp_path / "ledger.jsonl", round=2)
    assert [one["number"] for one in case.sums] == [0, 1, 2]
    assert (case.judged().sums, case.judged().named) == (True, {})


def test_noise_that_was_taken_off_and_a_clip(tmp_path):
    policy = sfg.policies.distributed_dp(norm=0.1, multiplier=0.001, quorum=2, disputes=1)
    run = trained(tmp_path, policy=policy, rounds=1)
    case = Case(tmp_path, run, tmp_path / "ledger.jsonl", round=1)
    assert any(key.startswith("noise/") for key in case.sums[0])
    assert (case.judged().sums, case.judged().named) == (True, {})
    stages = (Clip(0.01, whole=True), *case.bound.stages[1:])
    tighter = case.judged(bound=replace(case.bound, stages=stages))
    assert {one.verdict for one in tighter.findings} == {judging.BROKE}
    assert "beyond the clip 0.01" in tighter.findings[0].reasons[0]


def test_off_by_default_and_not_under_a_budget(tmp_path):
    trained(tmp_path, policy=sfg.policies.masked(), rounds=1)
    assert not (tmp_path / record.FOLDER).exists()
    with pytest.raises(BadInput, match="disputes"):
        sfg.policies.masked(disputes=-1)
    with pytest.raises(BadInput, match="exceeds every budget"):
        sfg.train(
            sfg.FedSage(), federation(), sfg.policies.distributed_dp(norm=1.0, multiplier=9.0, disputes=2),
            rounds=1, budget=sfg.Budget(8.0, 1e-5, "client"),
        )  # fmt: skip
