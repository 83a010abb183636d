"""The arithmetic of attacks, on literal values and on made-up gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

from secure_fedgraph.attacks import neighgen as generator_gradients
from secure_fedgraph.attacks.active.oracle import Asked, craft, directions, far_points, rows_of
from secure_fedgraph.attacks.active.oracle import read as read_oracle
from secure_fedgraph.attacks.active.planted_units import next_words, single_rows
from secure_fedgraph.attacks.attack import Blind, Stopped
from secure_fedgraph.attacks.feature_sums import shares_in
from secure_fedgraph.attacks.linear import groups, held, means
from secure_fedgraph.attacks.neighgen import _binary_rows, batch, single
from secure_fedgraph.attacks.payoffs import likelihoods
from secure_fedgraph.attacks.scores import denominator
from secure_fedgraph.attacks.sparse_rows import row_space, sparse_rows
from secure_fedgraph.attacks.vertical.links import Lists
from secure_fedgraph.attacks.weights.gin_steps import FirstLayer, recover, span_of
from secure_fedgraph.attacks.weights.graph_structure import Clock, Level, assemble, atoms_of, counted
from secure_fedgraph.audits import scoring
from secure_fedgraph.audits.surfaces.trained_graphs import Labelled
from secure_fedgraph.graph.data.datasets import load
from secure_fedgraph.models.neighgen.model import FeatureGenerator
from secure_fedgraph.models.neighgen.training import generator_gradient

SLOTS, PRIME = 5, 1_000_003


# Gradients of a generator (C1, C2)


@dataclass(frozen=True)
class Answer:
    """One gradient message and the truth behind it, per node and owner."""

    G: Tensor
    g: Tensor
    W: Tensor
    b: Tensor
    scale: float
    nearest: Tensor
    hidden: Tensor
    counts: Tensor


def answer(
    nodes: int,
    owners: int = 1,
    *,
    words: int = 60,
    width: int = 256,
    dropout: float = 0.5,
    counts: Tensor | None = None,
    x: Tensor | None = None,
    seed: int = 0,
) -> Answer:
    """What the owners answer: each draws noise and dropout of its own, and their gradients are added."""
    rng = torch.Generator().manual_seed(seed)
    inner = [_linear(64, 128, rng), _linear(width, 64, rng)]
    W, b = (t.requires_grad_() for t in _linear(SLOTS * words, width, rng))
    x = (torch.rand(120, words, generator=rng) < 0.1).float() if x is None else x
    counts = torch.randint(1, SLOTS + 1, (nodes,), generator=rng) if counts is None else counts
    z = torch.randn(nodes, 128, generator=rng).relu() * 0.3
    scale = 1 / (nodes * SLOTS * words)
    asked = (torch.arange(SLOTS) < counts[:, None])[:, :, None]
    loss, nearest, hidden = torch.zeros(()), [], []
    for owner in range(owners):
        held = x[owner::owners]
        h = z + torch.randn(z.shape, generator=rng)
        for matrix, bias in inner:
            h = torch.relu(h @ matrix.T + bias)
        if dropout:
            h = h * (torch.rand(h.shape, generator=rng) > dropout) / (1 - dropout)
        generated = torch.tanh(h @ W.T + b).reshape(nodes, SLOTS, words)
        target = held[torch.cdist(generated.detach().flatten(0, 1), held).argmin(1)].reshape(generated.shape)
        loss = loss + scale * ((generated - target).square() * asked).sum()
        nearest.append(target)
        hidden.append(h)
    G, g = torch.autograd.grad(loss, (W, b))
    return Answer(
        G, g, W.detach(), b.detach(), scale, torch.cat(nearest), torch.cat(hidden), counts.repeat(owners)
    )


def _linear(outputs: int, inputs: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    bound = inputs**-0.5
    draw = (torch.rand(outputs, inputs + 1, generator=rng) * 2 - 1) * bound
    return draw[:, :-1].contiguous(), draw[:, -1].contiguous()


def read(said: Answer, **settings: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    return batch(said.G, said.g, said.W, said.b, said.scale, len(said.hidden), **settings)


def exact(said: Answer, found: tuple[np.ndarray, np.ndarray, bool]) -> int:
    """How many nodes are right in every word of every slot asked for, and missing in every other."""
    true = torch.nn.functional.normalize(said.hidden, dim=1).numpy()
    right = set()
    for features, hidden in zip(found[0].round(2), found[1], strict=True):
        node = int((true @ hidden).argmax())
        count = int(said.counts[node])
        same = np.array_equal(features[:count], said.nearest[node, :count].numpy())
        if same and np.isnan(features[count:]).all():
            right.add(node)
    return len(right)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_one_node_is_exact_and_slots_not_asked_for_are_missing(count: int, dropout: float) -> None:
    said = answer(1, dropout=dropout, counts=torch.tensor([count]))
    x = single(said.G, said.g, said.W, said.b, said.scale)
    np.testing.assert_allclose(x[:count], said.nearest[0, :count].numpy(), atol=1e-4)
    assert np.isnan(x[count:]).all()
    assert exact(said, read(said)) == 1


@pytest.mark.parametrize(("nodes", "owners"), [(2, 1), (8, 1), (4, 2), (16, 1)])
@pytest.mark.parametrize("counts", ["mixed", "all"])
def test_a_batch_is_exact(nodes: int, owners: int, counts: str) -> None:
    said = answer(nodes, owners, counts=torch.full((nodes,), SLOTS) if counts == "all" else None)
    found = read(said)
    assert exact(said, found) == nodes * owners == len(found[0])
    assert found[2]


@pytest.mark.parametrize(
    ("how", "settings"),
    [
        ({"dropout": 0.0, "nodes": 4}, {}),
        ({"nodes": 6, "counts": torch.full((6,), SLOTS)}, {"search": "columns"}),
    ],
    ids=["without dropout", "chosen columns alone"],
)
def test_other_batches_are_exact_too(how: dict[str, Any], settings: dict[str, Any]) -> None:
    said = answer(**how)
    assert exact(said, read(said, **settings)) == how["nodes"]


def test_real_valued_features_are_read_too() -> None:
    x = torch.rand(40, 60, generator=torch.Generator().manual_seed(1)) * 2 - 1
    said = answer(4, x=x, counts=torch.full((4,), SLOTS))
    best = [np.abs(said.nearest.numpy() - one).max((1, 2)).min() for one in read(said)[0]]
    assert len(best) == 4 and max(best) < 1e-4


def test_a_fixed_point_grid_is_no_obstacle_and_noise_ten_times_the_gradient_ends_it() -> None:
    """Noise of the size of the entries does not end it: they are many, and a feature is one of two values."""
    said = answer(8, counts=torch.full((8,), SLOTS))
    coarse = {name: torch.round(getattr(said, name).double() * 2**24) / 2**24 for name in ("G", "g")}
    assert exact(said, read(replace(said, **coarse))) == 8
    rng = torch.Generator().manual_seed(3)
    noisy = {
        n: (t := getattr(said, n)) + 10 * t.std() * torch.randn(t.shape, generator=rng) for n in ("G", "g")
    }
    assert exact(said, read(replace(said, **noisy), seconds=1)) == 0


def test_nodes_found_before_the_time_is_up_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    said = answer(8, counts=torch.tensor([5, 5, 4, 3, 2, 5, 5, 1]))
    monkeypatch.setattr(generator_gradients, "sparse_rows", lambda *a, **k: sparse_rows(*a, **k)[:5])
    found = read(said)
    assert not found[2]
    assert exact(said, found) >= 4


def test_what_is_returned_is_an_activation_and_never_a_mixture() -> None:
    said = answer(8, counts=torch.full((8,), SLOTS))
    space = row_space(said.G.double(), 20)
    assert space.rank == 8
    for search in ("contrast", "columns"):
        found = (sparse_rows(space, seconds=20, search=search) @ space.basis.T).float()
        near = (
            torch.nn.functional.normalize(found, dim=1) @ torch.nn.functional.normalize(said.hidden, dim=1).T
        )
        assert torch.all(near.max(1).values > 1 - 1e-5) and len(set(near.argmax(1).tolist())) == len(found)


def test_a_gradient_of_zeros_holds_nothing() -> None:
    said = answer(2)
    with pytest.raises(Blind):
        read(replace(said, G=said.G * 0, g=said.g * 0))


@pytest.mark.slow
@pytest.mark.needs_data("planetoid")
@pytest.mark.parametrize(("nodes", "owners"), [(1, 1), (8, 2), (32, 1), (64, 1)])
def test_cora_at_the_papers_size(nodes: int, owners: int) -> None:
    x = (load("cora", allow_download=False).graph.x > 0).float()
    said = answer(
        nodes, owners, words=x.shape[1], width=2048, x=x, counts=torch.full((nodes,), SLOTS), seed=7
    )
    assert exact(said, read(said, seconds=120)) == nodes * owners


# Answers to a crafted generator (C3), and planted units (A5)


def answered(offer: dict[str, Any], nodes: np.ndarray, seed: int) -> np.ndarray:
    latent, words = offer["z"].shape[1], nodes.shape[1]
    widths = (offer["fgen.inner.0.weight"].shape[0], offer["fgen.inner.1.weight"].shape[0])
    params = {name.removeprefix("fgen."): v for name, v in offer.items() if name.startswith("fgen.")}
    counts, scale = offer["counts"].long(), 1 / (len(offer["z"]) * SLOTS)
    random = torch.Generator().manual_seed(seed)
    fgen = FeatureGenerator(latent, words, SLOTS, widths)
    fgen.load_state_dict(params)
    targets = torch.as_tensor(nodes, dtype=torch.float32)
    return generator_gradient(fgen, offer["z"], counts, targets, scale, random)["outer.weight"].numpy()


def test_an_answer_names_the_nearest_node_of_each_point() -> None:
    nodes = np.eye(6)[[0, 2, 5]]
    points = np.full((4, SLOTS, 6), 0.5)
    points[:, :, 2] += 0.2
    offer = craft(points, repeats=8, latent=8, widths=(16, 32), seed=0)
    asked = Asked({name: value.numpy() for name, value in offer.items()}, 1 / (32 * SLOTS))
    assert read_oracle(answered(offer, nodes, 1), asked, 1).tolist() == [nodes[1].tolist()]


def test_two_owners_rows_come_apart_from_their_sum() -> None:
    one, other = np.array([[1.0, 0, 1, 0, 0, 0, 0, 0, 0, 0]]), np.array([[0, 1.0, 1, 0, 0, 0, 0, 0, 0, 0]])
    points = np.full((16, SLOTS, 10), 0.5)
    offer = craft(points, repeats=4, latent=8, widths=(16, 32), seed=0)
    asked = Asked({name: value.numpy() for name, value in offer.items()}, 1 / (64 * SLOTS))
    found = read_oracle(answered(offer, one, 1) + answered(offer, other, 2), asked, 2)
    assert sorted(map(tuple, found.tolist())) == sorted([tuple(one[0]), tuple(other[0])])


def test_a_known_node_is_not_asked_for_again() -> None:
    nodes = np.array([[1.0, 1, 0, 0], [1.0, 0, 1, 0]])
    rng = np.random.default_rng(0)
    w = directions(40, 4, nodes[:1], rng)
    for_first = w[w.argmax(1) == 0]
    assert (for_first @ nodes[1] > for_first @ nodes[0]).all()


def test_dense_rows_that_the_oracle_names_are_real_and_nearly_all() -> None:
    """Corners of the cube ask for the furthest in a direction; points inside it name the nodes near them."""
    nodes = np.random.default_rng(0).normal(0.3, 0.25, (40, 24)).clip(-1, 1).astype(np.float32)
    asked = far_points(96 * SLOTS, nodes.shape[1], nodes[:0], np.random.default_rng(0))
    offer = craft(asked.reshape(96, SLOTS, -1), repeats=1, latent=8, widths=(16, 96), seed=0)
    known = Asked({name: value.numpy() for name, value in offer.items()}, 1 / (96 * SLOTS))
    rows = rows_of(answered(offer, nodes, 1), known, 1)
    held = scoring.match_rows(rows.astype(np.float64), nodes.astype(np.float64))
    assert held.exact.mean() > 0.95
    assert len(np.unique(held.nearest[held.exact])) > 0.8 * len(nodes)
    again = far_points(200, nodes.shape[1], nodes[:20], np.random.default_rng(1))
    chance = far_points(200, nodes.shape[1], nodes[:0], np.random.default_rng(1))
    unknown = [(((c[:, None] - nodes) ** 2).sum(2).argmin(1) >= 20).mean() for c in (again, chance)]
    assert unknown[0] > unknown[1] + 0.1  # what is known is not asked for again


def test_rows_of_several_nodes_and_units_that_did_not_move_are_left_out() -> None:
    nodes = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    weight = np.stack([0.3 * nodes[0], 0.3 * nodes[0] + 0.2 * nodes[1], np.zeros(3)])
    bias = np.array([0.3, 0.5, 0.0])
    assert single_rows(weight, bias).tolist() == [nodes[0].tolist()]


def test_a_unit_of_several_nodes_asks_for_a_word_that_some_of_them_have() -> None:
    nodes = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    weight = np.stack([0.3 * nodes[0], 0.3 * nodes[0] + 0.2 * nodes[1]])
    asked = {0: np.array([0, 1]), 1: np.array([0, 1])}
    following = next_words(asked, weight, np.array([0.3, 0.5]), np.random.default_rng(0))
    assert following[1].tolist() == [0, 1, 2]
    assert len(following[0]) == 2


# Row spaces (E2, F1), batches of a layer (A3), graphs (A6)


def in_row_space(rows: np.ndarray) -> np.ndarray:
    """Which unit vectors are in the row space of a 0/1 matrix: by elimination modulo a prime."""
    matrix = rows.astype(np.int64) % PRIME
    pivots: list[int] = []
    for column in range(matrix.shape[1]):
        below = np.flatnonzero(matrix[len(pivots) :, column]) + len(pivots)
        if not len(below):
            continue
        top = len(pivots)
        matrix[[top, below[0]]] = matrix[[below[0], top]]
        matrix[top] = matrix[top] * pow(int(matrix[top, column]), -1, PRIME) % PRIME
        others = np.arange(len(matrix)) != top
        matrix[others] = (matrix[others] - np.outer(matrix[others, column], matrix[top])) % PRIME
        pivots.append(column)
    found = np.zeros(matrix.shape[1], dtype=bool)
    for row, column in enumerate(pivots):  # reduced: a unit vector is in the space where it is a row
        found[column] = np.count_nonzero(matrix[row]) == 1
    return found


@given(arrays(np.int8, st.tuples(st.integers(1, 8), st.integers(1, 7)), elements=st.integers(0, 1)))
def test_what_a_row_space_holds_is_solved_for_exactly(rows: np.ndarray) -> None:
    truth = np.random.default_rng(0).normal(size=(rows.shape[1], 3))
    inverse, solved = held(rows)
    assert np.array_equal(solved, in_row_space(rows))
    assert np.allclose((inverse @ rows @ truth)[solved], truth[solved])
    if solved.any() and rows.any(1).all():  # cohorts whose updates do not drift
        assert np.allclose(means(rows, rows @ truth)[solved], truth[solved], atol=1e-4)


def test_groups_are_who_was_always_together() -> None:
    cohorts = np.array([[1, 1, 1, 0], [0, 0, 1, 1]])
    assert sorted(map(list, groups(cohorts))) == [[0, 1], [2], [3]]


def layer(nodes: int, units: int, inputs: int, seed: int = 0, *, words: bool = False) -> FirstLayer:
    """A step on dense features, kept in single precision, whose gradients are zero where ReLU is."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(nodes, inputs)) if not words else (rng.random((nodes, inputs)) < 0.1).astype(float)
    weight, bias = rng.normal(size=(units, inputs)) / inputs**0.5, 0.1 * rng.normal(size=units)
    weight, bias = weight.astype(np.float32).astype(float), bias.astype(np.float32).astype(float)
    gradients = rng.normal(size=(nodes, units)) * (x @ weight.T + bias > 0)
    after, after_bias = (
        (part + step).astype(np.float32).astype(float)
        for part, step in ((weight, gradients.T @ x), (bias, gradients.sum(0)))
    )
    made = FirstLayer(after - weight, after_bias - bias, weight, bias)
    object.__setattr__(made, "true", x)
    return made


def off(made: FirstLayer, rows: np.ndarray) -> float:
    true = made.true  # type: ignore[attr-defined]
    return float(max(np.abs(rows - row).max(1).min() for row in true))


@pytest.mark.parametrize(("nodes", "units", "inputs", "words"), [(1, 96, 40, False), (5, 96, 40, False),
                         (10, 96, 40, False), (24, 32, 300, True)])  # fmt: skip
def test_rows_by_the_zeros_of_relu_or_by_their_own(nodes: int, units: int, inputs: int, words: bool) -> None:
    made = layer(nodes, units, inputs, words=words)
    found = recover(made, 10.0)
    assert isinstance(found, np.ndarray) and found.shape == (nodes, inputs)
    assert off(made, found) < 1e-3


def test_without_zeros_and_with_as_many_nodes_as_units_nothing_is_recovered() -> None:
    made, rng = layer(6, 96, 40), np.random.default_rng(3)
    gradients = rng.normal(size=(6, 96))
    true = made.true  # type: ignore[attr-defined]
    linear = FirstLayer(gradients.T @ true, gradients.sum(0), made.weight, made.bias)
    stopped = recover(linear, 1.0)
    assert isinstance(stopped, Stopped) and np.isnan(stopped.values).any()
    assert np.isnan(recover(layer(40, 32, 300, words=True), 5.0)).all()


def test_vectors_of_a_row_space_are_told_from_others() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5, 40))
    before = rng.normal(size=(30, 40)).astype(np.float32)
    after = (before + (rng.normal(size=(30, 5)) @ rows)).astype(np.float32)
    span = span_of(after.astype(np.float64) - before, before.astype(np.float64))
    assert span.rank == 5
    assert span.holds(rng.normal(size=(20, 5)) @ rows).all()
    assert not span.holds(rng.normal(size=(20, 40))).any()
    assert not span.holds(rows + 1e-3 * rng.normal(size=rows.shape)).any()


def ring(width: int = 8) -> list[Level]:
    """Trees of two kinds of atoms: six of the first around a ring, with one of the second at one of them."""
    rng = np.random.default_rng(1)
    atoms = Level(np.array([0, 1]), [(), ()], rng.random((2, width)))
    around = [(0, 0), (0, 0, 1), (0,)]
    first = Level(np.array([0, 0, 1]), around, rng.random((3, width)))
    return [atoms, first]


def test_nodes_are_counted_by_whole_numbers_and_ends_of_links() -> None:
    level = ring()[1]
    true = np.array([5, 1, 1])
    counts = counted(level, true @ level.made)
    assert counts is not None
    assert counts.tolist() == [5, 1, 1]
    assert counted(level, np.array([5, 1, 2]) @ level.made) is None  # one end of a link is left over
    assert counted(level, np.array([5, 1, 1]) @ level.made + 0.3) is None


def test_a_graph_is_put_together_and_connected() -> None:
    levels = ring()
    built = assemble(levels[1], np.array([5, 1, 1]), Clock(10.0))
    assert built is not None
    nodes, links = built
    true = Labelled(np.array([[0.0]] * 6 + [[1.0]]), np.array([[0, 1, 2, 3, 4, 0, 0], [1, 2, 3, 4, 5, 5, 6]]))
    made = Labelled(atoms_of(levels, nodes)[:, None].astype(float), links)
    assert made.same(true)


# Lists, motifs, scores, sums


def test_d1_scores_by_hand() -> None:
    """Node 0 has the one link 0-1; 2 comes up as often with it as without."""
    centres = np.zeros((40, 4), dtype=bool)
    centres[:20, 0] = centres[20:, 3] = True
    drawn = np.zeros_like(centres)
    drawn[:20, 1] = drawn[::2, 2] = True
    scores = Lists(centres, ~centres, drawn, 3, 3).scores()
    assert scores[0, 1] > 10 > 0 > scores[3, 1]
    assert scores[0, 1] == scores[1, 0] > scores[0, 2]
    assert np.isnan(scores[1, 2])  # neither was a centre


def test_likelihoods_by_hand_a_rare_listed_motif_counts_for_and_a_missing_one_against() -> None:
    holds = np.array([[True, False, False], [False, True, False], [False, False, True], [False] * 3])
    others = np.array([[False, True, False], [False, True, False]])
    rare, common, missing, none = likelihoods(holds, np.array([True, True, False]), others)
    assert rare > common > none > missing
    assert none == 0


def test_denominators_by_hand() -> None:
    exact = np.array([3 / 7, 5 / 7], dtype=np.float32)
    assert denominator(exact) == 7
    assert denominator(exact + 0.01) != 7
    assert denominator(np.zeros(3)) == 0


def test_shares_of_a_mixture_are_those_it_was_made_of() -> None:
    rows = np.random.default_rng(0).random((40, 60))
    inside = np.arange(40) % 3 == 0
    assert np.abs(shares_in(rows[inside].sum(0), rows, 3000) - inside).max() < 0.1


def test_small_dense_features_are_not_rounded_to_bags_without_words() -> None:
    small = np.random.default_rng(0).normal(0, 0.1, (6, 40))
    assert _binary_rows(small) is small
    words = (np.random.default_rng(0).random((6, 40)) < 0.2) + 0.01
    assert set(np.unique(_binary_rows(words))) == {0.0, 1.0}
