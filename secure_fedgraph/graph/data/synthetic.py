"""Generated graphs that resemble the public ones, for tests, timings and data with a known answer."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.links import ascending

_DRAWS = 40
SPREAD = 0.2
"""Standard deviation of dense features' class means about 0, and of nodes about their class's mean."""
VALUES = ("words", "dense")
LARGEST = 10**9
"""Numbers of a graph's widest table: some gigabytes, which is more than a made-up graph is for."""


def citation(
    nodes: int = 600,
    features: int = 64,
    classes: int = 4,
    seed: int = 0,
    mean_degree: float = 4.0,
    homophily: float = 0.8,
    words_per_node: int = 8,
    topic: float = 0.4,
    exponent: float = 2.6,
    values: Literal["words", "dense"] = "words",
) -> Data:
    """A citation-like graph: skewed degrees, links mostly inside a class, bag-of-words or dense features.

    A link takes its first end in proportion to node weights drawn from a power law, and its second end
    likewise from the same class (probability ``homophily``) or from the other classes. Each node draws
    ``words_per_node`` words with repetition, each from its class's own words (probability ``topic``) or
    from a Zipf law over all words, so a word may be missing but none counts twice.

    Args:
        nodes: number of nodes; isolated ones occur, as in CiteSeer.
        features: size of the vocabulary.
        classes: number of classes, about equally large, none empty.
        seed: the same arguments give the same graph.
        mean_degree: links per node times two; fewer come out only where hardly more fit.
        homophily: share of links inside a class.
        words_per_node: draws per node; for ``words`` only.
        topic: share of draws from the class's own words; for ``words`` only.
        exponent: of the degree distribution's tail, above 2; lower is more skewed.
        values: ``words``, 0 and 1; or ``dense``, real numbers about 0.

    Returns:
        ``Data`` with ``x`` float32 ``[nodes, features]``, ``y [nodes]`` and undirected ``edge_index``.

    Raises:
        BadInput: an argument out of range.

    >>> citation(nodes=100, features=16, classes=3).num_nodes
    100
    """
    ranges = {
        "nodes": (nodes, nodes >= 1, "1 or more"),
        "features": (features, features >= 1, "1 or more"),
        "classes": (classes, 1 <= classes <= nodes, f"1 to {nodes} (the number of nodes)"),
        "mean_degree": (mean_degree, 0 <= mean_degree < max(nodes, 1), f"0 to below {nodes}"),
        "homophily": (homophily, 0 <= homophily <= 1, "0 to 1"),
        "words_per_node": (words_per_node, words_per_node >= 1, "1 or more"),
        "topic": (topic, 0 <= topic <= 1, "0 to 1"),
        "exponent": (exponent, exponent > 2, "more than 2"),
    }
    for key, (value, fine, allowed) in ranges.items():
        if not fine:
            raise BadInput(f"synthetic-citation: {key} is {value}; give {allowed}.")
    widest = max(features, mean_degree, words_per_node)
    if nodes * widest > LARGEST:
        raise BadInput(
            f"synthetic-citation: nodes is {nodes}, of {widest} features, links or words each, or "
            f"{nodes * widest:.1g} numbers; give fewer, {LARGEST:.0g} at most."
        )
    if values not in VALUES:
        raise unknown_name("dataset.values", str(values), VALUES)
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(nodes) % classes)
    links = _links(y, round(nodes * mean_degree / 2), homophily, exponent, rng)
    dense = values == "dense"
    x = (
        _dense(y, classes, features, rng)
        if dense
        else _words(y, classes, features, words_per_node, topic, rng)
    )
    keys = np.sort(np.concatenate([links[0] * nodes + links[1], links[1] * nodes + links[0]]))
    both = np.stack(np.divmod(keys, nodes))
    return Data(x=torch.from_numpy(x), y=torch.from_numpy(y), edge_index=torch.from_numpy(both))


def _links(
    y: NDArray[np.int64], wanted: int, homophily: float, exponent: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    nodes = len(y)
    by_class = np.argsort(y, kind="stable")
    # Pareto weights, cut off at sqrt(N) so that no single node takes a constant share of all links
    weight = np.minimum(rng.pareto(exponent - 1, nodes) + 1, np.sqrt(nodes))[by_class]
    mass = np.concatenate([[0.0], np.cumsum(weight)])
    edge_of_class = mass[np.searchsorted(y[by_class], np.arange(y.max() + 2))]
    keys = np.empty(0, dtype=np.int64)
    for _ in range(_DRAWS):
        if (missing := wanted - len(keys)) <= 0:
            break
        first = _pick(mass, rng.random(missing) * mass[-1])
        label = y[by_class][first]
        start, size = edge_of_class[label], np.diff(edge_of_class)[label]
        inside = start + rng.random(missing) * size
        outside = rng.random(missing) * (mass[-1] - size)
        outside += np.where(outside >= start, size, 0.0)
        stay = (rng.random(missing) < homophily) | (size >= mass[-1])
        second = _pick(mass, np.where(stay, inside, outside))
        low, high = np.minimum(first, second), np.maximum(first, second)
        keys = ascending(np.concatenate([keys, (low * nodes + high)[low != high]]))
    return by_class[np.stack([keys // nodes, keys % nodes])]


def _pick(mass: NDArray[np.float64], point: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.clip(np.searchsorted(mass, point, side="right") - 1, 0, len(mass) - 2)


def _words(
    y: NDArray[np.int64], classes: int, features: int, draws: int, topic: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    nodes = len(y)
    vocabulary = rng.permutation(features)
    own = max(1, features // classes)
    topical = vocabulary[(y[:, None] * own + rng.integers(own, size=(nodes, draws))) % features]
    zipf = np.cumsum(1 / np.arange(1, features + 1))
    common = rng.permutation(features)[_pick(np.append(0.0, zipf), rng.random((nodes, draws)) * zipf[-1])]
    word = np.where(rng.random((nodes, draws)) < topic, topical, common)
    x = np.zeros((nodes, features), dtype=np.float32)
    x[np.arange(nodes)[:, None], word] = 1
    return x


def _dense(
    y: NDArray[np.int64], classes: int, features: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    means = rng.normal(0, SPREAD, (classes, features))
    return (means[y] + rng.normal(0, SPREAD, (len(y), features))).astype(np.float32)
