"""Over the way of a deployment a run is what it is in one process, bit for bit where no noise is drawn."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from banks import Calls, Silos, banks, clubs, federation_of
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core import wire
from secure_fedgraph.core.message import ANSWER, Message
from secure_fedgraph.deployment import silos as way_to_silos
from secure_fedgraph.deployment.aligning import Aligner, row_names_in
from secure_fedgraph.deployment.dry_run import dry_run
from secure_fedgraph.deployment.own_data import common_rows
from secure_fedgraph.deployment.silo_messages import ASK, BEGIN, FAILED, Letter
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.experiment import released
from secure_fedgraph.experiment.results import weights
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.protocol.transcript import REFEREE

ROWS = [
    ("fedsage", "masked", {"hidden": [8, 4]}),
    ("fedsage+", "strictest", {"federated_epochs": 1, "hidden": [8, 4], "feedback": "prototypes"}),
    ("fedsage+", "masked", {"federated_epochs": 1, "hidden": [8, 4]}),
    ("fedavg", "plaintext", {"hidden": [8, 4]}),
    ("apflgate", "masked", {}),
    ("fedridge", "masked", {"second_moments": "own"}),  # releases two tensors of no axis
]


@pytest.mark.parametrize(("algorithm", "policy", "training"), ROWS)
def test_weights_are_those_of_one_process(
    tmp_path: Path, algorithm: str, policy: str, training: dict[str, Any]
) -> None:
    data = banks()
    silos = federation_of(
        tmp_path, data, algorithm=algorithm, policy=policy, rounds=2, training=training, allow_plaintext=True
    )
    post = silos.start_all()
    result = silos.serve(post)
    said_before_is_what_left(silos, post, result)
    run = sfg.train(
        ALGORITHMS[algorithm](**training), sfg.federate(data), policy, rounds=2, allow_plaintext=True
    )
    assert result["weights"] == weights(run)
    assert result["accuracy"]["local"] == run.accuracy["local"]
    kept = [silos.folder(name).run_folder(silos.approved) / "model.pt" for name in data]
    assert all(path.exists() for path in kept)
    if (tmp_path / "out" / released.NAME).exists():  # predict and export read it as any run's
        model = released.read(tmp_path / "out", algorithm)
        assert model.algorithm == algorithm and model.state.keys() == run.algorithm.released(run.state).keys()
    assert result["privacy"] == run.privacy()  # from the silos' signed reports


def said_before_is_what_left(silos: Silos, post: Calls, result: dict[str, Any]) -> None:
    """``silo check`` says of each silo what it is charged, and no less than it sends."""
    terms = terms_in(silos.approved)
    asked = [(name, Message.from_bytes(letter.body)) for name, letter in post.letters if letter.kind == ASK]
    said = dry_run(terms)
    left = Counter((to, message.channel) for to, message in asked if message.step == ANSWER)
    for one in said.leaving:
        if one.to != REFEREE:
            most = max(left[name, one.channel] for name in silos.data)
            assert most <= one.uploads <= 3 * most, one
    for unit, readers in said.alone.items():
        reached = {reader: spent.epsilon for reader, spent in readers.items()}
        figures = result["privacy"][unit]["readers"]
        assert reached == pytest.approx({reader: float(figures[reader]) for reader in reached}, abs=1e-4)


@pytest.mark.parametrize(
    ("algorithm", "policy", "more"),
    [
        ("fedsage+", "local_dp", {"training": {"federated_epochs": 1, "hidden": [8, 4]}}),
        ("fedego", "distributed_dp", {"training": {"batch": 8}}),
        ("fedsage", "masked", {"epsilon": 8.0, "unit": "node", "evaluation": "at_home"}),
    ],
)
def test_what_noise_will_cost_is_said_before(
    tmp_path: Path, algorithm: str, policy: str, more: dict[str, Any]
) -> None:
    given = {} if "epsilon" in more else {"protection": {"norm": 1.0, "multiplier": 1.0}}
    silos = federation_of(
        tmp_path, banks(), algorithm=algorithm, policy=policy, rounds=3, allow_plaintext=True, **given, **more
    )
    post = silos.start_all()
    said_before_is_what_left(silos, post, silos.serve(post))


def test_sets_of_graphs_too(tmp_path: Path) -> None:
    data = clubs()
    silos = federation_of(tmp_path, data, algorithm="fairgraphfl", policy="plaintext", rounds=2)
    post = silos.start_all()
    result = silos.serve(post)
    said_before_is_what_left(silos, post, result)
    run = sfg.train(ALGORITHMS["fairgraphfl"](), sfg.federate(data), "plaintext", rounds=2)
    assert result["weights"] == weights(run) and result["accuracy"]["local"] == run.accuracy["local"]


def test_a_cohort_of_some_silos_is_asked_each_round(tmp_path: Path) -> None:
    silos = federation_of(
        tmp_path,
        banks(4),
        algorithm="fedsage",
        policy="masked",
        rounds=3,
        cohort=3,
        training={"hidden": [8, 4]},
    )
    post = silos.start_all()
    silos.serve(post)
    asked: list[set[str]] = [set() for _ in range(4)]
    for name, letter in post.letters:
        if letter.kind == ASK and (message := Message.from_bytes(letter.body)).channel == "update":
            asked[message.round].add(name)
    assert [len(one) for one in asked[1:]] == [3, 3, 3] and len(set.union(*asked)) == 4


def test_what_randomised_labels_cost_is_said_before(tmp_path: Path) -> None:
    experiment = {"algorithm": "fedavg", "policy": "plaintext", "allow_plaintext": True, "labels": 0.5}
    silos = federation_of(
        tmp_path, banks(2), rounds=2, evaluation="at_home", training={"hidden": [4, 4]}, **experiment
    )
    assert dry_run(terms_in(silos.approved)).alone["label"]["server"].epsilon == pytest.approx(0.5, abs=1e-4)


def test_what_is_shown_beside_the_figures_says_where_noise_is_in_it(tmp_path: Path) -> None:
    masked = {"algorithm": "fedridge", "policy": "masked", "training": {"second_moments": "sent"}}
    noised = {**masked, "policy": "distributed_dp", "unit": "node", "epsilon": 4.0}
    for place, experiment in enumerate((noised, masked)):
        (tmp_path / str(place)).mkdir()
        silos = federation_of(tmp_path / str(place), banks(2), **experiment)
        said = [one for one in dry_run(terms_in(silos.approved)).released if "subtract" in one]
        assert len(said) == 2 and all(("with its noise: " in one) == (place == 0) for one in said)


def columns() -> dict[str, Data]:
    whole = citation(nodes=80, features=6, classes=2)
    rows = [f"customer-{number}" for number in range(80)]
    return {
        "a-bank": Data(x=whole.x[:, :2], y=whole.y, edge_index=whole.edge_index, id=rows),
        "phone": Data(x=whole.x[:, 2:4], id=rows),
        "shop": Data(x=whole.x[:70, 4:].flip(0), id=rows[:70][::-1]),
    }


def aligned(tmp_path: Path, tables: dict[str, Data], policy: str, **more: Any) -> Silos:
    """A federation of columns whose silos have agreed on the order of their rows."""
    silos = federation_of(
        tmp_path,
        dict(tables),
        rows="id",
        algorithm="glasu-one-label-holder",
        policy=policy,
        rounds=2,
        training={"sampler": "public", "steps": 2},
        **more,
    )
    for name in tables:
        folder = silos.folder(name)
        names = row_names_in(name, silos.place(name), silos.approved)
        silos.residents[name] = Aligner(folder, folder.keys(), silos.approved, names)  # type: ignore[assignment]
    way = way_to_silos.Silos(Calls(silos), silos.approved)
    way.gather(3, 0, 5)
    way.align()
    return silos


def test_no_epsilon_of_columns_is_finite_against_the_server_that_scores(tmp_path: Path) -> None:
    silos = aligned(tmp_path, columns(), "plaintext", allow_plaintext=True, labels=0.5)
    label = silos.serve(silos.start_all())["privacy"]["label"]
    assert (label["epsilon"], label["against"], label["accountant"]) == ("inf", "server", "none")
    assert label["readers"]["peers"] == label["readers"]["outsider"] == pytest.approx(3 * 0.5, abs=1e-4)


def test_aligned_columns_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = columns()
    silos = aligned(tmp_path, tables, "masked")
    orders = {common_rows(silos.folder(name), silos.approved) for name in tables}
    assert len(orders) == 1
    (order,) = orders
    assert set(order) == {f"customer-{number}" for number in range(70)}
    said = dry_run(terms_in(silos.approved))
    assert {row["server"].epsilon for row in said.spent.values()} == {math.inf}  # it is the referee
    post = silos.start_all()
    holder = post.silos.residents["a-bank"]
    others = {"digest": silos.approved.digest, "run": silos.approved.run, "after": -1, "label": ""}
    train = np.zeros(70, dtype=np.uint8)
    refused = holder.answer(Letter(BEGIN, wire.encode({**others, "train": train})))
    assert refused.kind == FAILED and "other training rows" in wire.decode(refused.body)["text"]
    result = silos.serve(post)
    said_before_is_what_left(silos, post, result)

    class AsAligned:
        """In one process the order is drawn from the seed; here it is the silos'."""

        @staticmethod
        def permutation(count: int) -> np.ndarray:
            place = {row: number for number, row in enumerate(sorted(order))}
            return np.array([place[row] for row in order])

    drawn = np.random.default_rng
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed: AsAligned if seed == sub_seed(0, "rows") else drawn(seed)
    )
    with pytest.warns(sfg.DataWarning):
        federation = sfg.federate(dict(tables), rows="id")
    monkeypatch.undo()
    algorithm = ALGORITHMS["glasu-one-label-holder"](sampler="public", steps=2)
    run = sfg.train(algorithm, federation, "masked", rounds=2)
    assert result["accuracy"] == json.loads(json.dumps(run.accuracy))
