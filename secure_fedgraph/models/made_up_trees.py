"""Trials of a user's model on made-up trees: what fits, and scores and gradients that are finite."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import stand_in_answers
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.models.finite import all_are_finite
from secure_fedgraph.models.given import check_scores, check_trains, seeded
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.per_record import check_model, tree_gradients
from secure_fedgraph.models.targets import loss_of

NODES = 6
"""Of the made-up trees."""
MISSING = "read zeros there: x[level.clamp(min=0)] * (level >= 0).unsqueeze(-1)"
CLOSE = 1e-4
"""How much of the largest score two sums of the same numbers may differ by."""


def check_depth(model: nn.Module, fanout: Sequence[int]) -> None:
    """Checks that trees have as many levels as a GraphSAGE has layers; of other models nobody knows.

    Raises:
        BadInput: naming both numbers.
    """
    if not isinstance(model, GraphSage) or model.hops == len(fanout):
        return
    raise BadInput(
        f"training.fanout = {list(fanout)}, and model {type(model).__name__} is of depth {model.hops}: give "
        f"training.fanout one number a layer, such as {', '.join(['5'] * model.hops)}"
    )


def check_scores_of_trees(model: nn.Module, schema: Schema, fanout: Sequence[int], dropout: bool) -> None:
    """Checks that ``forward_tree`` scores and trains on made-up trees, and reads nothing where no node is.

    Nodes are numbered otherwise the second time. What a model reads at -1 is another node's row then, and
    its scores change with that.

    Args:
        model: of a user's own; it is left alone.
        schema: of one graph.
        fanout: of the trees.
        dropout: whether it is given a generator that draws dropout.

    Raises:
        BadInput: naming what the model fails with, or what it reads.
    """
    drawn = torch.Generator().manual_seed(0)
    tried, name = copy.deepcopy(model).eval(), type(model).__name__
    x = torch.rand(NODES, schema.features, generator=drawn)
    full, some = _full_and_some(fanout, drawn)
    cases = [(y, tree) for each in (full, some) for y, tree in ((x, each), (x.flip(0), _turned(each)))]
    try:
        found = [_scores_of_tree(tried, *case, dropout) for case in cases]
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"model {name}: forward_tree fails on made-up trees of training.fanout = {list(fanout)}, one "
            f"level a number ({type(error).__name__}: {str(error).strip().partition(chr(10))[0]}): let it "
            "take x and node ids [b], [b, f1], ..., -1 where there is no neighbour, or leave forward_tree out"
        ) from None
    sound: list[Tensor] = []
    for one in found:
        given = check_scores(one, len(full[0]), schema.classes, f"model {name}: forward_tree", "tree")
        sound.append(given.detach())
        _check_finite(sound[-1:], name, "forward_tree", "scores")
    if _close(*sound[:2]) and not _close(*sound[2:]):
        raise BadInput(
            f"model {name}: forward_tree reads a node's features where a tree has no node (-1): {MISSING}"
        )
    try:
        scores = _scores_of_tree(tried.train(), x, full, dropout, trains=True)
    except Exception:  # nobody said that it trains on so few trees
        return
    who = f"model {name}: forward_tree"
    check_trains(
        check_scores(scores, len(full[0]), schema.classes, f"{who}, in training,", "tree"), tried, who
    )


def _full_and_some(fanout: Sequence[int], drawn: torch.Generator) -> tuple[list[Tensor], list[Tensor]]:
    """Three trees, and the same where the last root and the others' first neighbours have no neighbour."""
    full = [torch.tensor([1, 2, 3])]
    for width in fanout:
        full.append(torch.randint(NODES, (*full[-1].shape, width), generator=drawn))
    some = full[:1]
    for level in full[1:]:
        below = torch.where(some[-1].unsqueeze(-1) < 0, -1, level)
        below[-1] = -1
        if len(some) > 1:
            below[:, 0] = -1
        some.append(below)
    return full, some


def _turned(tree: Sequence[Tensor]) -> list[Tensor]:
    """The same tree where nodes are numbered from the other end."""
    return [torch.where(level < 0, level, NODES - 1 - level) for level in tree]


def _scores_of_tree(
    model: nn.Module, x: Tensor, tree: Sequence[Tensor], dropout: bool, trains: bool = False
) -> object:
    """As local training calls a model."""
    prepared, forward_tree = getattr(model, "prepared", None), model.forward_tree
    given = x.clone() if prepared is None else prepared(x.clone())
    noise = {"generator": torch.Generator().manual_seed(0)} if dropout else {}
    with torch.set_grad_enabled(trains), seeded(0):
        made: object = forward_tree(given, tree, **noise)  # type: ignore[operator]
    return made


def check_trees(model: nn.Module, schema: Schema, fanout: Sequence[int]) -> None:
    """Checks that single trees have scores and gradients, on made-up ones, one without neighbours.

    Args:
        model: as :func:`~secure_fedgraph.models.per_record.tree_gradients` takes it; it is left alone.
        schema: of one graph.
        fanout: of the trees.

    Raises:
        BadInput: naming what the model fails with.
    """
    drawn = torch.Generator().manual_seed(0)
    sizes = [math.prod(max(one, 1) for one in fanout[:level]) for level in range(len(fanout) + 1)]
    x = torch.rand(NODES, schema.features, generator=drawn)
    trees = torch.randint(NODES, (2, sum(sizes)), generator=drawn)
    trees[1, 1:] = -1  # a node without neighbours
    name, tried = type(model).__name__, copy.deepcopy(model).train()
    who = f"model {name}: forward_positions"
    answers = stand_in_answers(torch.tensor([0, max(schema.classes - 1, 1)]), schema)
    try:
        check_model(tried, whole=False)
        with seeded(0):
            scores = tried.forward_positions(x[trees[:1]], trees[:1] >= 0)  # type: ignore[operator]
        check_trains(check_scores(scores, 1, schema.classes, who, "tree"), tried, who)
        made = tree_gradients(copy.deepcopy(model).train(), x, trees, answers, loss_of(schema))
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"model {name} fails on made-up trees as noisy steps call it, one tree at a time "
            f"({type(error).__name__}: {str(error).strip().partition(chr(10))[0]}): it has to take "
            "float32, draw nothing at random, and not branch on a value"
        ) from None
    _check_finite(made.values(), name, "forward_positions", "gradients")


def _check_finite(values: Iterable[Tensor], name: str, method: str, what: str) -> None:
    if not all_are_finite(values):
        raise BadInput(
            f"model {name}: {method} gives {what} that are NaN or infinite on made-up trees: look for a "
            "division by 0, a root or a logarithm of it, and weights that are not finite"
        )


def _close(one: Tensor, other: Tensor) -> bool:
    """Up to rounding; where the numbers are not finite, nothing is told apart."""
    if one.shape != other.shape:
        return False
    if not one.numel() or not bool(torch.isfinite(one).all() & torch.isfinite(other).all()):
        return True
    most = max(float(one.abs().max()), float(other.abs().max()))
    return float((one - other).abs().max()) <= CLOSE * most + 1e-6
