"""FairGraphFL's bounded prototypes: what one graph moves of them, and what noise earns for it."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from parties import scope
from small_graphs import LABELS, triangles

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl import bounded as graph_sums
from secure_fedgraph.algorithms.fairgraphfl import motifs as motif_lists
from secure_fedgraph.algorithms.fairgraphfl.bounded import COUNTS, FairGraphFLBounded, clipped
from secure_fedgraph.algorithms.fairgraphfl.state import (
    DIVERSITY,
    KNOWN,
    PRESENT,
    PROTOTYPES,
    SEED,
    VOCABULARY,
)
from secure_fedgraph.core.accounting import epsilon
from secure_fedgraph.core.accounting.events import GaussianRelease
from secure_fedgraph.core.carriers.secagg.server import Masked
from secure_fedgraph.core.errors import HostileMessage, Incompatible
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.spending.ledger import OF_GRAPH_SETS
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.policies import central_dp, distributed_dp, local_dp, plaintext
from secure_fedgraph.privacy.spent import number, spent
from secure_fedgraph.protocol.transcript import everything
from secure_fedgraph.running.planned_noise import Forecast

BOUNDED = {"motifs_per_graph": 2, "clip": 2.0}
SMALL = {"hidden": 8, "layers": 2, "batch": "full", "learning_rate": 0.01, "dropout": 0.0, **BOUNDED}
SMALL |= {"lists": "chosen"}  # by TF-IDF, so that counts are asked for as a sum
ALONE = {"use_diversity": False}
MOVED = math.sqrt(2) * graph_sums.SHARE
READERS = ("server", "peers", "outsider")


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate(triangles(), clients=3, partition="random", seed=0)


def run(federation, policy=None, rounds: int = 3, **settings):
    made = FairGraphFLBounded(**{**SMALL, "least_count": 1.0, **ALONE, **settings})
    return sfg.train(made, federation, policy or plaintext(), rounds=rounds, keep=everything)


def sent(federation, algorithm, without: int | None = None, changed: int | None = None):
    """What an agent's channels of motifs carry in the clear; with a graph left out, or with other labels."""
    graph = copy.copy(federation.owners["owner-0"])
    training = graph.train_mask.nonzero().flatten()
    if without is not None:
        graph.train_mask = graph.train_mask.clone()
        graph.train_mask[training[without]] = False
    if changed is not None:
        graph.x = graph.x.clone()
        graph.x[graph.graph == training[changed]] = torch.eye(LABELS)[2]
    client = SimpleNamespace(name="owner-0", graph=graph, schema=federation.schema, memory={})
    channels = {c.name: c for c in algorithm.in_use}
    found = {}
    for name in {"motif_lists", "motif_counts", "motif_sums"} & channels.keys():
        bound = plaintext().bind([channels[name]], federation.names)[name]
        parts = getattr(algorithm, name)(client, {SEED: 3})
        found[name] = bound.seal(parts, scope(), None)["data"].astype(np.float64)
    return found


def moves(federation, algorithm, relation="without") -> dict[str, list[float]]:
    whole = sent(federation, algorithm)
    graphs = int(federation.owners["owner-0"].train_mask.sum())
    others = [sent(federation, algorithm, **{relation: i}) for i in range(graphs)]
    return {k: [float(np.linalg.norm(whole[k] - o[k])) for o in others] for k in whole}


class TestOneGraph:
    # what was summed in double precision travels in single: a few 1e-8 of sums below 0.02
    slack = 1e-8

    @pytest.mark.parametrize("clip", [0.1, 2.0, 50.0])
    def test_leaving_any_out_moves_no_more(self, federation, clip):
        found = moves(federation, FairGraphFLBounded(**{**SMALL, "clip": clip}))
        assert len(found["motif_sums"]) >= 10
        assert max(found["motif_counts"]) == pytest.approx(MOVED, abs=self.slack)
        assert max(found["motif_sums"]) <= MOVED + self.slack
        if clip == 0.1:  # every embedding is longer, so that the bound is met
            assert max(found["motif_sums"]) == pytest.approx(MOVED, rel=1e-5)

    def test_nor_does_one_that_becomes_another(self, federation):
        found = moves(federation, FairGraphFLBounded(**{**SMALL, "clip": 0.1}), "changed")
        assert MOVED < max(found["motif_counts"]) <= 2 * MOVED
        assert max(found["motif_sums"]) <= 2 * MOVED + self.slack

    def test_where_motifs_are_chosen_over_all_graphs_it_moves_more(self, federation, monkeypatch):
        """A control: TF-IDF over the agent's graphs lets one graph decide for the others."""

        def chosen(client, settings):
            found = motif_lists.list_motifs(client, {}, settings)
            table, at = motif_lists.incidence(client, settings)
            everything = torch.zeros(len(table), len(found["present"]))
            everything[:, at] = table
            return everything

        settings = {**SMALL, "motif_keep": 0.5, "support": 3}
        monkeypatch.setattr(graph_sums.motifs, "holds", chosen)
        assert max(moves(federation, FairGraphFLBounded(**settings))["motif_counts"]) > 1.2 * MOVED

    def test_what_a_graph_adds_depends_bit_for_bit_on_it_alone(self, federation):
        algorithm = FairGraphFLBounded(**SMALL)
        graph = federation.owners["owner-0"]
        client = SimpleNamespace(name="owner-0", graph=graph, schema=federation.schema, memory={})
        whole = algorithm.motif_sums(client, {SEED: 3})
        training = graph.train_mask.nonzero().flatten()
        for i in range(len(training)):
            only = copy.copy(graph)
            only.train_mask = torch.zeros_like(graph.train_mask)
            only.train_mask[training[i]] = True
            single = algorithm.motif_sums(
                SimpleNamespace(name="owner-0", graph=only, schema=federation.schema, memory={}), {SEED: 3}
            )
            assert torch.equal(single.values["rows"][0], whole.values["rows"][i])
            assert torch.equal(single.places[0], whole.places[i])


class TestWithoutNoise:
    def test_prototypes_are_means_of_clipped_embeddings(self, federation):
        found = run(federation, rounds=1, motifs_per_graph=100, clip=1e6)
        sums, count = torch.zeros(len(found.state[VOCABULARY]), 8), torch.zeros(len(found.state[VOCABULARY]))
        algorithm = found.algorithm
        model = algorithm.model(federation.schema)
        model.initialise(int(found.state[SEED]))
        model.eval()
        for graph in federation.owners.values():
            client = SimpleNamespace(name="x", graph=graph, schema=federation.schema, memory={})
            table = motif_lists.holds(client, algorithm.settings)
            with torch.no_grad():
                sums += table.T @ model.embed(graph)[graph.train_mask]
            count += table.sum(0)
        assert torch.equal(found.state[COUNTS].float(), count)
        assert torch.equal(found.state[KNOWN].bool(), count >= 1)
        expected = sums / count.clamp(min=1)[:, None]
        assert torch.allclose(found.state[PROTOTYPES], expected, rtol=1e-4, atol=1e-4)
        assert expected.abs().max() > 0.1

    def test_what_is_frozen_is_asked_for_once(self, federation):
        channels = [c.channel for c in run(federation, rounds=3).charges]
        assert [channels.count(n) for n in ("motif_counts", "motif_sums", "update")] == [3, 3, 9]

    @pytest.mark.parametrize("ask", ["motif_counts", "motif_sums"])
    def test_an_agent_releases_it_once(self, federation, ask):
        graph = federation.owners["owner-0"]
        client = SimpleNamespace(name="owner-0", graph=graph, schema=federation.schema, memory={})
        algorithm = FairGraphFLBounded(**SMALL)
        getattr(algorithm, ask)(client, {SEED: 3})
        with pytest.raises(HostileMessage, match="again: they are released once"):
            getattr(algorithm, ask)(client, {SEED: 4})

    def test_prototypes_pull(self, federation):
        free, pulled = (run(federation, rounds=6, regularisation=weight) for weight in (0.0, 1.0))
        kinds = [algorithm.released(made.state) for made in (free, pulled) for algorithm in [made.algorithm]]
        assert any(not torch.equal(kinds[0][k], kinds[1][k]) for k in kinds[0])
        assert torch.equal(free.state[PROTOTYPES], pulled.state[PROTOTYPES])  # frozen: no training moves them

    def test_clipped(self):
        rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
        assert torch.allclose(clipped(rows, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))

    def test_the_server_makes_nothing_of_rare_motifs(self):
        settings = FairGraphFLBounded(**{**SMALL, "hidden": 2, "least_count": 4.0}).settings
        rows = torch.tensor([[4.0, 0.0], [3.0, 0.0], [60.0, 80.0]]) * graph_sums.SHARE
        made, known = graph_sums.prototypes({"rows": rows}, torch.tensor([8.0, 3.9, 10.0]), settings)
        assert known.tolist() == [1, 0, 1]
        # means of 0.5 and 10 clips: none of clipped embeddings is longer than one, so the last is (0.6, 0.8)
        assert made.numpy() == pytest.approx(np.array([[1.0, 0.0], [0.0, 0.0], [1.2, 1.6]]))


def at(charges, unit: str = "graph", reader: str = "server") -> float:
    return spent(charges, 1e-5, units=OF_GRAPH_SETS)[unit][reader].epsilon


def costs(found: float, multipliers: list[float]) -> bool:
    """Whether an epsilon is that of these multipliers: not below the exact curve, which is for continuous
    noise and multipliers that no grid rounded up, and above it by what accounting discrete noise takes."""
    exactly = epsilon.epsilon([GaussianRelease(z * 1.001) for z in multipliers], 1e-5).epsilon
    return exactly <= found <= 1.15 * exactly


class TestEpsilon:
    def test_what_is_taken_for_the_same_is_not_what_is_much_like_it(self):
        """The control of the comparisons below: one release more, or one at half its noise, is told apart."""
        found = epsilon.epsilon([GaussianRelease(z) for z in [4.0] * 3 + [8.0] * 2], 1e-5).epsilon * 1.07
        assert costs(found, [4.0] * 3 + [8.0] * 2)
        assert not costs(found, [4.0] * 4 + [8.0] * 2)
        assert not costs(found, [4.0] * 2 + [8.0] * 2)
        assert not costs(found, [8.0] * 5)

    def test_a_run_in_which_every_channel_is_noised(self, federation):
        made = run(federation, local_dp(0.5, 8.0), rounds=3)
        # three updates, each worth half for a graph; counts and sums once
        assert costs(at(made.charges), [4.0] * 3 + [8.0] * 2)
        entry = made.privacy(unit="graph")
        assert (entry["epsilon"], entry["computational"]) == (number(at(made.charges)), False)
        # a node or an edge is in one graph: its graph's part of the sums moves twice the way to nothing
        for unit in ("node", "edge"):
            assert costs(at(made.charges, unit), [4.0] * 3 + [4.0] * 2)
            assert made.privacy(unit=unit)["epsilon"] == number(at(made.charges, unit))
        # noise that is scaled to a graph says nothing of all graphs of a client
        assert made.privacy(unit="client")["epsilon"] == "inf"

    @pytest.mark.parametrize("shares", [True, False])
    def test_under_masks_each_clients_noise_counts_or_the_shares_of_all(self, federation, shares):
        noise = (Gaussian(3.0, "shares", limit=4.0),) if shares else (Gaussian(3.0), FixedPoint(8.0))
        sums = Protection(
            Masked(), noise, 3 if shares else 2, "distributed_dp" if shares else "masked, noised"
        )
        # an agent is valued by its own update, which no sum shows
        policy = replace(local_dp(0.5, 8.0), exceptions={"motif_counts": sums, "motif_sums": sums})
        made = run(federation, policy, rounds=2)
        assert costs(at(made.charges), [4.0] * 2 + [3.0] * 2)
        assert made.privacy(unit="graph")["computational"] is shares

    def test_under_shares_alone_it_is_refused_since_values_need_each_update(self, federation):
        with pytest.raises(Incompatible, match=r"'update' needs each upload.*distributed_dp reveals only"):
            run(federation, distributed_dp(0.5, 8.0, limit=4.0))

    def test_prototypes_alone(self, federation):
        made = run(federation, local_dp(0.5, 2.0, rows=True), use_diversity=True)
        entry = made.privacy(unit="graph")
        assert (entry["epsilon"], entry["reason"]) == ("inf", "motif_presence: no noise protects this unit")
        mine = [c for c in made.charges if c.channel in ("motif_counts", "motif_sums")]
        assert costs(at(mine), [2.0] * 2)

    def test_a_list_that_is_clipped_as_a_whole_is_noised_for_the_client(self, federation):
        """So it counts half for a graph, as an update does, whatever its rows are."""
        made = run(federation, local_dp(0.5, 4.0), rounds=2, use_diversity=True)
        lists = [c for c in made.charges if c.channel == "motif_presence"]
        times = len(lists) // len(federation.names)
        assert times >= 1
        assert {(c.unit, *c.releases) for c in lists} == {("client", *READERS)}
        assert costs(at(lists, "client"), [4.0] * times)
        assert costs(at(made.charges), [2.0] * 2 + [2.0] * times + [4.0] * 2)

    def test_by_the_server_it_holds_against_the_others(self, federation):
        made = run(federation, central_dp(0.5, 8.0), rounds=1)
        assert at(made.charges) == math.inf
        assert costs(at(made.charges, reader="outsider"), [4.0, 8.0, 8.0])

    def test_without_noise_it_is_infinite(self, federation):
        made = run(federation, rounds=1)
        assert {at(made.charges, reader=reader) for reader in READERS} == {math.inf}

    @pytest.mark.parametrize("channel", ["motif_counts", "motif_sums"])
    def test_the_noise_that_is_paid_for_is_on_every_upload(self, federation, channel):
        clear = run(federation, rounds=1)
        noised = run(federation, local_dp(0.5, 5.0), rounds=1)
        key = "count" if channel == "motif_counts" else "rows"
        clear, noised = (
            np.stack([np.asarray(s.values[key], dtype=np.float64) for s in v.uploads(channel)])
            for v in (made.transcript.view("server") for made in (clear, noised))
        )
        assert clear.shape == noised.shape == (3, 37, 1 if key == "count" else 8)
        # 111 counts: their deviation has a standard error of 7 %
        assert (noised - clear).std() == pytest.approx(5 * MOVED, rel=0.4 if key == "count" else 0.15)


COUNTED = {"lists": "counted", "use_diversity": True}


class TestCountedLists:
    def test_without_noise_they_are_the_lists_and_their_sum_the_counts(self, federation):
        counted = run(federation, rounds=1, **COUNTED, motifs_per_graph=100)
        lists = run(federation, rounds=1, use_diversity=True, motifs_per_graph=100, motif_keep=1.0)
        assert torch.equal(counted.state[PRESENT], lists.state[PRESENT])
        assert torch.equal(counted.state[DIVERSITY], lists.state[DIVERSITY])
        assert torch.equal(counted.state[COUNTS], lists.state[COUNTS])
        assert torch.equal(counted.state[PROTOTYPES], lists.state[PROTOTYPES])
        names = {c.channel for c in counted.charges}
        assert names == {"motif_lists", "motif_sums", "update"}

    def test_support_is_read_off_the_counts(self, federation):
        whole = run(federation, rounds=1, **COUNTED)
        often = run(federation, rounds=1, **COUNTED, support=5)
        assert 0 < int(often.state[PRESENT].sum()) < int(whole.state[PRESENT].sum())
        assert torch.equal(often.state[COUNTS], whole.state[COUNTS])

    @pytest.mark.parametrize("rows", [True, False])
    def test_they_cost_a_graph_one_release_and_no_list_is_sent(self, federation, rows):
        made = run(federation, local_dp(0.5, 8.0, rows=rows), rounds=2, **COUNTED)
        mine = [c for c in made.charges if c.channel in ("motif_lists", "motif_sums")]
        assert [c.channel for c in mine].count("motif_lists") == 3
        assert costs(at(mine), [8.0] * 2)
        assert costs(at(made.charges), [4.0] * 2 + [8.0] * 2)
        assert made.algorithm.uses(made.policy["motif_lists"].channel, 2, 3) == 1

    def test_one_graph_moves_an_agents_counts_no_more(self, federation):
        found = moves(federation, FairGraphFLBounded(**{**SMALL, **COUNTED}))
        assert max(found["motif_lists"]) == pytest.approx(MOVED, abs=1e-8)

    def test_a_budget_for_a_graph_plans_them(self, federation):
        settings = {**SMALL, **COUNTED}
        asked = Experiment(
            algorithm="fairgraphfl-bounded",
            rounds=2,
            policy="local_dp",
            unit="graph",
            epsilon=16.0,
            training=settings,
        )
        found = protect(asked, asked.make_algorithm(), federation)
        bound = found.policy.bind(asked.make_algorithm().in_use, federation.names)
        channels = tuple(one.channel for one in bound.bounds.values())
        forecast = Forecast(asked.make_algorithm(), channels, federation.names, 2, found.budget)
        rows = forecast.split(bound)
        assert {(r["channel"], r["unit"], r["uses"]) for r in rows} == {
            ("motif_lists", "graph", 1),
            ("motif_sums", "graph", 1),
            ("update", "client", 2),
        }
        made = sfg.train(asked.make_algorithm(), federation, found.policy, rounds=2, budget=found.budget)
        assert 0.97 * 16 < made.privacy("graph")["epsilon"] <= 16


class TestBadInput:
    @pytest.mark.parametrize(
        ("total", "words"),
        [
            ({}, "counts"),
            ({"count": torch.zeros(3)}, "counts"),
            ({"count": torch.full((4, 1), math.nan)}, ""),
        ],
    )
    def test_counts_that_are_none(self, total, words):
        with pytest.raises(HostileMessage, match=f"agents' counts.*{words}|{words}"):
            graph_sums.count_of(total, 4)

    @pytest.mark.parametrize("rows", [None, torch.zeros(4, 7), torch.full((4, 8), math.inf)])
    def test_sums_that_are_none(self, rows):
        with pytest.raises(HostileMessage, match="the agents' sums: 'rows' is not 4 x 8 finite numbers"):
            graph_sums.prototypes({"rows": rows}, torch.ones(4), FairGraphFLBounded(**SMALL).settings)

    def test_graphs_without_links(self):
        bare = sfg.federate(triangles(linked=False), clients=3, partition="random", seed=0)
        found = run(bare, rounds=2)
        assert not bool(found.state[KNOWN].any())
