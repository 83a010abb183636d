"""FairGraphFL under every recipe, in processes of its own, resumed, and as the server sees it."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from small_graphs import triangles

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.fairgraphfl.algorithm import FairGraphFL
from secure_fedgraph.algorithms.fairgraphfl.bounded import FairGraphFLBounded
from secure_fedgraph.algorithms.fairgraphfl.state import VALUES
from secure_fedgraph.core.errors import Incompatible, LeftInPlaintext
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.results import run_result
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.graph.motifs import motifs_of
from secure_fedgraph.policies import homomorphic, plaintext, strictest
from secure_fedgraph.privacy.policies import RECIPES, policy_with_noise
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.protocol.transcript import everything

SMALL = {"hidden": 8, "layers": 2, "batch": "full", "learning_rate": 0.01}
POLICIES = {name: policy_with_noise(name, 1.0, {}) for name in RECIPES.own}
WHY = "since an agent's value is its own gradient's agreement with the rest .*; {} reveals only the sum: use"
UNREAD = "valued_update' is valued without being read, which {} cannot do: use homomorphic or strictest"
COUNTED = "'motif_lists' needs each upload"
READ = {"valuation": "encrypted"}
LISTED = {**READ, "vocabulary": "public", "lists": "valued"}
SETTINGS = {
    "": {},
    "public": {"vocabulary": "public"},
    "valued alone": {"use_diversity": False, "prototypes": "none"},
    "encrypted": {"use_diversity": False, "prototypes": "none", "valuation": "encrypted"},
    "bounded": {"use_diversity": False, "prototypes": "bounded"},
    "counted": {"prototypes": "bounded"},
}


REFUSED: dict[tuple[str, str], str] = {("sealed", settings): "protects peers only" for settings in SETTINGS}
"""(policy, settings) -> why it is refused in every form; all others train, in a form that binds."""
FORMS: dict[tuple[str, str], dict[str, str]] = {}
"""(policy, settings) -> the form that is taken."""
for only_sums in ("distributed_dp", "masked"):
    unread, why = UNREAD.format(only_sums), WHY.format(only_sums)
    reasons = {"": unread, "public": unread, "valued alone": why, "bounded": why, "counted": COUNTED}
    REFUSED |= {(only_sums, settings): words for settings, words in reasons.items()}
for reading in ("plaintext", "local_dp", "central_dp", "distributed_dp", "masked"):
    REFUSED[reading, "encrypted"] = UNREAD.format(reading)
for hidden in ("homomorphic", "strictest"):
    FORMS |= {(hidden, settings): LISTED for settings in ("", "public", "counted")}
    FORMS |= {(hidden, settings): READ for settings in ("valued alone", "bounded")}
for noised in ("local_dp", "central_dp"):
    FORMS[noised, ""] = {"vocabulary": "public"}


def class_of(settings):
    """The bounded variant where prototypes are bounded."""
    return FairGraphFLBounded if settings.get("prototypes") == "bounded" else FairGraphFL


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate(triangles(), clients=3, partition="random", seed=0)


def run(federation, policy=None, **arguments):
    settings = arguments.pop("settings", {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)
        warnings.simplefilter("ignore", FormWarning)
        return sfg.train(
            class_of(settings)(**{**SMALL, **settings}),
            federation,
            policy or plaintext(),
            **{"rounds": 2, **arguments},
        )


def test_the_grid_is_whole():
    assert {policy for policy, _ in REFUSED} <= set(POLICIES)
    assert ALGORITHMS["fairgraphfl"] is FairGraphFL
    assert ALGORITHMS["fairgraphfl-bounded"] is FairGraphFLBounded


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
    assert found.form == FORMS.get((policy, settings), {})
    assert len(found.history) == 1
    assert float(found.state[VALUES][-1].sum()) == pytest.approx(1)


def test_strictest_leaves_nothing_in_plaintext_unless_that_is_allowed(federation):
    with pytest.raises(LeftInPlaintext, match="'motifs' and 'update'"):
        sfg.train(FairGraphFL(**SMALL, valuation="plain"), federation, strictest(), rounds=1)
    with pytest.warns(PlaintextWarning) as said:
        found = sfg.train(FairGraphFL(**SMALL), federation, strictest(), rounds=1, allow_plaintext=True)
    assert sorted(str(w.message).split("'")[1] for w in said) == ["motifs", "update"]
    bound = {row["name"]: row["policy"] for row in found.policy.describe()}
    assert bound["prototype_sums"] == "masked"


def test_lists_that_nobody_reads_say_what_lists_in_the_clear_say(federation):
    settings = {"vocabulary": "public"}
    plain = run(federation, rounds=1, settings=settings)
    valued = run(federation, homomorphic(), rounds=1, keep=everything, settings=settings)
    assert valued.form["lists"] == "valued"
    one, other = (made.algorithm.notes(made.state)["diversity"] for made in (plain, valued))
    assert one == other and len(set(one.values())) > 1
    seen = valued.transcript.view("server")
    assert seen.uploads("valued_lists") == [] and seen.uploads("motif_presence") == []


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
