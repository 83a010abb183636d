"""A generator that no honest owner sends is refused by whoever should answer it, naming who sent it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import LocSagePlus
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.upload import Layout, Upload

SMALL: dict[str, Any] = {
    "hidden": (8, 8),
    "generator_epochs": 2,
    "federated_epochs": 1,
    "exchange_batch": 8,
    "minimum_batch": 1,
    "generator_hidden": (16, 32),
    "encoder": (8, 8),
    "hidden_share": 0.3,
}
Values = dict[str, torch.Tensor]
GENERATOR = sfg.FedSagePlus.GENERATOR


@pytest.fixture(autouse=True)
def a_hostile_owners_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """It checks nothing of what it sends."""
    monkeypatch.setattr(Bound, "check", lambda self, upload: None)


class Unchecked(Upload):
    """What a hostile client sends: without the check that it is finite."""

    def packed(self, unit: Unit) -> tuple[Layout, np.ndarray]:
        honest = Upload({name: value.nan_to_num(0.0) for name, value in self.values.items()})
        flat = torch.cat([value.detach().float().reshape(-1) for value in self.values.values()])
        return honest.packed(unit)[0], flat.reshape(1, -1).numpy()


class Hostile(sfg.FedSagePlus):
    """FedSage+ in which one owner changes what it offers."""

    name = "hostile"
    spoil: Callable[[Values], Values]

    @GENERATOR.answer
    def offer(self, client: Any, given: Any) -> Upload:
        honest = super().offer(client, given)
        return Unchecked(self.spoil(dict(honest.values))) if client.name == "owner-1" else honest


def scaled(prefix: str, factor: float) -> Callable[[Values], Values]:
    return lambda values: {k: v * factor if k.startswith(prefix) else v for k, v in values.items()}


def wider(values: Values) -> Values:
    name = next(k for k in values if k.startswith("fgen.") and values[k].dim() == 2)
    return values | {name: torch.zeros(values[name].shape[0] + 1, values[name].shape[1])}


SPOILT: dict[str, Callable[[Values], Values]] = {
    "other shapes": wider,
    "a parameter missing": lambda v: {k: t for i, (k, t) in enumerate(v.items()) if i},
    "a parameter too many": lambda v: {"fgen.extra": torch.zeros(2), **v},
    "NaN": scaled("fgen.", float("nan")),
    "infinite": lambda v: v | {"z": torch.full_like(v["z"], float("inf"))},
    "no embeddings": lambda v: {k: t for k, t in v.items() if k != "z"},
    "more nodes than are agreed on": lambda v: (
        v | {"z": v["z"].repeat(2, 1), "counts": v["counts"].repeat(2)}
    ),
    "narrow embeddings": lambda v: v | {"z": v["z"][:, :-1]},
}

TAMED: dict[str, Callable[[Values], Values]] = {
    "huge parameters": scaled("fgen.", 1e30),
    "huge embeddings": lambda v: v | {"z": torch.full_like(v["z"], 1e38)},
    "counts out of range": lambda v: v | {"counts": torch.full_like(v["counts"], 99.0)},
    "negative counts": lambda v: v | {"counts": torch.full_like(v["counts"], -1.0)},
}
"""What an answering owner brings into range, or what its bounded outputs swallow. Where a gradient leaves its
range depends on the answering owner's features too, so nothing of it is refused."""


@pytest.fixture(scope="module")
def federation() -> sfg.Federation:
    return sfg.federate("synthetic-citation", clients=3, nodes=90, features=16, seed=0)


@pytest.mark.parametrize(
    ("case", "policy"), [*((case, "masked") for case in SPOILT), ("other shapes", "plaintext")]
)
def test_a_spoilt_offer_is_refused_naming_its_sender(
    case: str, policy: str, federation: sfg.Federation
) -> None:
    algorithm = Hostile(**SMALL)
    algorithm.spoil = SPOILT[case]
    with pytest.raises(HostileMessage, match="owner-1"):
        sfg.train(algorithm, federation, getattr(sfg.policies, policy)(), rounds=1)


@pytest.mark.parametrize("case", TAMED)
def test_odd_counts_and_embeddings_do_no_harm(case: str, federation: sfg.Federation) -> None:
    algorithm = Hostile(**SMALL)
    algorithm.spoil = TAMED[case]
    run = sfg.train(algorithm, federation, sfg.policies.masked(), rounds=1)
    assert all(torch.isfinite(value).all() for value in run.state.values())


def test_the_unspoilt_offer_is_answered(federation: sfg.Federation) -> None:
    algorithm = Hostile(**SMALL)
    algorithm.spoil = dict
    run = sfg.train(algorithm, federation, sfg.policies.masked(), rounds=1)
    assert 0 <= run.accuracy["global"] <= 1


@pytest.mark.parametrize("policy", ["plaintext", "masked"])
@pytest.mark.parametrize("algorithm", [sfg.FedSagePlus, LocSagePlus])
def test_owners_without_any_neighbour_elsewhere_train(algorithm: Any, policy: str) -> None:
    """Three communities without a single link between them: nobody misses a neighbour."""
    size, here = 30, torch.arange(30)
    ring = torch.stack([here, (here + 1) % size])
    links = torch.cat([ring + size * part for part in range(3)], dim=1)
    generator = torch.Generator().manual_seed(0)
    graph = Data(
        x=torch.rand(3 * size, 16, generator=generator),
        y=torch.arange(3 * size) % 3,
        edge_index=torch.cat([links, links.flip(0)], dim=1),
    )
    federation = sfg.federate(graph, clients=3, partition="louvain", seed=0)
    run = sfg.train(algorithm(**SMALL), federation, getattr(sfg.policies, policy)(), rounds=2)
    assert all(torch.isfinite(value).all() for value in run.state.values())
    assert 0 <= run.accuracy["global"] <= 1


@pytest.mark.parametrize("share", [0, 1, 0.0, 1.0, -0.1, 1.5])
def test_a_hidden_share_of_nothing_or_everything_is_refused(share: float) -> None:
    with pytest.raises(BadInput, match=rf"fedsage\+ setting 'hidden_share' = {share}"):
        sfg.FedSagePlus(hidden_share=share)
