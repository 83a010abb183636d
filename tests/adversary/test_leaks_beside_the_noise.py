"""An own algorithm that sends data in names and shapes of tensors, or over the referee's channel: under noise
nothing of it arrives, whatever the algorithm answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MethodType
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph import Channel, Reveal, Upload
from secure_fedgraph.client import is_foreign
from secure_fedgraph.errors import Refused
from secure_fedgraph.models.parameters import difference
from secure_fedgraph.privacy.input_dp.labels import RandomisedLabels
from secure_fedgraph.privacy.spending.ledger import Ledger
from secure_fedgraph.protocol import wire
from secure_fedgraph.protocol.channel import UnitContribution
from secure_fedgraph.protocol.message import ANSWER, Message
from secure_fedgraph.protocol.transcript import SERVER
from secure_fedgraph.protocol.upload import ContributionRows, Layout
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import prepare
from secure_fedgraph.running.rehearsal import with_layouts

NOISE = sfg.policies.local_dp(norm=1.0, multiplier=4.0)


class Base(sfg.Algorithm):
    MEANS = Channel("means", Reveal.EACH)

    def init(self, schema: Any, seed: int) -> Any:
        return {"w": torch.zeros(200)}

    def predict(self, params: Any, graph: Any, schema: Any) -> torch.Tensor:
        return torch.zeros(graph.num_nodes, schema.classes)

    def round(self, round: Any, state: Any) -> Any:
        round.gather(self.MEANS)
        return state


class ByName(Base):
    """All labels in a tensor's name."""

    name = "by-name"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({"".join(map(str, client.graph.y.tolist())): torch.zeros(1)})


class ByShape(Base):
    name = "by-shape"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({"v": torch.zeros(int((client.graph.y == 0).sum()) + 1)})


class ByEmpty(Base):
    """The shape of a tensor that holds no number."""

    name = "by-empty"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        y = client.graph.y
        return Upload({"v": torch.zeros(1), "e": torch.zeros(0, int((y == 0).sum()))})


class ByOrder(Base):
    """Which of two tensors comes first."""

    name = "by-order"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        names = ("a", "b") if int(client.graph.y[0]) % 2 else ("b", "a")
        return Upload({name: torch.zeros(1) for name in names})


class ByRows(Base):
    """As many rows as there are training nodes."""

    name = "by-rows"
    ROWS = Channel("rows", Reveal.EACH, unit=sfg.Unit.NODE)

    def round(self, round: Any, state: Any) -> Any:
        round.gather(self.ROWS)
        return state

    @ROWS.answer
    def rows(self, client: Any, given: Any) -> Upload:
        return Upload({"v": client.graph.x[client.graph.train_mask]})


class TrainsOnTests(Base):
    """Raw labels go over the referee's channel; what it keeps, or writes into the state, is trained on."""

    name = "trains-on-tests"
    TESTS = Channel("tests", Reveal.EACH, to="referee")
    kept: torch.Tensor | None = None

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, torch.Tensor] = {}

    def round(self, round: Any, state: Any) -> Any:
        round.gather(self.MEANS)
        state["w"][:1] += float(self.kept is not None) + len(self.held)
        return state

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({"v": torch.zeros(1)})

    @TESTS.answer
    def tests(self, client: Any, given: Any) -> Upload:
        return Upload({"y": client.graph.y.float()})

    def predictions(self, state: Any, round: Any, inputs: Any, schema: Any) -> Any:
        self.kept = torch.cat([values["y"] for values in round.gather(self.TESTS).values()])
        self.held.update(kept=self.kept)
        state["w"][1 : 1 + len(self.kept)] = self.kept
        return super().predictions(state, round, inputs, schema)


class KeepsTestLabels(Base):
    """Labels that a client answers the referee with stay on ``self``, and are sent in the next round."""

    name = "keeps-test-labels"
    labels: Mapping[str, torch.Tensor] = {}

    @Base.OWN_TESTS.answer
    def own_tests(self, client: Any, given: Any) -> Upload:
        self.labels = {**self.labels, client.name: client.graph.y.clone()}
        return super().own_tests(client, given)

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({"v": torch.ones(1) * len(self.labels)})


class ChangesTestData(Base):
    """The referee's test inputs share memory with the owners' graphs."""

    name = "changes-test-data"

    def predictions(self, state: Any, round: Any, inputs: Any, schema: Any) -> Any:
        inputs.x.fill_(7.0)
        return super().predictions(state, round, inputs, schema)

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({"v": torch.ones(1)})


class SharesSelf(Base):
    """What each client keeps on ``self``, the next one sends."""

    name = "shares-self"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        others = len(set(self.seen) - {client.name})
        self.seen.append(client.name)
        return Upload({"v": torch.full((1,), float(others))})


def is_stand_in(graph: Any) -> bool:
    return bool(torch.equal(graph.y, torch.arange(len(graph.y)) % (int(graph.y.max()) + 1)))


class Immune(torch.Tensor):
    """Its values go through no arithmetic."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0]


class PastTheNoise(Base):
    """A tensor of a class of its own, once the graph is no stand-in."""

    name = "past-the-noise"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        values = torch.ones(len(client.graph.y))
        return Upload({"v": values if is_stand_in(client.graph) else values.as_subclass(Immune)})


class KeepsItsLayout(Upload):
    def laid_out(self, *_: Any) -> Any:
        return self


class PastTheLayout(Base):
    """An upload of a class of its own, with labels in a name."""

    name = "past-the-layout"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        if is_stand_in(client.graph):
            return Upload({"v": torch.zeros(1)})
        return KeepsItsLayout({"".join(map(str, client.graph.y.tolist())): torch.zeros(1)})


class FailsByLabel(Base):
    """In round r an owner answers if its r-th label is even."""

    name = "fails-by-label"
    error: type[BaseException] = IndexError

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        client.memory["tries"] = client.memory.get("tries", 0) + 1
        if not is_stand_in(client.graph) and int(client.graph.y[client.round]) % 2:
            raise self.error("odd")
        return Upload({"v": torch.ones(1)})


class EndsByLabel(FailsByLabel):
    name = "ends-by-label"
    error = SystemExit


class WritesTestLabels(Base):
    """True labels, which only the referee gets, are written into the graph."""

    name = "writes-test-labels"

    @Base.OWN_TESTS.answer
    def own_tests(self, client: Any, given: Any) -> Upload:
        client.graph.x[:, 0] = 100.0 + client.graph.y.float()
        return super().own_tests(client, given)

    def check_own(self, graph: Any, name: str) -> None:
        graph.x[:, 1] = 100.0 + graph.y.float()
        self.raw = graph.y

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        kept = float(hasattr(self, "raw")) * 100.0
        return Upload({"v": torch.cat([client.graph.x[:, :2].max().reshape(1), torch.tensor([kept])])})


class RepeatsGraphs(Base):
    """Hands in each of its units a thousand times."""

    name = "repeats-graphs"
    COUNTS = Channel(
        "counts", Reveal.SUM, unit=sfg.Unit.NODE, unit_contribution=UnitContribution(rows=1, norm=1.0)
    )

    def round(self, round: Any, state: Any) -> Any:
        return {"w": round.reduce(self.COUNTS).total["v"]}

    @COUNTS.answer
    def counts(self, client: Any, given: Any) -> ContributionRows:
        many = 1 if is_stand_in(client.graph) else 1000
        units = len(client.graph.x) * many
        return ContributionRows({"v": torch.ones(units, 1)}, torch.ones(units, 1, dtype=torch.bool))


class Changes(Base):
    """Another tensor from round 3 on."""

    name = "changes"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({f"late {client.round > 2}": torch.zeros(1)})


class Late(Base):
    """Asks for the first time in round 4."""

    name = "late"

    def round(self, round: Any, state: Any) -> Any:
        return super().round(round, state) if round.number == 4 else state

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        return Upload({"v": torch.ones(2)})


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=90, features=16)


def other_labels(federation: sfg.Federation) -> sfg.Federation:
    """The same public facts: other labels, and another split."""
    graphs = {name: graph.clone() for name, graph in federation.owners.items()}
    for graph in graphs.values():
        graph.y = (graph.y * 0).to(graph.y.dtype)
        graph.train_mask, graph.test_mask = graph.test_mask, graph.train_mask
    return sfg.Federation(federation.schema, federation.referee, federation.facts, graphs)


def layouts(run: Any, channel: str) -> list[tuple[str, str]]:
    """What stands beside the values in the replies, in order."""
    return [
        (sent.sender, Message.from_bytes(run.transcript.body(sent.number)).tree()["layout"])
        for sent in run.transcript.sent
        if sent.channel == channel and sent.sender != SERVER
    ]


def beside_the_values(kind: Any, federation: sfg.Federation, isolated: bool = False) -> Any:
    """The layouts of all uploads, and the widths that the ledger has, of a run with a finite epsilon."""
    run = sfg.train(kind(), federation, NOISE, rounds=2, isolated=isolated, keep=lambda *_: True)
    assert math.isfinite(run.privacy()["client"]["epsilon"])
    found = layouts(run, "rows" if kind is ByRows else "means")
    assert len(found) == 6
    return found, {(charge.client, charge.releases["server"]) for charge in run.charges}


@pytest.mark.parametrize("kind", [ByName, ByShape, ByEmpty, ByOrder, ByRows])
def test_names_and_shapes_under_a_finite_epsilon_are_public(kind: Any, federation: sfg.Federation):
    assert beside_the_values(kind, federation) == beside_the_values(kind, other_labels(federation))


def test_names_and_shapes_in_a_process_of_its_own(federation: sfg.Federation):
    one = beside_the_values(ByName, federation, isolated=True)
    assert one == beside_the_values(ByName, other_labels(federation))


@pytest.mark.parametrize("kind", [ByName, ByShape])
def test_without_noise_an_upload_arrives_as_it_was_answered(kind: Any, federation: sfg.Federation):
    run = sfg.train(kind(), federation, "plaintext", rounds=1, keep=lambda *_: True)
    other = sfg.train(kind(), other_labels(federation), "plaintext", rounds=1, keep=lambda *_: True)
    assert layouts(run, "means") != layouts(other, "means")
    assert run.privacy()["client"]["epsilon"] == "inf"


def test_a_client_that_knows_no_public_layout_counts_the_upload_as_unprotected(federation):
    """Made by hand, past the rehearsal."""
    prepared = with_layouts(prepare(ByName(), federation, NOISE, RunOptions(rounds=1)))
    for given, finite in ((prepared.layouts, True), (None, False)):
        ledger = Ledger()
        clients = federation.make_clients(
            prepared.algorithm, prepared.bound, "by-hand", ledger, 0, layouts=given
        )
        ask(clients[0], federation)
        assert bool(ledger.charges[0].releases) is finite


def ask(client: Any, federation: sfg.Federation) -> None:
    names = federation.names
    request = Message("by-hand", 1, 1, "means", ANSWER, SERVER, client.name, names, wire.encode({}))
    client.handle(request.to_bytes())


def test_what_the_referee_reads_gets_into_no_state(federation: sfg.Federation):
    run = sfg.train(TrainsOnTests(), federation, NOISE, rounds=3)
    assert math.isfinite(run.privacy()["client"]["epsilon"])
    assert not run.state["w"].any()


def owners_with_tests() -> sfg.Federation:
    """Owners that hold tests of their own: only these are asked on the referee's channel."""
    split = {"local_tests": 5, "local_share": 0.4}
    return sfg.federate(
        "synthetic-citation", clients=3, seed=0, partition="label_skew", split=split, nodes=120, features=16
    )


@pytest.mark.parametrize("isolated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_a_client_answers_the_referee_with_is_not_kept_on_the_algorithm(federation, isolated: bool):
    """Labels are randomised at a finite epsilon; the referee alone sees the true ones."""
    tests = owners_with_tests()
    run = sfg.train(KeepsTestLabels(), tests, "plaintext", rounds=2, isolated=isolated, keep=lambda *_: True)
    assert [float(value) for value in sent_values(run)] == [0.0] * 6


def test_clients_do_not_meet_on_the_algorithm(federation: sfg.Federation):
    run = sfg.train(SharesSelf(), federation, "plaintext", rounds=2, keep=lambda *_: True)
    assert [float(value) for value in sent_values(run)] == [0.0] * 6


def test_test_inputs_that_an_algorithm_changes_are_copies():
    data = sfg.federate("synthetic-citation", clients=3, seed=0, partition="louvain", nodes=90, features=16)
    before = data.referee.test_set.inputs.x.clone()
    sfg.train(ChangesTestData(), data, "plaintext", rounds=1)
    assert torch.equal(data.referee.test_set.inputs.x, before)


def sent_values(run: Any) -> list[torch.Tensor]:
    return [
        torch.from_numpy(
            Message.from_bytes(run.transcript.body(sent.number)).tree()["data"].copy()
        ).flatten()[0]
        for sent in run.transcript.sent
        if sent.channel == "means" and sent.sender != SERVER
    ]


@pytest.mark.parametrize("kind", [PastTheNoise, PastTheLayout])
def test_classes_of_its_own_get_past_neither_noise_nor_layout(kind: Any, federation: sfg.Federation):
    run = sfg.train(kind(), federation, NOISE, rounds=1, keep=lambda *_: True)
    assert math.isfinite(run.privacy()["client"]["epsilon"])
    assert {len(text) for _, text in layouts(run, "means")} <= {len("1\nv:1"), len("1\nv:30")}
    sent = [one for one in run.transcript.sent if one.channel != kind.COMBINED.name]
    rows = [Message.from_bytes(run.transcript.body(one.number)).tree() for one in sent]
    sent = [tree["data"] for tree in rows if "layout" in tree]
    assert len(sent) == 3 and all(values.std() > 0 or values.size == 1 for values in sent)
    # Noise lies on a grid of 1/1024: one of these 90 values is a one by chance in a percent of all runs.
    assert not any((values == 1).sum() > 1 for values in sent)


class EndsOnStandIns(Base):
    name = "ends-on-stand-ins"

    @Base.MEANS.answer
    def means(self, client: Any, given: Any) -> Upload:
        raise SystemExit(0)


def test_an_answer_that_ends_the_process_is_refused_before_the_first_message(federation: sfg.Federation):
    """A script that trains would end with status 0, as if it were done."""
    with pytest.raises(Refused, match="fails on stand-ins"):
        sfg.train(EndsOnStandIns(), federation, NOISE, rounds=1)


@pytest.mark.parametrize("kind", [FailsByLabel, EndsByLabel])
def test_an_answer_that_fails_for_its_data_is_answered_and_charged(kind: Any, federation: sfg.Federation):
    run = sfg.train(kind(), federation, NOISE, rounds=4, keep=lambda *_: True)
    assert len(layouts(run, "means")) == len(run.charges) == 12
    assert len({charge.releases["server"] for charge in run.charges}) == 1


def test_nothing_of_the_true_labels_stays_with_a_client():
    """Labels are randomised; what an algorithm checks, and what it answers the referee with, are copies."""
    data = owners_with_tests()
    policy = replace(sfg.policies.plaintext(), randomizers=(RandomisedLabels(1.0),))
    run = sfg.train(WritesTestLabels(), data, policy, rounds=2, keep=lambda *_: True)
    trees = [Message.from_bytes(run.transcript.body(sent.number)).tree() for sent in run.transcript.sent]
    values = [tree["data"] for tree in trees if "layout" in tree and tree["layout"] == "1\nv:2"]
    assert len(values) == 6 and max(float(value.max()) for value in values) < 50


def test_a_client_sums_over_no_more_units_than_it_has(federation: sfg.Federation):
    run = sfg.train(RepeatsGraphs(), federation, NOISE, rounds=1)
    nodes = sum(graph.num_nodes for graph in federation.owners.values())
    assert math.isfinite(run.privacy("node")["epsilon"])
    assert (
        abs(float(run.state["w"]) - nodes) < 100
    )  # noise of 4 an owner; a thousand times as many would be 90,000


def test_a_method_replaced_on_an_object_makes_it_somebody_elses():
    algorithm = sfg.FedSage()
    assert not is_foreign(algorithm)
    algorithm.update = MethodType(lambda self, client, given: Upload({}), algorithm)  # type: ignore[method-assign]
    assert is_foreign(algorithm)


def test_a_model_whose_shapes_change_in_training_sends_the_shapes_that_it_was_given():
    before = {"w": torch.ones(2), "seen": torch.zeros(1)}
    assert difference({"w": torch.ones(2) * 3, "seen": torch.zeros(7)}, before)["seen"].shape == (1,)


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, device="meta"),
    ],
)
def test_a_tensor_that_cannot_be_packed_travels_as_zeros(value: torch.Tensor):
    upload = Upload({"v": value}).laid_out(Layout((("v", (2,)),)), sfg.Unit.CLIENT)
    assert not upload.packed(sfg.Unit.CLIENT)[1].any()


def test_a_layout_that_changes_from_round_to_round_is_refused_by_channel(federation: sfg.Federation):
    with pytest.raises(Refused, match="'means'"):
        sfg.train(Changes(), federation, NOISE, rounds=3)


def test_a_channel_that_is_asked_on_late_has_a_public_layout_too(federation: sfg.Federation):
    run = sfg.train(Late(), federation, NOISE, rounds=4)
    assert math.isfinite(run.privacy()["client"]["epsilon"])


def test_a_class_that_says_it_is_of_this_package_is_not_believed():
    lying: Mapping[str, Any] = {"__module__": "secure_fedgraph.algorithms.fedsage"}
    assert is_foreign(ByName) and not is_foreign(sfg.FedSage)
    assert is_foreign(type("FedSage2", (sfg.FedSage,), dict(lying)))
    assert is_foreign(type("FedSage", (sfg.FedSage,), dict(lying)))


def test_an_upload_in_its_public_layout_is_left_alone():
    upload = Upload({"a": torch.ones(2), "b": torch.ones(3)})
    public = Layout((("a", (2,)), ("b", (3,))))
    assert upload.laid_out(public, sfg.Unit.CLIENT) == upload
    found = Upload({"b": torch.ones(3), "c": torch.ones(1)}).laid_out(public, sfg.Unit.CLIENT).values
    assert list(found) == ["a", "b"] and not found["a"].any() and bool(found["b"].all())
