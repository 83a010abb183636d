"""An answer that fails by data sends nothing and is charged as a release without noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph import Channel, Reveal, Upload
from secure_fedgraph.core.channel import UnitContribution
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.core.upload import ContributionRows
from secure_fedgraph.privacy.dp_sgd import PrivateSteps, Training
from secure_fedgraph.protocol.courier import LeftOutWarning

NOISE = sfg.policies.local_dp(norm=1.0, multiplier=4.0)
Heard = dict[str, str]


@pytest.fixture
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=4)


class Tells(sfg.Algorithm):
    """Every second client fails by its data, and the server's half keeps what it hears of that."""

    UP = Channel("up", Reveal.EACH)

    def __init__(self) -> None:
        super().__init__()
        self.heard: Heard = {}

    def init(self, schema: Any, seed: int) -> Any:
        return {"w": torch.zeros(1)}

    def predict(self, params: Any, graph: Any, schema: Any) -> torch.Tensor:
        return torch.zeros(graph.num_nodes, schema.classes)

    def round(self, round: Any, state: Any) -> Any:
        self.heard.clear()  # what a rehearsal on stand-ins left
        for name in round.cohort:
            try:
                self.ask(round, name)
            except (Exception, SystemExit) as error:
                self.heard[name] = str(error)
        round.gather(self.UP)
        return state

    @UP.answer
    def up(self, client: Any, given: Any) -> Upload:
        return Upload({"w": client.memory.get("left", torch.zeros(1))})


class OnNothing(Tells):
    name = "on-nothing"
    PUSH = Channel("push", Reveal.NOTHING)

    def ask(self, round: Any, name: str) -> None:
        round.scatter(self.PUSH, {name: {"w": torch.ones(1)}})

    @PUSH.answer
    def push(self, client: Any, given: Any) -> None:
        client.memory["left"] = torch.full((1,), 1e6)
        raise ValueError(str(client.graph.y.tolist()))


class Returns(OnNothing):
    name = "returns"

    @OnNothing.PUSH.answer
    def push(self, client: Any, given: Any) -> Any:
        return Upload({"w": torch.ones(1)}) if int(client.graph.y.sum()) % 2 else None


class OnReading(Tells):
    name = "on-reading"
    error: type[BaseException] = ValueError
    HINT = Channel("hint", Reveal.EACH, to="peer")

    def ask(self, round: Any, name: str) -> None:
        round.share(self.HINT, readers=(name,))

    @HINT.answer
    def hint(self, client: Any, given: Any) -> Upload:
        return Upload({"w": torch.zeros(1)})

    @HINT.read
    def read(self, client: Any, uploads: Any) -> None:
        raise self.error(str(client.graph.y.tolist()))


class LeavesOnReading(OnReading):
    name = "leaves-on-reading"
    error = SystemExit


class LiedTo(OnReading):
    name = "lied-to"

    @OnReading.HINT.read
    def read(self, client: Any, uploads: Any) -> None:
        raise HostileMessage("a peer's upload that no honest one sends")


def test_what_a_peer_or_the_server_did_wrong_is_not_charged_to_who_reads_it(
    federation: sfg.Federation,
) -> None:
    """Or a lie would empty an honest owner's budget."""
    run = sfg.train(made := LiedTo(), federation, NOISE, rounds=1)
    assert made.heard and all(charge.releases for charge in run.charges)


@pytest.mark.parametrize("kind", [OnNothing, Returns, OnReading, LeavesOnReading])
def test_who_hears_of_it_is_charged_for(kind: type[Tells], federation: sfg.Federation) -> None:
    run = sfg.train(made := kind(), federation, NOISE, rounds=1)
    assert made.heard
    unprotected = {charge.client for charge in run.charges if not charge.releases}
    assert unprotected == set(made.heard) and run.privacy("client")["epsilon"] == "inf"


def test_what_a_failing_answer_left_in_the_memory_is_undone(federation: sfg.Federation) -> None:
    nearly_none = sfg.policies.local_dp(norm=1e7, multiplier=1e-6)
    run = sfg.train(OnNothing(), federation, nearly_none, rounds=1, keep=lambda *_: True)
    values = [float(seen.values["w"][0]) for seen in run.transcript.view("server").uploads("up")]
    assert len(values) == 3 and max(map(abs, values)) < 1e5


def test_a_channel_without_noise_is_charged_where_its_answer_fails() -> None:
    class Aside(Tells):
        name = "aside"
        ASIDE = Channel("aside", Reveal.EACH)

        def ask(self, round: Any, name: str) -> None:
            round.gather(self.ASIDE)

        @ASIDE.answer
        def aside(self, client: Any, given: Any) -> Upload:
            raise ValueError(str(client.graph.y.tolist()))

    from secure_fedgraph.core.carriers.plain import Plain
    from secure_fedgraph.core.protection.binding import Protection
    from secure_fedgraph.privacy.policy import Policy

    def protection(channel: Channel) -> Protection:
        return Protection(Plain()) if channel.name == "aside" else NOISE.recipe(channel)

    mixed = Policy("mixed", protection)
    own = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=4)
    run = sfg.train(Aside(), own, mixed, rounds=1)
    assert {charge.channel for charge in run.charges} == {"aside", "up"}
    assert run.privacy("client")["epsilon"] == "inf"


class WithoutLinks(sfg.Algorithm):
    """Its uploads never see links; one of its answers fails by them."""

    name = "without-links"
    predict = Tells.predict
    init = Tells.init
    COLUMNS = Channel("columns", Reveal.SUM, links=False)
    TAKE = Channel("take", Reveal.NOTHING)
    fails = "take"

    def round(self, round: Any, state: Any) -> Any:
        round.reduce(self.COLUMNS)
        round.scatter(self.TAKE, {name: {"w": torch.ones(1)} for name in round.cohort})
        return state

    @COLUMNS.answer
    def columns(self, client: Any, given: Any) -> Upload:
        if self.fails == "columns" and client.name == "owner-1":  # by what its memory may have of links
            raise ValueError("by links")
        return Upload({"w": torch.ones(1)})

    @TAKE.answer
    def take(self, client: Any, given: Any) -> None:
        if self.fails == "take" and client.name == "owner-1" and client.graph.num_edges:
            raise ValueError("by links")


def test_links_that_no_upload_sees_are_spent_by_an_answer_that_fails(
    federation: sfg.Federation, tmp_path: Path
) -> None:
    masked, budget = sfg.policies.masked(), sfg.Budget(1.0, unit="edge")
    algorithm = WithoutLinks()
    with pytest.raises(ValueError, match="by links"):
        sfg.train(algorithm, federation, masked, rounds=2, out=tmp_path, budget=budget)
    algorithm.fails = ""
    with pytest.warns(LeftOutWarning, match="spent before"):
        run = sfg.train(algorithm, federation, masked, rounds=2, out=tmp_path, budget=budget, resume=True)
    assert run.privacy("edge")["epsilon"] == "inf"


def test_nor_does_a_failure_on_the_channel_without_links_spare_them(federation: sfg.Federation) -> None:
    algorithm = WithoutLinks()
    algorithm.fails = "columns"
    with pytest.warns(LeftOutWarning, match="owner-1"):  # the masks let the others go on
        run = sfg.train(algorithm, federation, sfg.policies.masked(), rounds=1)
    assert run.privacy("edge")["epsilon"] == "inf"


class Stop(BaseException):
    """Nobody else's."""


class InSums(Tells):
    """One node decides that nothing of any node is sent."""

    name = "in-sums"
    error: type[BaseException] = ValueError
    SUMS = Channel("sums", Reveal.SUM, unit=sfg.Unit.NODE, unit_contribution=UnitContribution(1, 1.0))

    def round(self, round: Any, state: Any) -> Any:
        round.reduce(self.SUMS)
        return state

    @SUMS.answer
    def sums(self, client: Any, given: Any) -> ContributionRows:
        units = len(client.graph.y)
        if bool(client.graph.x[0].sum() < -50):
            raise self.error("by data")
        return ContributionRows({"v": torch.ones(units, 1)}, torch.ones(units, 1, dtype=torch.bool))


@pytest.mark.parametrize(
    ("error", "budget"),
    [(ValueError, None), (ValueError, sfg.Budget(50.0, unit="node")), (Stop, None)],
    ids=["free", "budget", "another-class"],
)
def test_sums_over_units_that_fail_cost_all(
    federation: sfg.Federation, tmp_path: Path, error: type[BaseException], budget: sfg.Budget | None
) -> None:
    owners = {name: graph.clone() for name, graph in federation.owners.items()}
    owners["owner-1"].x[0] = -100.0
    data = sfg.Federation(federation.schema, federation.referee, federation.facts, owners)
    algorithm = InSums()
    algorithm.error = error
    with pytest.raises(error, match="by data"):
        sfg.train(algorithm, data, NOISE, rounds=1, out=tmp_path, budget=budget)
    ledger = read_ledger(tmp_path / "ledger.jsonl")
    releases = {one.client: one.releases for one in ledger if one.channel == "sums"}
    assert releases["owner-0"] and releases["owner-1"] == {}


def test_what_forward_writes_into_the_weights_is_undone() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))

    def writes(chosen: torch.Tensor) -> dict[str, torch.Tensor]:
        weight.data.fill_(1000.0)
        return {"w": torch.zeros(len(chosen), 2)}

    training = Training(PrivateSteps(noise=1.0, rate=1.0, steps=3, clip=1.0), "zero-out")
    training.run(torch.optim.SGD([weight], lr=1e-6), {"w": weight}, 10, writes)
    assert float(weight.detach().abs().max()) < 1.0
