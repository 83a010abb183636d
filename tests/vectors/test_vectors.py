"""The public vectors: the code makes them and refuses what it must; an independent reader agrees."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import independent_reader as reader
import numpy as np
import pytest
from changed_messages import applied
from fixed_draws import fixed
from vector_files import HERE, MADE, stored, written
from vector_runs import PARCELS, SUMS, THREE, Run

from secure_fedgraph.core import crypto, wire
from secure_fedgraph.core.carriers import history, key_agreement
from secure_fedgraph.core.carriers.history import History
from secure_fedgraph.core.carriers.secagg import shamir
from secure_fedgraph.core.errors import HostileMessage, SecureFedGraphError
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.contracts import Party, Scope
from secure_fedgraph.core.upload import Layout

ROOT = HERE.parent.parent
RUNS = {"masked_sum": SUMS, "parcels": PARCELS}
Entry = dict[str, Any]


def taken(
    entries: Iterable[Entry], use: Callable[[Entry], object], refusal: type[Exception] = HostileMessage
) -> list[str]:
    """The reasons of those that are not refused. There is at least one to refuse."""
    found, listed = [], list(entries)
    for entry in listed:
        try:
            use(entry)
        except refusal:
            continue
        found.append(entry["why"])
    assert listed
    return found


def octets(entry: Entry, key: str = "bytes") -> bytes:
    return bytes.fromhex(entry[key]) + bytes(entry.get("and_zeros", 0))


def messages_to(record: Mapping[str, Any], name: str, after: int) -> list[Entry]:
    return [one for one in record["messages"][:after] if one["to"] == name]


class TestTheCode:
    @pytest.mark.parametrize("name", MADE)
    def test_it_makes_every_file(self, name: str) -> None:
        assert written(name) == (HERE / f"{name}.json").read_text(encoding="ascii"), (
            f"{name}.json is not what the code makes: if the format was meant to change, say so in "
            "docs/wire_format.md and run tests/vectors/vector_files.py"
        )

    def test_it_refuses_the_bodies(self) -> None:
        assert taken(stored("wire")["refused_bodies"], lambda one: wire.decode(octets(one))) == []

    def test_it_refuses_the_messages(self) -> None:
        assert taken(stored("wire")["refused_messages"], lambda one: Message.from_bytes(octets(one))) == []

    def test_it_refuses_the_layouts(self) -> None:
        texts = [{"why": text} for text in stored("wire")["refused_layouts"]]
        assert taken(texts, lambda one: Layout.from_text(one["why"])) == []

    def test_it_refuses_the_reports_of_missed_exchanges(self) -> None:
        held = stored("history")

        def use(one: Entry) -> None:
            listed = history.from_bytes(octets(one, "missed"))
            alike, once = (held["missed"][f"channels_that_give_{how}"] for how in ("alike", "once_a_round"))
            History("run-1", once).catch_up(listed, held["refused_missed_before"], alike)

        assert taken(held["refused_missed"], use) == []

    def test_it_refuses_the_public_keys(self) -> None:
        held = stored("key_agreement")
        own = party(held, held["refused_public_keys"][0]["own"]).secrets["agreement"]

        def use(one: Entry) -> None:
            own.shared_with(octets(one, "public"), b"any")

        assert taken(held["refused_public_keys"], use) == []

    def test_it_refuses_the_introductions(self) -> None:
        held = stored("key_agreement")

        def use(one: Entry) -> None:
            west = party(held, one["to"])
            scope = Scope(held["run"], 0, 2, "carrier/keys", tuple(held["clients"]))
            key_agreement.answer("introduce", wire.decode(octets(one, "body")), scope, west)

        assert taken(held["refused_introductions"], use) == []

    def test_it_refuses_the_seals(self) -> None:
        def use(one: Entry) -> None:
            crypto.unseal(*(octets(one, key) for key in ("key", "sealed", "bound")))

        assert taken(stored("key_agreement")["refused_seals"], use) == []

    def test_it_counts_no_number_beyond_the_field_as_a_share(self) -> None:
        held = stored("masked_sum")["secret_sharing"]
        rows = [*held["no_shares"], held["largest_share"]]
        found = shamir.are_shares(np.array([[*bytes.fromhex(one)] for one in rows], dtype=np.uint8))
        assert found == [False] * len(held["no_shares"]) + [True]

    @pytest.mark.parametrize("name", RUNS)
    def test_it_refuses_the_requests(self, name: str) -> None:
        record, run = stored(name), RUNS[name]

        def use(one: Entry) -> None:
            like = record["messages"][one["like"]]
            with run.client(record, like["to"], one["after"]) as door:
                door(applied(one, like["request"]))

        assert taken(record["refused_requests"], use, SecureFedGraphError) == []

    def test_its_server_does_not_take_the_replies(self) -> None:
        record = stored("masked_sum")
        assert {one["why"]: outcome(SUMS, record, one) for one in record["refused_replies"]} == {
            one["why"]: one["left_out"] for one in record["refused_replies"]
        }


def outcome(run: Run, record: Entry, one: Entry) -> list[str]:
    """Whom the server leaves out for a reply; nobody where it refuses to go on."""
    try:
        left_out = run.left_out(record, one["like"], applied(one, record["messages"][one["like"]]["reply"]))
    except SecureFedGraphError:
        return []
    return sorted(left_out) or ["it was taken"]


def party(held: Entry, name: str) -> Party:
    """A client that has advertised its key."""
    roster = {other: bytes.fromhex(key) for other, key in held["roster"].items()}
    with fixed() as draws, draws.as_party(name):
        found = Party(name, crypto.Identity.generate(), roster)
        scope = Scope(held["run"], 0, 1, "carrier/keys", THREE)
        key_agreement.answer("advertise", {}, scope, found)
    return found


class TestTheIndependentReader:
    """What is written to the page reads, makes and refuses the same."""

    def test_it_imports_nothing_of_ours(self) -> None:
        tree = ast.parse(Path(reader.__file__).read_text(encoding="utf-8"))
        tops = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                tops |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level and node.module
                tops.add(node.module.split(".")[0])
            elif isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("__import__", "exec", "eval", "open")
        assert "importlib" not in tops
        assert tops - sys.stdlib_module_names == {"numpy", "cryptography"}

    def test_bodies(self) -> None:
        for one in stored("wire")["bodies"]:
            tree = reader.decode(octets(one, "body"))
            assert [as_entry(name, value) for name, value in tree.items()] == one["entries"], one["name"]
            assert reader.encode(tree) == octets(one, "body"), one["name"]
            assert hashlib.sha256(reader.encode(tree)).hexdigest() == one["sha256"]
        refused = stored("wire")["refused_bodies"]
        assert taken(refused, lambda one: reader.decode(octets(one)), reader.Refused) == []

    def test_messages(self) -> None:
        for one in stored("wire")["messages"]:
            message = reader.Message.parse(octets(one))
            assert message.raw() == octets(one)
            assert {
                **vars(message),
                "cohort": list(message.cohort),
                "body": message.body.hex(),
                "missed": message.missed.hex(),
            } == {key: value for key, value in one.items() if key not in ("name", "bytes", "sha256")}
        refused = stored("wire")["refused_messages"]
        assert taken(refused, lambda one: reader.Message.parse(octets(one)), reader.Refused) == []

    def test_layouts(self) -> None:
        for one in stored("wire")["layouts"]:
            width = sum(int(np.prod(shape, dtype=np.int64)) for _, shape in one["tensors"])
            assert reader.layout_size(one["text"]) == one["rows"] * width
        texts = [{"why": text} for text in stored("wire")["refused_layouts"]]
        assert taken(texts, lambda one: reader.layout_size(one["why"]), reader.Refused) == []

    def test_history(self) -> None:
        held = stored("history")
        followed = reader.History(held["run"])
        assert followed.head.hex() == held["head"]
        for one in held["exchanges"]:
            given = reader.decode(octets(one, "given"))
            assert reader.written_anew(given).hex() == one["written_anew"]
            digest = reader.given_digest(one["cohort"], given)
            assert digest.hex() == one["digest"]
            followed.add(one["exchange"], one["round"], one["channel"], digest)
            assert followed.head.hex() == one["head"]
        missed, alike = octets(held["missed"]), held["missed"]["channels_that_give_alike"]
        caught = reader.History(held["run"])
        assert len(caught.catch_up(missed, 5, alike)) == 2
        assert caught.catch_up(missed, 6, alike) == []
        assert caught.head.hex() == held["missed"]["head"]
        before, once = held["refused_missed_before"], held["missed"]["channels_that_give_once_a_round"]

        def use(one: Entry) -> None:
            reader.History("run-1", once).catch_up(octets(one, "missed"), before, alike)

        assert taken(held["refused_missed"], use, reader.Refused) == []

    def test_keys(self) -> None:
        held, key = stored("key_agreement"), reader.Crypto()
        drawn = {name: [bytes.fromhex(one["value"]) for one in rows] for name, rows in held["drawn"].items()}
        own = {name: reader.X25519PrivateKey.from_private_bytes(rows[1]) for name, rows in drawn.items()}
        public = {name: one.public_key().public_bytes_raw() for name, one in own.items()}
        for name, one in held["advertised"].items():
            identity = reader.Ed25519PrivateKey.from_private_bytes(drawn[name][0])
            assert identity.public_key().public_bytes_raw().hex() == held["roster"][name]
            statement = reader.key_statement(held["run"], held["exchange"], name, public[name])
            assert (one["public"], one["signed"]) == (public[name].hex(), statement.hex())
            assert one["signature"] == identity.sign(statement).hex()
        for one in held["pairs"]:
            where = {name: one[name] for name in ("exchange", "channel", "reader", "offer", "given")}
            where["cohort"] = reader.joined(one["cohort"])
            info = reader.pair_info(one["purpose"], held["run"], one["own"], one["peer"], **where)
            assert key.shared(own[one["own"]], public[one["peer"]], info).hex() == one["key"]
            assert key.steps[-1] == {
                "step": "hkdf",
                **{name: one[name] for name in ("secret", "info", "key")},
            }
        assert held["pairs"][0]["secret"] == held["raw_shared_secret"]["secret"]
        for one in held["streams"]:
            assert reader.stream(octets(one, "key"), 48).hex() == one["stream"]
        for one in held["seals"]:
            parts = (octets(one, name) for name in ("key", "nonce", "plaintext", "bound"))
            assert key.seal(*parts).hex() == one["sealed"]
        assert (
            key.hkdf(*(octets(held["hkdf"], name) for name in ("secret", "info"))).hex()
            == held["hkdf"]["key"]
        )

        def refused_key(one: Entry) -> None:
            key.shared(own[one["own"]], octets(one, "public"), b"any")

        def refused_seal(one: Entry) -> None:
            key.unseal(*(octets(one, name) for name in ("key", "sealed", "bound")))

        def refused_introduction(one: Entry) -> None:
            silo = reader.Silo(
                {**held, "policy": {}, "channels": {}, "channels_that_give_alike": []}, one["to"]
            )
            place = (held["run"], 0, 1, "carrier/keys", "advertise", "server", one["to"], THREE)
            silo.key_step(reader.Message(*place, b""), {})
            again = reader.Message(*place[:4], "introduce", *place[5:], b"")
            silo.key_step(again, reader.decode(octets(one, "body")))

        assert taken(held["refused_public_keys"], refused_key, reader.Refused) == []
        assert taken(held["refused_seals"], refused_seal, reader.Refused) == []
        assert taken(held["refused_introductions"], refused_introduction, reader.Refused) == []

    def test_thresholds_and_circles(self) -> None:
        held = stored("masked_sum")
        for one in held["thresholds"]:
            asked = (one[key] for key in ("cohort", "present", "colluders", "dropouts", "roster"))
            assert reader.thresholds(*asked) == (one["signatures"], one["shares"], one["degree"])
        order = reader.circle(held["circle"]["names"], octets(held["circle"], "deck"))
        assert order == held["circle"]["order"]
        for degree, around in held["circle"]["neighbours_by_degree"].items():
            for name, near in around.items():
                assert reader.neighbours(order, int(degree), name) == tuple(near)

    def test_secret_sharing(self) -> None:
        held = stored("masked_sum")["secret_sharing"]
        assert int(held["prime"]) == reader.PRIME
        secrets = [numbered(one) for one in held["secrets"]]
        lines = [[numbered(one) for one in row] for row in held["coefficients_from_the_highest_power"]]
        for point, pair in held["shares"].items():
            for value, secret, line in zip(pair, secrets, lines, strict=True):
                assert reader.share(secret, line, int(point)) == numbered(value)
        wrong = {int(point): numbered(value) for point, value in held["two_wrong"]["shares"].items()}
        assert secrets[0] == numbered(held["two_wrong"]["secret"])
        assert secrets[0] in set(reader.rebuilt(wrong, held["threshold"]))
        assert all(numbered(one) >= reader.PRIME for one in held["no_shares"])

    def test_fixed_point_and_words(self) -> None:
        held = stored("masked_sum")
        for one in held["fixed_point"]:
            grid = reader.grid_of(one["limit"], one["bits"], one["clients"])
            numbers = reader.fixed_point(one["values"], one["limit"], grid)
            assert (grid, numbers) == (one["grid"], one["numbers"])
            assert [number * grid for number in numbers[:-1]] == one["read"]
            assert reader.packed(numbers, one["bits"]).tobytes().hex() == one["words"]
        for one in held["ring"]:
            keys = [(octets(one, "added"), 1), (octets(one, "subtracted"), -1)]
            words = reader.packed(reader.masked(one["numbers"], one["bits"], keys), one["bits"])
            assert (words.tobytes().hex(), words.dtype.name) == (one["words"], one["type"])
            back = reader.unpacked(words, one["bits"], len(one["numbers"]))
            opened = reader.masked(back, one["bits"], [(key, -sign) for key, sign in keys])
            assert [reader.centred(word, one["bits"]) for word in opened] == one["numbers"]

    @pytest.mark.parametrize("name", RUNS)
    def test_its_silos_give_every_reply_by_the_same_steps(self, name: str) -> None:
        record = stored(name)
        silos = {client: reader.Silo(record, client) for client in record["clients"]}
        for one in record["messages"]:
            silo = silos[one["to"]]
            assert silo.handle(octets(one, "request")).hex() == one["reply"]
            if "steps" in one:
                assert silo.crypto.steps == one["steps"]
        assert all(next(silo.drawn, None) is None for silo in silos.values()), "something was not drawn"
        if "read" in record:
            read = silos[record["read"]["client"]].opened[0]
            assert read == {key: record["read"][key] for key in ("total", "cut")}

    @pytest.mark.parametrize("name", RUNS)
    def test_its_silos_refuse_the_requests(self, name: str) -> None:
        record = stored(name)

        def use(one: Entry) -> None:
            like = record["messages"][one["like"]]
            silo = reader.Silo(record, like["to"])
            for earlier in messages_to(record, like["to"], one["after"]):
                silo.handle(octets(earlier, "request"))
            silo.handle(applied(one, like["request"]))

        assert taken(record["refused_requests"], use, reader.Refused) == []

    def test_its_server_opens_the_sums_without_those_that_left(self) -> None:
        record = stored("masked_sum")
        reader.Server(record, 0).introduce()
        for one in record["sums"]:
            server = reader.Server(record, one["round"])
            opened = server.open(octets(one, "history_head"))
            assert {key: opened[key] for key in ("contributors", "total", "cut")} == {
                key: one[key] for key in ("contributors", "total", "cut")
            }
            steps = sorted(json.dumps(step, sort_keys=True) for step in server.crypto.steps)
            assert steps == [json.dumps(step, sort_keys=True) for step in one["server_steps"]]
            by = next(u["by"] for u in record["uploads"] if u["round"] == one["round"])
            clear = np.sum([np.clip(by[name]["values"], -8, 8) for name in one["contributors"]], axis=0)
            assert np.abs(clear - opened["total"]).max() <= len(by) * record["policy"]["grid"]

    def test_its_server_does_not_take_the_replies(self) -> None:
        record = stored("masked_sum")

        def use(one: Entry) -> None:
            like = record["messages"][one["like"]]
            round = reader.Message.parse(octets(like, "request")).round
            server = reader.Server(record, round, {one["like"]: applied(one, like["reply"])})
            server.open(octets(record["sums"][0], "history_head")) if round else server.introduce()

        assert taken(record["refused_replies"], use, reader.Refused) == []


def as_entry(name: str, value: Any) -> Entry:
    """An entry as the files write it."""
    if isinstance(value, str):
        return {"name": name, "type": "text", "value": value}
    if isinstance(value, bytes):
        return {"name": name, "type": "bytes", "value": value.hex()}
    if isinstance(value, list):
        return {"name": name, "type": "texts", "value": value}
    values = [int(one) if value.dtype.kind == "b" else one for one in value.reshape(-1).tolist()]
    values = [str(one) if isinstance(one, int) and abs(one) > 2**53 else one for one in values]
    values = [str(one) if isinstance(one, float) and not np.isfinite(one) else one for one in values]
    return {"name": name, "type": value.dtype.name, "shape": list(value.shape), "values": values}


def numbered(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text), "little")


class TestTheFiles:
    def test_the_page_names_each_and_nothing_else_lies_there(self) -> None:
        page = (ROOT / "docs" / "wire_format.md").read_text(encoding="utf-8")
        files = {path.name for path in HERE.glob("*.json")}
        assert files == {f"{name}.json" for name in MADE}
        assert [name for name in sorted(files) if f"(../tests/vectors/{name})" not in page] == []

    def test_the_source_archive_carries_them(self) -> None:
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        assert "/tests/vectors/*.json" in settings["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
