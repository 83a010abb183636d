"""The homomorphic carrier: dealing, adding, opening once."""

from __future__ import annotations

import numpy as np
import pytest
from parties import NAMES, Toy, scope, session, vectors

from secure_fedgraph.core import wire
from secure_fedgraph.core.carriers.homomorphic.scheme import Adder, SecretKey
from secure_fedgraph.core.carriers.homomorphic.sums import Homomorphic
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.policies import homomorphic

STEP = 2.0**-24  # limit 8, three clients, ring 2**30: see test_encoding


@pytest.fixture
def made():
    return session(homomorphic()).set_up()


def last(made, step: str) -> tuple[str, Message, Message]:
    name, request, reply = next(p for p in reversed(made.passed) if Message.from_bytes(p[1]).step == step)
    return name, Message.from_bytes(request), Message.from_bytes(reply)


def test_the_ring_is_shared_out_among_everybody():
    bound = Homomorphic().bind(BindContext(Channel("update", Reveal.SUM), NAMES, "zero-out", 2**30))
    assert bound.parameters.bound == 178_956_970  # 2**29 / 3, rounded down
    assert bound.parameters.contributors == 3


@pytest.mark.parametrize("scheme", ["bfv", "ckks"])
def test_the_sum_is_the_fixed_point_sum_under_both_schemes(scheme):
    made = session(homomorphic(scheme=scheme)).set_up()
    total = made.round().reduce(Toy.UPDATE).total["w"].numpy()
    expected = sum(np.rint(v.astype(np.float64) / STEP) for v in vectors(made).values()) * STEP
    assert total.tolist() == expected.tolist()


def test_another_scheme_is_refused_by_name():
    with pytest.raises(BadInput, match=r"'bgv'.*'bfv'"):
        session(homomorphic(scheme="bgv"))


def test_clients_that_were_given_different_things_do_not_open_together(made):
    # else a server that gives all but one client zeros reads that one's update in the sum
    made.courier._exchange += 2
    number = made.courier._exchange
    uploads = []
    for name in NAMES:
        body = wire.encode({"times": 1.0 if name == NAMES[0] else 0.0})
        uploads.append(made.tell(made.message(name, exchange=number - 1, body=body))["data"])
    total = Adder(made.policy["update"].carrier.parameters).add([bytes(u) for u in uploads], 5)
    body = wire.encode({"total": total, "exchange": number - 1})
    with pytest.raises(HostileMessage, match="does not hold"):
        made.tell(made.message(NAMES[0], step="open", exchange=number, body=body))


def test_everybody_holds_the_dealers_key_and_the_courier_saw_it_sealed(made):
    keys = {party.secrets["homomorphic/key"].to_bytes() for party in made.parties.values()}
    assert len(keys) == 1
    (key,) = keys
    assert not any(key in raw or key in reply for _, raw, reply in made.passed)


def test_opened_once(made):
    made.round().reduce(Toy.UPDATE)
    name, request, _ = last(made, "open")
    again = wire.decode(request.body)
    repeat = made.message(name, step="open", exchange=made.courier._exchange + 1, body=wire.encode(again))
    with pytest.raises(HostileMessage, match="opens a sum once, and only one that it contributed to"):
        made.tell(repeat)
    made.courier._exchange += 1


@pytest.mark.parametrize(
    "ask",
    [
        {"exchange": 10**6},
        {"exchange": -1},
        {"exchange": np.arange(3)},
        {"exchange": 1.0},
        {"exchange": "1"},
        {"total": 3},
        {"total": None},
    ],
)
def test_nothing_else_is_opened(made, ask):
    made.courier._exchange += 2
    number = made.courier._exchange
    made.tell(made.message("owner-0", exchange=number - 1))  # contributes
    given = {"total": b"", "exchange": number - 1, **ask}
    body = wire.encode({k: v for k, v in given.items() if v is not None})
    with pytest.raises(HostileMessage, match="opens a sum once"):
        made.tell(made.message("owner-0", step="open", exchange=number, body=body))


@pytest.mark.parametrize("cohort", [("owner-1", "owner-0", "owner-2"), ("owner-1", "owner-2"), ("owner-1",)])
def test_a_second_opener_by_another_cohort(made, cohort):
    # Every client of a cohort contributed; if the asker could name the opener, each would open once.
    made.round().reduce(Toy.UPDATE)
    _, request, _ = last(made, "open")
    made.courier._exchange += 1
    asked = made.message(
        "owner-1", step="open", exchange=made.courier._exchange, cohort=cohort, body=request.body
    )
    with pytest.raises(HostileMessage, match="opens a sum once"):
        made.tell(asked)


def test_not_under_another_channel(made):
    made.courier._exchange += 2
    number = made.courier._exchange
    made.tell(made.message("owner-0", exchange=number - 1))
    body = wire.encode({"total": b"", "exchange": number - 1})
    with pytest.raises(HostileMessage, match="opens a sum once"):
        made.tell(made.message("owner-0", "carrier/homomorphic", number, step="open", body=body))


def test_keys_out_of_order(made):
    number, made.courier._exchange = made.courier._exchange + 1, made.courier._exchange + 9
    with pytest.raises(HostileMessage, match="not its to deal"):
        made.tell(made.message("owner-0", "carrier/homomorphic", number, step="deal"))
    with pytest.raises(HostileMessage, match="handed a key out of order"):
        made.tell(made.message("owner-1", "carrier/homomorphic", number, step="take"))
    with pytest.raises(HostileMessage, match="no step 'steal'"):
        made.tell(made.message("owner-1", "carrier/homomorphic", number + 1, step="steal"))
    fresh = session(homomorphic())
    with pytest.raises(HostileMessage, match="asked to encrypt before it had a key"):
        fresh.tell(fresh.message("owner-0"))


def test_a_reader_without_all_uploads_opens_nothing(made):
    bound = made.policy["update"]
    layout = Layout((("w", (5,)),))

    def ask(step, given):
        raise AssertionError("nothing is to be opened")

    with pytest.raises(Refused, match="nothing was opened"):
        bound.carrier.open_sum({"owner-0": b""}, layout, scope(), ask)
    with pytest.raises(HostileMessage, match="owner-2's upload is no ciphertext"):
        bound.carrier.open_sum({"owner-0": b"", "owner-1": b"", "owner-2": 1}, layout, scope(), ask)


def damaged(upload: bytes) -> bytes:
    return upload[:200] + b"\xff" * 60 + upload[260:]  # of the right length: SEAL alone can tell


@pytest.mark.parametrize("garbage", [damaged, lambda upload: b"", lambda upload: upload[:-1]])
def test_clients_whose_bytes_are_no_ciphertext_are_named_and_no_other_is(made, garbage):
    def tamper(name, reply):
        if reply.step != "answer" or name == "owner-1":
            return reply
        body = wire.decode(reply.body)
        return Message(**{**vars(reply), "body": wire.encode({**body, "data": garbage(bytes(body["data"]))})})

    made.tamper = tamper
    with pytest.raises(HostileMessage) as refused:
        made.round().reduce(Toy.UPDATE)
    assert [name in str(refused.value) for name in NAMES] == [True, False, True]


def test_a_dealer_that_seals_garbage_is_named():
    made = session(homomorphic())

    def tamper(name, reply):
        if reply.step != "deal":
            return reply
        return Message(**{**vars(reply), "body": wire.encode(dict.fromkeys(NAMES[1:], bytes(60)))})

    made.tamper = tamper
    with pytest.raises(HostileMessage, match="owner-0"):
        made.set_up()


def test_an_opener_that_opens_something_else(made):
    def tamper(name, reply):
        if reply.step != "open":
            return reply
        return Message(**{**vars(reply), "body": wire.encode({"values": np.zeros(4, dtype=np.int32)})})

    made.tamper = tamper
    with pytest.raises(HostileMessage, match="owner-0 opened a sum of another length"):
        made.round().reduce(Toy.UPDATE)
    made.tamper = None


def test_equal_uploads_are_not_equal_ciphertexts(made):
    key: SecretKey = made.parties["owner-0"].secrets["homomorphic/key"]
    assert key.encrypt(np.zeros(5, dtype=np.int64)) != key.encrypt(np.zeros(5, dtype=np.int64))
