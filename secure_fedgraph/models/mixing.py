"""Trials of a model on made-up graphs and trees: scores and gradients of their own, and finite ones."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.data import Data

from secure_fedgraph.errors import BadInput
from secure_fedgraph.graph.answers import stand_in_answers
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, Schema
from secure_fedgraph.models.finite import all_are_finite
from secure_fedgraph.models.given import check_scores, check_trains, seeded
from secure_fedgraph.models.gnn import GraphSage
from secure_fedgraph.models.per_record import check_model, graph_gradients, scores_of_copy, tree_gradients
from secure_fedgraph.models.targets import loss_of

SIZES = (3, 6, 4, 5)
"""Nodes of the made-up graphs, in no order by which a model could sort them and leave them where they are."""
NODES = 6
"""Of the made-up trees."""
MISSING = "read zeros there: x[level.clamp(min=0)] * (level >= 0).unsqueeze(-1)"
SAME = 1e-4
"""How much of the longest gradient of a parameter two sums of the same numbers may differ by."""
SHAKEN = 0.1
"""The noise on parameters with which a model is tried besides: where they are zero, nothing mixes."""
MEND = "under noisy steps normalise each node by itself (F.layer_norm), or over its own graph"


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


def check_alone(model: nn.Module, schema: Schema) -> None:
    """Checks that a graph has the same scores alone as beside others.

    Noisy steps take each graph of somebody else's model alone, and predictions are made of several together:
    a model that lets them meet would predict otherwise than it was trained. The graphs are made up under a
    seed, from public facts only. The model is tried as it trains, with dropout left out and other draws held
    still, at its own parameters and near them.

    Args:
        model: as :func:`~secure_fedgraph.models.per_record.graph_gradients` takes it; it is left alone.
        schema: of a set of graphs.

    Raises:
        BadInput: naming the layer where graphs meet, or what the model fails with.
    """
    graphs = _made_up(schema)
    kind = type(model).__name__
    for shake in (0.0, SHAKEN):
        try:
            tried = _shaken(model, shake)
            together, again = _scores(tried, graphs), _scores(tried, graphs)
            alone = torch.cat([_scores(tried, [graph]) for graph in graphs])
            graph_gradients(tried, pack(graphs), loss_of(schema))
        except BadInput:
            raise
        except Exception as error:
            if shake:  # nobody said that it works with other parameters
                continue
            raise BadInput(
                f"model {kind} fails on made-up graphs as noisy steps call it ({type(error).__name__}: "
                f"{str(error).strip().partition(chr(10))[0]}); their features are {_features(schema)}"
            ) from None
        if _close(together, alone):
            continue
        if not _close(together, again):
            raise BadInput(
                f"model {kind} gives the same graphs other scores the second time, so nobody sees whether "
                "graphs meet in it: under noisy steps let it keep nothing from one call to the next, and "
                "draw with torch's dropout only"
            )
        place = _meeting(tried, graphs)
        raise BadInput(
            f"model {kind} mixes the graphs of a batch{place}: their scores come out otherwise beside others "
            f"than alone, and under noise each trains alone; {MEND}"
        )


def _made_up(schema: Schema) -> list[Data]:
    """Rings of some sizes; two graphs of one class, so that not only classes tell them apart."""
    generator = torch.Generator().manual_seed(0)

    def columns(rows: int, width: int, sizes: Sequence[int]) -> Tensor:
        if sizes:
            return torch.stack([torch.randint(n, (rows,), generator=generator) for n in sizes], 1).float()
        return torch.randn(rows, width, generator=generator)

    graphs = []
    for number, nodes in enumerate(SIZES):
        here = torch.arange(nodes)
        after = (here + 1) % nodes
        links = torch.stack([torch.cat([here, after]), torch.cat([after, here])])
        graph = Data(
            x=columns(nodes, schema.features, schema.atoms),
            edge_index=links,
            y=stand_in_answers(torch.tensor([number % 3]), schema),
        )
        if schema.bonds or schema.edge_attr != NO_EDGE_ATTR:
            drawn = columns(links.shape[1], max(schema.edge_attr, 1), schema.bonds)
            graph.edge_attr = drawn.squeeze(1) if schema.edge_attr == 0 else drawn
        graphs.append(graph)
    return graphs


def _features(schema: Schema) -> str:
    """What the made-up graphs' features are, for an error."""
    if schema.atoms:
        return f"numbers of categories, below {list(schema.atoms)} by column"
    return "normal draws, which may be negative: clamp them where yours are numbers of categories"


def _shaken(model: nn.Module, amount: float) -> nn.Module:
    tried = copy.deepcopy(model).train()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in tried.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * amount)
    return tried


def _scores(model: nn.Module, graphs: Sequence[Data]) -> Tensor:
    """The scores of some graphs together."""
    with torch.no_grad(), seeded(0), _Still():
        return scores_of_copy(model, pack(graphs))[0]


def _close(one: Tensor, other: Tensor) -> bool:
    """Up to rounding; where the numbers are not finite, nothing is told apart."""
    if one.shape != other.shape:
        return False
    if not one.numel() or not bool(torch.isfinite(one).all() & torch.isfinite(other).all()):
        return True
    most = max(float(one.flatten(1).norm(dim=1).max()), float(other.flatten(1).norm(dim=1).max()))
    return float((one - other).abs().max()) <= SAME * most + 1e-6


def _meeting(model: nn.Module, graphs: Sequence[Data]) -> str:
    """The first module whose rows come out otherwise beside others; nothing where it is none's output."""
    with _outputs(model) as together:
        _scores(model, graphs)
    parts: dict[str, list[Tensor]] = {}
    for graph in graphs:
        with _outputs(model) as alone:
            _scores(model, [graph])
        for name, value in alone.items():
            parts.setdefault(name, []).append(value)
    for name, value in together.items():
        apart = torch.cat(parts[name]) if name in parts else value
        if value.dim() and not _close(value.unsqueeze(-1), apart.unsqueeze(-1)):
            return f" at {name!r}, a {type(model.get_submodule(name)).__name__}"
    return ""


@contextmanager
def _outputs(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """What each module without parts gives at its first call, in the order of the calls."""
    seen: dict[str, Tensor] = {}

    def noting(name: str) -> Callable[..., None]:
        def note(module: nn.Module, given: Any, result: Any) -> None:
            if isinstance(result, Tensor) and result.dim():
                seen.setdefault(name, result.detach().clone())

        return note

    parts = [(name, one) for name, one in model.named_modules() if name and not list(one.children())]
    handles = [one.register_forward_hook(noting(name)) for name, one in parts]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


_DROPOUTS = {
    *(F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout),
    *(torch.dropout, torch.dropout_, torch.feature_dropout, torch.alpha_dropout),
}
_CONSTANTS: dict[Any, float] = {
    **dict.fromkeys((torch.rand, torch.rand_like, Tensor.uniform_), 0.5),
    **dict.fromkeys((torch.randn, torch.randn_like, torch.normal, Tensor.normal_), 0.0),
    **dict.fromkeys((torch.bernoulli, Tensor.bernoulli, Tensor.bernoulli_), 1.0),
}


class _Still(TorchFunctionMode):
    """No dropout, and draws that depend neither on how many there are nor on their order.

    A drawn order is the reverse one: what chance puts into another order is no longer where its graph is.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        result = func(*args, **kwargs)
        if func in _CONSTANTS:
            return result.detach().fill_(_CONSTANTS[func])
        return torch.arange(len(result)).flip(0).to(result) if func is torch.randperm else result
