"""Ratings dealt by the category of what is rated: one owner a category (FedGraphNN)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.kinds import RatingsDataset
from secure_fedgraph.graph.partition.result import Partition, TestSet
from secure_fedgraph.graph.seeds import sub_seed

TRAINING, VALIDATION = 0.8, 0.1


def by_category(
    dataset: RatingsDataset, clients: int, seed: int, *, lowest: float = 0.0, highest: float = 5.0
) -> Partition:
    """One owner for each category, with the ratings of its products and the users who rated them.

    Guarantees:
        - every rating has one owner; products too; users appear at every owner whose products they rated;
        - an owner knows its users and products by numbers of its own;
        - the referee holds no rating: owners score their own tests.

    Args:
        dataset: ratings.
        clients: as many as there are categories.
        seed: of each owner's split into 80 % training, 10 % validation and 10 % test ratings, by sub-seeds.
        lowest: end of the scale. Ciao's starts at 1, and 32 of its ratings are 0.
        highest: end of the scale.

    Returns:
        Owners with ``edge_index [2, R]`` (user above product, users first), ``rating [R]``, ``users``, the
        masks ``[R]``, ``scale [2]``, and ``user_id`` and ``product_id`` in the data set's numbers.

    Raises:
        BadInput: for another number of clients, a rating outside of its scale or not finite, or a category
            without ratings.

    References:
        He et al., FedGraphNN, 2021: Ciao by its 28 categories.
    """
    if clients != dataset.categories:
        raise BadInput(
            f"clients = {clients}: by_category makes an owner for each of the {dataset.categories} "
            f"categories of {dataset.name!r}; give clients = {dataset.categories}"
        )
    _check_scale(dataset, lowest, highest)
    category = dataset.category[dataset.graph.edge_index[1] - dataset.users]
    owners = tuple(_owner(dataset, category == number, number, seed) for number in range(clients))
    for owner in owners:
        owner.scale = torch.tensor([lowest, highest])
    users = torch.bincount(torch.cat([owner.user_id for owner in owners]), minlength=dataset.users)
    facts = {
        "users": dataset.users,
        "products": dataset.products,
        "ratings": len(category),
        "sizes": [len(owner.rating) for owner in owners],
        "training": [int(owner.train_mask.sum()) for owner in owners],
        "users_held_by_several": int((users > 1).sum()),
        "holders": int(users.max()),
    }
    no_labels = torch.empty(0)
    test_set = TestSet(Data(num_nodes=0), no_labels, {}, {}, own_tests=True)
    return Partition(owners, test_set, facts)


def _owner(dataset: RatingsDataset, chosen: Tensor, number: int, seed: int) -> Data:
    users, products = dataset.graph.edge_index[:, chosen]
    if not len(users):
        raise BadInput(f"category {number} of {dataset.name!r} has no rating: drop it")
    user_id, user = users.unique(return_inverse=True)
    product_id, product = products.unique(return_inverse=True)
    owner = Data(
        edge_index=torch.stack([user, product + len(user_id)]),
        rating=dataset.graph.rating[chosen].float(),
        user_id=user_id,
        product_id=product_id,
        users=len(user_id),
        num_nodes=len(user_id) + len(product_id),
    )
    ratings = len(user)
    rng = np.random.default_rng(sub_seed(seed, f"category/{number}"))
    order = torch.from_numpy(rng.permutation(ratings))
    # a handful of ratings still leaves one to train on
    training = max(1, int(ratings * TRAINING))
    held_out = min(int(ratings * VALIDATION), ratings - training)
    parts = order.split([training, held_out, ratings - training - held_out])
    for key, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        owner[key] = torch.zeros(ratings, dtype=torch.bool).index_fill_(0, part, True)
    return owner


def _check_scale(dataset: RatingsDataset, lowest: float, highest: float) -> None:
    if not lowest < highest:
        raise BadInput(f"split.lowest = {lowest}, split.highest = {highest}: give a lower and a higher end")
    rating = dataset.graph.rating
    wrong = ~((rating >= lowest) & (rating <= highest))  # so that NaN is wrong too
    if bool(wrong.any()):
        place = int(wrong.nonzero()[0])
        raise BadInput(
            f"{dataset.name!r}: {int(wrong.sum())} ratings are outside of {lowest:g} to {highest:g}, the "
            f"first is rating {place} ({float(rating[place]):g}); mend them, or set split.lowest and "
            "split.highest"
        )
