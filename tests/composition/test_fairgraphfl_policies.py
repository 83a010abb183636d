"""FairGraphFL under every recipe, in processes of its own, resumed, and as the server sees it."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
from small_graphs import triangles

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.fairgraphfl import VALUES, FairGraphFL
from secure_fedgraph.config import Experiment
from secure_fedgraph.errors import Incompatible
from secure_fedgraph.graph.motifs import motifs_of
from secure_fedgraph.privacy.policy import (
    RECIPES,
    PlaintextWarning,
    central_dp,
    distributed_dp,
    homomorphic,
    local_dp,
    masked,
    plaintext,
    sealed,
    strictest,
)
from secure_fedgraph.protocol.transcript import everything
from secure_fedgraph.results import run_result

SMALL = {"hidden": 8, "layers": 2, "batch": "full", "learning_rate": 0.01}
POLICIES = {
    "plaintext": plaintext(),
    "local_dp": local_dp(1.0, 1.0),
    "central_dp": central_dp(1.0, 1.0),
    "distributed_dp": distributed_dp(1.0, 1.0),
    "masked": masked(),
    "homomorphic": homomorphic(),
    "sealed": sealed(),
    "strictest": strictest(),
}
WHY = "since an agent's value is its own gradient's agreement with the rest .*; {} reveals only the sum: use"
# (policy, settings) -> why it is refused; whatever is not named here trains
REFUSED = {
    ("local_dp", ""): "carries numbers of nodes",
    ("central_dp", ""): "carries numbers of nodes",
    ("distributed_dp", ""): "motifs' needs each upload, since an agent's diversity is its own share",
    ("distributed_dp", "public"): "motif_presence' needs each upload",
    ("distributed_dp", "valued alone"): WHY.format("distributed_dp"),
    ("distributed_dp", "encrypted"): "is valued without being read",
    ("distributed_dp", "bounded"): WHY.format("distributed_dp"),
    ("masked", ""): "motifs' needs each upload, since an agent's diversity is its own share",
    ("homomorphic", ""): "motifs' needs each upload, since an agent's diversity is its own share",
    ("masked", "valued alone"): WHY.format("masked"),
    ("homomorphic", "valued alone"): WHY.format("homomorphic"),
    ("sealed", ""): "protects peers only",
    ("sealed", "public"): "protects peers only",
    ("sealed", "valued alone"): "protects peers only",
    ("sealed", "encrypted"): "protects peers only",
    ("masked", "public"): "motif_presence' needs each upload",
    ("homomorphic", "public"): "motif_presence' needs each upload",
    (
        "plaintext",
        "encrypted",
    ): "is valued without being read, which plaintext cannot do: use homomorphic or strictest",
    ("local_dp", "encrypted"): "is valued without being read",
    ("central_dp", "encrypted"): "is valued without being read",
    ("masked", "encrypted"): "is valued without being read",
    ("masked", "bounded"): WHY.format("masked"),
    ("homomorphic", "bounded"): WHY.format("homomorphic"),
    ("sealed", "bounded"): "protects peers only",
}
SETTINGS = {
    "": {},
    "public": {"vocabulary": "public"},
    "valued alone": {"use_diversity": False, "prototypes": "none"},
    "encrypted": {"use_diversity": False, "prototypes": "none", "valuation": "encrypted"},
    "bounded": {"use_diversity": False, "vocabulary": "public", "prototypes": "bounded"},
}


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate(triangles(), clients=3, partition="random", seed=0)


def run(federation, policy=None, **arguments):
    settings = arguments.pop("settings", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        return sfg.train(
            FairGraphFL(**{**SMALL, **settings}),
            federation,
            policy or plaintext(),
            **{"rounds": 2, **arguments},
        )


def test_the_grid_is_whole():
    assert set(POLICIES) == set(RECIPES)
    assert {policy for policy, _ in REFUSED} <= set(POLICIES)
    assert ALGORITHMS["fairgraphfl"] is FairGraphFL


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_trains_or_is_refused_before_round_1(policy, settings, federation, tmp_path):
    why = REFUSED.get((policy, settings))
    if why:
        with pytest.raises(Incompatible, match=why):
            run(federation, POLICIES[policy], rounds=1, settings=SETTINGS[settings], out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return
    found = run(federation, POLICIES[policy], rounds=1, settings=SETTINGS[settings])
    assert len(found.history) == 1
    assert float(found.state[VALUES][-1].sum()) == pytest.approx(1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["gin-fedavg", "gin-local"])
def test_its_baselines_train_or_are_refused(name, policy, federation):
    if (name, policy) == ("gin-fedavg", "sealed"):
        with pytest.raises(Incompatible, match="protects peers only"):
            sfg.train(ALGORITHMS[name](**SMALL), federation, POLICIES[policy], rounds=1)
        return
    made = sfg.train(ALGORITHMS[name](**SMALL), federation, POLICIES[policy], rounds=1)
    assert len(made.history) == 1
    assert {c.channel for c in made.charges} == ({"update"} if name == "gin-fedavg" else set())


def test_strictest_says_what_it_leaves_in_plaintext(federation):
    with pytest.warns(PlaintextWarning) as said:
        found = sfg.train(FairGraphFL(**SMALL), federation, strictest(), rounds=1)
    assert sorted(str(w.message).split("'")[1] for w in said) == ["motifs", "update"]
    bound = {row["name"]: row["policy"] for row in found.policy.describe()}
    assert bound["prototype_sums"] == "masked"
    with pytest.warns(PlaintextWarning) as said:
        sfg.train(FairGraphFL(**SMALL, valuation="encrypted"), federation, strictest(), rounds=1)
    assert [str(w.message).split("'")[1] for w in said] == ["motifs"]


class TestTheServersView:
    def test_encrypted_values_leave_no_gradient_in_it(self, federation):
        plain = run(federation, rounds=1, keep=everything)
        hidden = run(federation, strictest(), rounds=1, keep=everything, settings={"valuation": "encrypted"})
        seen, clear = (made.transcript.view("server") for made in (hidden, plain))
        assert seen.uploads("valued_update") == []
        # the same seed, so the plain run's uploads are what the other's would have been
        uploads = [
            np.concatenate([np.asarray(v, dtype="<f4").reshape(-1) for v in s.values.values()])
            for s in clear.uploads("update")
        ]
        assert len(uploads) == 3
        everything_seen, everything_clear = (
            b"".join(made.transcript.body(s.number) for s in view.sent)
            for made, view in ((hidden, seen), (plain, clear))
        )
        pieces = [
            form
            for upload in uploads
            for at in range(0, upload.size - 8, 8)
            if np.count_nonzero(upload[at : at + 4]) == 4
            for form in (upload[at : at + 4].tobytes(), upload[at : at + 4].astype("<f8").tobytes())
        ]
        assert len(pieces) > 100
        assert (
            sum(piece in everything_clear for piece in pieces) >= len(pieces) / 2 - 1
        )  # as float32: the control
        assert not any(piece in everything_seen for piece in pieces)

    def test_nobodys_features_labels_or_links_are_in_it(self, federation):
        made = run(federation, keep=everything)
        passed = b"".join(made.transcript.body(s.number) for s in made.transcript.view("server").sent)
        for graph in federation.owners.values():
            for form in (graph.x.numpy(), graph.y.numpy(), graph.edge_index.numpy()):
                for kind in (form.dtype, np.float32, np.int32):
                    raw = np.ascontiguousarray(form).astype(kind).tobytes()
                    assert raw not in passed

    def test_the_motif_list_is_the_channels_and_no_counts(self, federation):
        made = run(federation, rounds=1, keep=everything, settings={"motif_keep": 1.0})
        for seen in made.transcript.view("server").uploads("motifs"):
            graph = federation.owners[seen.clients[0]]
            found = motifs_of(graph, graph.train_mask.nonzero().flatten())
            assert set(seen.values) == {"codes"}
            assert seen.values["codes"].tolist() == found.codes.tolist()


@pytest.mark.parametrize("settings", ["", "bounded"])
def test_in_processes_of_their_own(settings, federation):
    together, apart = (
        run(federation, isolated=isolated, settings=SETTINGS[settings]) for isolated in (False, True)
    )
    assert all(torch.equal(together.state[k], apart.state[k]) for k in together.state)


def test_encrypted_in_processes_of_their_own(federation):
    found = run(federation, strictest(), isolated=True, rounds=1, settings={"valuation": "encrypted"})
    assert len(found.history) == 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"vocabulary": "public", "idf": "global"}, {"shared": "conv"}, SETTINGS["bounded"]],
    ids=str,
)
def test_resumed_runs_end_where_whole_ones_do(federation, settings, tmp_path):
    class Killed(Exception):
        pass

    def kill(row):
        if row["round"] == 2:
            raise Killed

    whole = run(federation, rounds=4, settings=settings)
    with pytest.raises(Killed):
        run(federation, rounds=4, settings=settings, out=tmp_path, on_round=kill)
    resumed = run(federation, rounds=4, settings=settings, out=tmp_path, resume=True)
    assert all(torch.equal(whole.state[k], resumed.state[k]) for k in whole.state)
    assert [r["accuracy"] for r in whole.history] == [r["accuracy"] for r in resumed.history]


def test_its_notes_are_in_the_result(federation):
    made = run(federation)
    result = json.loads(json.dumps(run_result(made, Experiment(algorithm="fairgraphfl")), allow_nan=False))
    assert set(result["notes"]["payoffs"]) == set(federation.names)
    assert "validation" not in result["rounds"][0]["accuracy"]


def test_the_papers_data_by_name():
    experiment = Experiment(algorithm="fairgraphfl")
    assert (experiment.data, experiment.clients, experiment.partition) == ("proteins", 10, "random")
    assert Experiment(algorithm="fairgraphfl", data="dd").clients == 10


@pytest.mark.needs_data("tu")
def test_proteins_in_both_valuations():
    # one round: later ones start from models that differ in their last bits, and training keeps that
    federation = sfg.federate("proteins", clients=10, partition="random", seed=0)
    made = [
        run(federation, policy, rounds=1, settings={"hidden": 64, "layers": 3, "valuation": valuation})
        for policy, valuation in ((plaintext(), "plain"), (strictest(), "encrypted"))
    ]
    plain, hidden = (one.algorithm.notes(one.state) for one in made)
    for key, within in (("values", 1e-6), ("payoffs", 1e-6), ("alignment", 1e-5)):
        assert max(abs(plain[key][n] - hidden[key][n]) for n in plain["agents"]) < within
