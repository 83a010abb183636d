"""GLASU under a budget for a part of a node: nothing sent depends on it, it is said, and owners learn."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.glasu import at_home
from secure_fedgraph.algorithms.glasu.at_home import GlasuAtHome
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.forms import FormWarning
from secure_fedgraph.models.vertical import linear
from secure_fedgraph.protocol.transcript import everything

SENDS = {"edge": "columns", "label": "columns", "feature": "labels", "node": "nothing"}


def split(**more: Any) -> sfg.Federation:
    given = {"nodes": 40, "features": 12, "seed": 0, **more}
    return sfg.federate("synthetic-citation", 3, "vertical", **given)


class Reading(GlasuAtHome):
    """Tries to send all that it sees of what its channels declare that they do not read."""

    name = "glasu-reading"

    def _seen(self, client: Any, sent: Upload) -> Upload:
        graph = client.graph
        seen = torch.tensor([float(graph.x.abs().sum()), float(graph.num_edges), float(graph.y.sum())])
        return Upload({"rows": sent.values["rows"] + seen[self.hidden_places].sum()})

    @property
    def hidden_places(self) -> list[int]:
        return [0] if self.settings.sends == "labels" else [1, 2]

    @GlasuAtHome.COLUMNS.answer
    def columns(self, client: Any, given: Any) -> Upload:
        return self._seen(client, super().columns(client, given))

    @GlasuAtHome.LABELS.answer
    def labels(self, client: Any, given: Any) -> Upload:
        return self._seen(client, super().labels(client, given))


@pytest.fixture
def known_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same secret matrices in every run, so that uploads can be compared bit by bit."""
    monkeypatch.setattr(at_home, "os", SimpleNamespace(urandom=bytes))


def sent(federation: sfg.Federation, algorithm: sfg.Algorithm) -> list[torch.Tensor]:
    made = sfg.train(algorithm, federation, "plaintext", keep=everything)
    uploads = made.transcript.view("server").uploads(algorithm.settings.sends)
    assert len(uploads) == (3 if algorithm.settings.sends == "columns" else 3 * 10)
    return [torch.tensor(one.values["rows"]) for one in uploads]


def without_link(owner: Any, number: int) -> None:
    one = owner.edge_index[:, number]
    gone = (owner.edge_index == one[:, None]).all(0) | (owner.edge_index == one.flip(0)[:, None]).all(0)
    owner.edge_index = owner.edge_index[:, ~gone]


def other_label(owner: Any, number: int) -> None:
    node = owner.train_mask.nonzero().flatten()[number]
    owner.y = owner.y.clone()
    owner.y[node] = (owner.y[node] + 1) % 3


def other_features(owner: Any, number: int) -> None:
    owner.x = owner.x.clone()
    owner.x[number] = 1 - owner.x[number]


CHANGES: dict[str, tuple[str, Callable[[Any, int], None]]] = {
    "edge": ("columns", without_link),
    "label": ("columns", other_label),
    "feature": ("labels", other_features),
}


@pytest.mark.parametrize("algorithm", [GlasuAtHome, Reading])
@pytest.mark.parametrize("unit", CHANGES)
def test_one_unit_moves_no_bit_of_what_is_sent_even_by_an_answer_that_tries(
    unit, algorithm, known_mixing
) -> None:
    sends, change = CHANGES[unit]
    before = sent(split(), algorithm(sends=sends))
    for number in range(4):
        federation = split()
        for owner in federation.owners.values():  # the unit at all its holders
            change(owner, number)
        after = sent(federation, algorithm(sends=sends))
        assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("unit", ["edge", "label"])
def test_labels_that_travel_do_depend_on_links_and_labels(unit) -> None:
    """So the comparison above can fail."""
    federation = split()
    before = sent(split(), GlasuAtHome(sends="labels"))
    for owner in federation.owners.values():
        CHANGES[unit][1](owner, 0)
    assert not all(map(torch.equal, before, sent(federation, GlasuAtHome(sends="labels"))))


def test_nobody_can_mix_columns_again_without_the_secret_matrix() -> None:
    first, second = (sent(split(), GlasuAtHome()) for _ in range(2))
    assert not any(map(torch.equal, first, second))


@pytest.mark.parametrize("unit", SENDS)
def test_the_family_takes_the_form_and_the_unit_pays_nothing(unit) -> None:
    federation = split()
    with pytest.warns(FormWarning, match=f"form training.sends={SENDS[unit]}"):
        run = sfg.train(sfg.Glasu(), federation, "masked", budget=sfg.Budget(4.0, 1e-5, unit))
    assert run.algorithm.name == "glasu-at-home" and run.form == {"sends": SENDS[unit]}
    assert float(run.privacy(unit)["epsilon"]) == 0
    if unit != "node":  # masks are no noise: whoever reads the sum learns of everything else
        assert float(run.privacy("node")["epsilon"]) == float("inf")


def test_a_form_by_hand_that_reads_the_unit_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(BadInput, match="adds no noise"):
        sfg.train(GlasuAtHome(sends="columns"), split(), "masked", budget=sfg.Budget(4.0, 1e-5, "feature"))


def test_settings_of_training_by_hand_keep_training_on_randomised_inputs() -> None:
    by_hand = Experiment(
        algorithm="glasu",
        data="synthetic-citation",
        policy="masked",
        epsilon=4,
        unit="feature",
        training={"layers": 2},
    )
    assert by_hand.make_algorithm().name == "glasu" and by_hand.randomised_kinds == ("features",)
    assert sfg.Glasu(accept_two_clients=True).untouched_by("edge").settings.accept_two_clients
    variant = sfg.algorithms.ALGORITHMS["glasu-one-label-holder"]()
    assert variant.untouched_by("edge") is variant


def test_owners_learn_more_together_than_alone() -> None:
    federation = split(nodes=400, features=60, split={"edge_share": 0.3})
    scores = {
        sends: sfg.train(GlasuAtHome(sends=sends), federation, "masked").accuracy["global"]
        for sends in ("columns", "labels", "nothing")
    }
    assert min(scores["columns"], scores["labels"]) > scores["nothing"] + 0.03


def test_two_owners_are_refused_unless_accepted() -> None:
    two = sfg.federate("synthetic-citation", 2, "vertical", seed=0, nodes=40, features=12)
    with pytest.raises(sfg.errors.Refused, match="subtracting its own"):
        sfg.train(GlasuAtHome(), two, "masked")


def test_a_matrix_that_mixes_keeps_lengths_on_average_where_it_is_narrow() -> None:
    q = linear.mixing(300, 100, seed=3)
    rows = torch.eye(300)[:200] @ q
    assert abs(float(rows.square().sum(1).mean()) - 1) < 0.1
