"""Ratings by category: owners, the rating network, the habits that leave the asked rating out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.training.graph_classifier import RatingTask
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.kinds import RatingsDataset
from secure_fedgraph.graph.partition.by_category import by_category
from secure_fedgraph.models.ratings import HABITS, RatingNet, habit_features
from secure_fedgraph.protocol.transcript import everything


def made_up(users: int = 30, products: int = 60, categories: int = 3, seed: int = 0) -> RatingsDataset:
    """Every user likes or dislikes everything by the same amount, nearly."""
    draw = torch.Generator().manual_seed(seed)
    pairs = (torch.rand(users, products, generator=draw) < 0.3).nonzero().T
    mood = torch.randn(users, generator=draw)
    rating = (3.5 + mood[pairs[0]] + 0.3 * torch.randn(pairs.shape[1], generator=draw)).round().clamp(1, 5)
    graph = Data(
        edge_index=torch.stack([pairs[0], pairs[1] + users]), rating=rating, num_nodes=users + products
    )
    category = torch.arange(products) % categories
    return RatingsDataset("made up", graph, category, "here", "0" * 64, users, products, categories)


@pytest.fixture(scope="module")
def dataset() -> RatingsDataset:
    return made_up()


class TestPartition:
    def test_every_rating_has_one_owner_and_comes_back(self, dataset):
        owners = by_category(dataset, 3, 0).owners
        found = {}
        for number, owner in enumerate(owners):
            user = owner.user_id[owner.edge_index[0]]
            product = owner.product_id[owner.edge_index[1] - owner.users]
            assert dataset.category[product - dataset.users].eq(number).all()
            for u, p, r in zip(user.tolist(), product.tolist(), owner.rating.tolist(), strict=True):
                assert (u, p) not in found
                found[u, p] = r
        given = dataset.graph
        pairs = zip(*given.edge_index.tolist(), strict=True)
        assert found == dict(zip(pairs, given.rating.tolist(), strict=True))

    def test_own_numbers_are_dense_users_first(self, dataset):
        for owner in by_category(dataset, 3, 0).owners:
            users, products = owner.edge_index
            assert users.unique().equal(torch.arange(owner.users))
            assert products.unique().equal(torch.arange(owner.users, owner.num_nodes))

    def test_80_10_10_of_each_owner(self, dataset):
        for owner in by_category(dataset, 3, 0).owners:
            masks = torch.stack([owner.train_mask, owner.val_mask, owner.test_mask])
            n = len(owner.rating)
            assert masks.sum(0).eq(1).all()
            assert masks.sum(1)[:2].tolist() == [int(0.8 * n), int(0.1 * n)]

    def test_the_referee_holds_no_rating(self, dataset):
        test_set = by_category(dataset, 3, 0).test_set
        assert test_set.own_tests and not test_set.tests and not len(test_set.labels)

    def test_seeds(self, dataset):
        first, again, other = (by_category(dataset, 3, seed).owners[1].train_mask for seed in (0, 0, 1))
        assert first.equal(again) and not first.equal(other)

    def test_a_handful_of_ratings_leaves_one_to_train_on(self):
        dataset = made_up()
        keep = dataset.graph.edge_index[1] == dataset.users
        few = torch.zeros_like(keep)
        few[keep.nonzero()[:1]] = True
        graph = Data(
            edge_index=dataset.graph.edge_index[:, few], rating=dataset.graph.rating[few], num_nodes=90
        )
        one = RatingsDataset("one", graph, torch.zeros(60, dtype=torch.long), "", "", 30, 60, 1)
        (owner,) = by_category(one, 1, 0).owners
        assert owner.train_mask.tolist() == [True] and not owner.test_mask.any()

    @pytest.mark.parametrize(
        ("bend", "clients", "settings", "sentence"),
        [
            (None, 2, {}, "clients = 2: by_category makes an owner for each of the 3 categories"),
            (6.0, 3, {}, "1 ratings are outside of 0 to 5, the first is rating 7 \\(6\\)"),
            (-1.0, 3, {}, "outside of 0 to 5"),
            (float("nan"), 3, {}, "outside of 0 to 5, the first is rating 7 \\(nan\\)"),
            (0.0, 3, {"lowest": 1.0}, "outside of 1 to 5.*set split.lowest"),
            (None, 3, {"lowest": 5.0}, "give a lower and a higher end"),
        ],
    )
    def test_refused(self, bend, clients, settings, sentence):
        dataset = made_up()
        if bend is not None:
            dataset.graph.rating[7] = bend
        with pytest.raises(BadInput, match=sentence):
            by_category(dataset, clients, 0, **settings)

    def test_a_category_without_ratings(self, dataset):
        empty = RatingsDataset("gap", dataset.graph, dataset.category, "", "", 30, 60, 4)
        with pytest.raises(BadInput, match="'gap'"):
            by_category(empty, 4, 0)


def small() -> Data:
    """Users 0, 1, products 2, 3: 0 gave 2 and 3 the ratings 5 and 1, 1 gave 2 a 3; the last one is a test."""
    return Data(
        edge_index=torch.tensor([[0, 0, 1, 1], [2, 3, 2, 3]]),
        rating=torch.tensor([5.0, 1.0, 3.0, 4.0]),
        train_mask=torch.tensor([True, True, True, False]),
        val_mask=torch.zeros(4, dtype=torch.bool),
        test_mask=torch.tensor([False, False, False, True]),
        scale=torch.tensor([0.0, 5.0]),
        users=2,
        num_nodes=4,
    )


class TestHabits:
    def test_in_numbers(self):
        # owner's mean 3, deviations 2, -2, 0; asked about the first rating: user 0's other one is -2,
        # product 2's other one 0; priors 1 and 5
        found = habit_features(small(), torch.tensor([0, 3]))
        assert found.shape == (2, HABITS)
        log2, log1 = torch.log(torch.tensor(3.0)), torch.log(torch.tensor(2.0))
        assert torch.allclose(found[0], torch.tensor([-2 / 2, -2 / 6, log1, 0, 0, log1, 0]))
        # a test rating: user 1's mean deviation 0 of one, product 3's -2 of one
        assert torch.allclose(found[1], torch.tensor([0, 0, log1, -2 / 2, -2 / 6, log1, 0]))
        assert log2 > log1

    def test_a_rating_tells_the_model_nothing_about_itself(self):
        """Changing it moves its own prediction through the owner's mean and median only."""
        torch.manual_seed(0)  # of this test's weights alone
        model = RatingNet((4, 4))
        for p in model.parameters():
            nn_init(p)
        graph, bent = small(), small()
        bent.rating = torch.tensor(
            [3.0, 1.0, 5.0, 4.0]
        )  # the first two of product 2 swapped: mean, median stay
        asked = torch.tensor([0])
        others = habit_features(graph, asked), habit_features(bent, asked)
        assert others[0][0, :3].equal(others[1][0, :3])  # user 0's other rating is the same
        alone = small()
        alone.rating = torch.tensor([5.0, 1.0, 3.0, -7.0])  # a test rating is looked at by nobody
        every = torch.arange(4)
        assert model(graph, every).equal(model(alone, every))

    def test_degrees_differ(self):
        model = RatingNet((4, 4))
        x = model._inputs(small(), small().edge_index[:, small().train_mask])
        assert x.argmax(1).tolist() == [1, 1, 17, 17]  # log2(2 + 1) and log2(1 + 1) are both in bucket 1
        assert x.sum(1).tolist() == [1] * 4

    def test_the_offset_and_the_mean_without_habits(self):
        model = RatingNet((4, 4), use_habits=False)
        with torch.no_grad():
            model.offset.fill_(0.25)
        assert model(small(), torch.arange(4)).tolist() == [3.25] * 4  # all other weights are zero


def nn_init(p: torch.Tensor) -> None:
    with torch.no_grad():
        p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))


class TestTask:
    def test_marks_in_numbers(self):
        graph = small()
        marked = RatingTask((4, 4)).marked(torch.tensor([9.0, 9.0, 9.0, 9.0]), graph)
        assert marked["test"].tolist() == [1, 1]  # clamped to 5, the truth is 4
        assert marked["mae_constant_4"].tolist() == [0, 1]
        assert marked["mae_client_mean"].tolist() == [1, 1] and marked["mae_client_median"].tolist() == [1, 1]
        assert marked["validation"].tolist() == [0, 0]


@pytest.fixture(scope="module")
def federation(dataset) -> sfg.Federation:
    return sfg.federate(dataset, clients=3, partition="by_category")


def go(federation: sfg.Federation, rounds: int = 15, kind: Any = sfg.ApflGate, **settings: Any) -> sfg.Run:
    base = {"hidden": (8, 8), "batch": "full", "local_steps": 5, "learning_rate": 0.05}
    return sfg.train(
        kind(**{**base, **settings}), federation, sfg.policies.plaintext(), rounds=rounds, keep=everything
    )


class TestTraining:
    def test_it_beats_what_learns_nothing_where_there_is_something_to_learn(self, federation):
        scores = go(federation).accuracy
        assert scores["mae"] < 0.75 * min(scores[k] for k in scores if k.startswith("mae_c"))
        assert set(scores) == {
            "mae", "mae_pooled", "mae_constant_4", "mae_client_mean", "mae_client_median",
            "best_by_validation", "best_on_test",
        }  # fmt: skip
        assert scores["best_on_test"]["mae"] <= scores["mae"]

    def test_attention_runs(self, federation):
        assert go(federation, 1, network="gat").accuracy["mae"] > 0

    def test_in_band(self, federation):
        algorithm = sfg.FedGate(hidden=(8, 8), batch="full", local_steps=2)
        run = sfg.train(algorithm, federation, sfg.policies.masked(), rounds=1, evaluation="in_band")
        assert 0 < run.history[0]["accuracy"]["mae"] < 5
