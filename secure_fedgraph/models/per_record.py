"""The gradient of each record's own loss: of trees of a fixed shape, and of whole graphs of any size."""

from __future__ import annotations

import secrets
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.models.gin import Gin, GinLayer
from secure_fedgraph.models.gnn import GraphSage, SageLayer
from secure_fedgraph.models.molecules import GraphConvolution, GraphNet
from secure_fedgraph.models.targets import Loss, cross_entropy
from secure_fedgraph.models.user_models import scores_of, seeded

Gradients = dict[str, Tensor]
"""Parameter name -> one gradient a record, ``[records, ...]``."""
Factors = tuple[Tensor, Tensor]
"""Of the weights of a linear layer: gradients of its results ``[records, rows, out]`` and what it was given
``[records, rows, in]``. A record's gradient is the sum of their outer products over its rows."""
FIRST = "layers.0."
"""What the names of a GraphSAGE's first layer begin with: its weights are as wide as features are."""
HEAD = "head"
CHUNK = 128


class _Rooted(nn.Module):
    """A model's prediction for one tree, as a module of its own, which ``torch.func`` can call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, values: Tensor, filled: Tensor) -> Tensor:
        scores: Tensor = self.model.forward_positions(values, filled)  # type: ignore[operator]
        return scores


def check_model(model: nn.Module, whole: bool) -> None:
    """Checks that the gradient of one record of a model can be computed.

    Args:
        whole: whether a record is a whole graph, or a node's tree.

    Raises:
        BadInput: for layers that take statistics over records, and for a model that reads whole
            neighbourhoods only, where one node's features are in the loss of many rows.
    """
    kind = type(model).__name__
    for name, layer in model.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise BadInput(
                f"{name or 'the model'!r} is of type {type(layer).__name__}, which mixes the records of a "
                "batch, so no record has a gradient of its own: under noisy steps use LayerNorm or GroupNorm"
            )
    if not whole and not hasattr(model, "forward_positions"):
        raise BadInput(
            f"{kind} reads whole neighbourhoods, so a row of its loss depends on more than one record. "
            "Train under noise with training.network=sage"
        )


def _linear(model: nn.Module) -> dict[str, nn.Linear]:
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}


def tree_gradients(
    model: nn.Module, x: Tensor, trees: Tensor, answers: Tensor, loss_of_each: Loss = cross_entropy
) -> Gradients:
    """The gradients of the loss of each tree's root.

    Guarantees:
        - a record's gradient depends only on its own tree, the features of the tree's nodes, and its answer.

    Args:
        model: with ``forward_positions(values [b, positions, features], filled [b, positions])``.
        x: features ``[nodes, features]``.
        trees: ``[b, positions]`` node indices, -1 at empty positions.
        answers: ``[b]`` classes, or what the loss takes.
        loss_of_each: the loss of each root.

    Raises:
        BadInput: for a model that reads whole neighbourhoods only, where one node's features are in the loss
            of many rows.
    """
    check_model(model, whole=False)
    if _is_known(model, TREE_PARTS):
        factors = tree_factors(model, x, trees, answers, loss_of_each)
        return {name: multiplied_out(gradient) for name, gradient in factors.items()}
    rooted, paths = _Rooted(model), _paths(model)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params: Any, values: Tensor, filled: Tensor, answer: Tensor) -> Tensor:
        given = {f"model.{path}": params[name] for path, name in paths.items()}
        scores = functional_call(rooted, given, (values[None], filled[None]), tie_weights=False)
        return loss_of_each(scores, answer[None])[0]

    present = trees >= 0
    values = x[trees.clamp(min=0)] * present.unsqueeze(-1)
    gradients: Gradients = vmap(grad(loss), in_dims=(None, 0, 0, 0), chunk_size=CHUNK)(
        parameters, values, present, answers
    )
    return gradients


def _paths(model: nn.Module) -> dict[str, str]:
    """Path of a parameter -> the name by which ``named_parameters`` lists it.

    A parameter that two modules share has two paths. A module under two names has one: given two,
    ``functional_call`` would leave its temporary values in the module.
    """
    first = {id(p): name for name, p in model.named_parameters()}
    return {
        f"{path}.{key}".removeprefix("."): first[id(p)]
        for path, part in model.named_modules()
        for key, p in part._parameters.items()
        if p is not None
    }


def tree_factors(
    model: nn.Module, x: Tensor, trees: Tensor, answers: Tensor, loss_of_each: Loss = cross_entropy
) -> dict[str, Tensor | Factors]:
    """As :func:`tree_gradients`; those of a GraphSAGE's first weights are not multiplied out.

    Where features are bags of words, most columns of a tree's gradient are zero, and factors stay small.
    All trees go through this package's GraphSAGE together, since none of its layers mixes them. Another model
    may mix them: there each tree goes through alone.
    """
    check_model(model, whole=False)
    if not _is_known(model, TREE_PARTS):
        return {**tree_gradients(model, x, trees, answers, loss_of_each)}
    present = trees >= 0
    values = x[trees.clamp(min=0)]
    if not bool(present.all()):
        values *= present.unsqueeze(-1)
    names = {layer: name for name, layer in _linear(model).items()}
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in names.values()}

    def note(layer: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        seen[names[layer]].append((result.requires_grad_(), given[0].detach()))  # type: ignore[index]

    # weights need no gradient of their own; a bias has one a tree, so that its gradient is one a tree too
    parameters = {f"model.{name}": p.detach() for name, p in model.named_parameters()}
    biases = {
        name: parameters[f"model.{name}"].expand(len(trees), 1, -1).requires_grad_()
        for name, _ in model.named_parameters()
        if name.startswith("layers.") and name.endswith(".bias")
    }
    given = {**parameters, **{f"model.{name}": bias for name, bias in biases.items()}}
    handles = [layer.register_forward_hook(note) for layer in names]
    try:
        scores = functional_call(_Rooted(model), given, (values, present))
    finally:
        for handle in handles:
            handle.remove()
    loss = loss_of_each(scores, answers).sum()
    results = [result for calls in seen.values() for result, _ in calls]
    backs = iter(torch.autograd.grad(loss, [*results, *biases.values()]))
    found: dict[str, Tensor | Factors] = {}
    for name, calls in seen.items():  # what it gave and was given on all levels, one below the other
        back = torch.cat([_by_tree(next(backs), len(trees)) for _ in calls], 1)
        if name.startswith(FIRST):  # own: all levels but the last; neighbours: all but the first
            own = name == f"{FIRST}own"
            found[f"{name}.weight"] = back, values[:, : back.shape[1]] if own else values[:, 1:]
            continue
        rows = torch.cat([_by_tree(given_rows, len(trees)) for _, given_rows in calls], 1)
        found[f"{name}.weight"] = multiplied_out((back, rows))
        if name == HEAD:
            found[f"{name}.bias"] = back[:, 0]
    found |= {name: next(backs)[:, 0] for name in biases}
    return {name: found[name] for name, _ in model.named_parameters()}


TREE_PARTS = frozenset({GraphSage, SageLayer, nn.ModuleList, nn.Linear})
GRAPH_PARTS = frozenset(
    {Gin, GinLayer, GraphNet, GraphConvolution, nn.ModuleList, nn.Sequential, nn.ReLU, nn.Linear}
)
"""What networks of this package are made of, for trees and for whole graphs: no part mixes records."""


def _is_known(model: nn.Module, parts: frozenset[type[nn.Module]]) -> bool:
    """Whether it is a network of this package with its own linear parts, unshared, all of which train."""
    if type(model) not in (GraphSage, Gin, GraphNet) or not {type(one) for one in model.modules()} <= parts:
        return False
    named = dict(model.named_parameters())
    linear = {f"{name}.{p}" for name, layer in _linear(model).items() for p, _ in layer.named_parameters()}
    own = {f"layers.{n}.bias" for n in range(len(model.layers))} if type(model) is GraphSage else set()
    return named.keys() == linear | own and all(p.requires_grad for p in named.values())


def _by_tree(rows: Tensor, trees: int) -> Tensor:
    """``[trees, rows, width]``; the head has one row a tree."""
    return rows.reshape(trees, -1, rows.shape[-1])


def multiplied_out(gradient: Tensor | Factors) -> Tensor:
    """One gradient a record, ``[b, ...]``.

    >>> multiplied_out((torch.ones(1, 3, 2), torch.ones(1, 3, 4))).shape
    torch.Size([1, 2, 4])
    """
    if isinstance(gradient, Tensor):
        return gradient
    back, rows = gradient
    return torch.bmm(back.transpose(1, 2), rows)


def graph_gradients(model: nn.Module, packed: Data, loss_of_each: Loss = cross_entropy) -> Gradients:
    """The gradients of the loss of each graph.

    All graphs go through a network of this package together, since none of its layers mixes them. Another
    model may mix them: there each graph goes through alone, and what is drawn at random is drawn from the
    operating system's randomness.

    Guarantees:
        - a graph's gradient depends on that graph and the weights alone, if the model keeps nothing of one
          graph for the next. Buffers that change are refused; what else it keeps, its author has to see to.

    Args:
        model: classifies the graphs of a union, and is called as
            :func:`~secure_fedgraph.models.user_models.scores_of` does.
        packed: as :func:`~secure_fedgraph.graph.sample.packing.pack` gives it.

    Raises:
        BadInput: for a model with layers that take statistics over several graphs.
    """
    check_model(model, whole=True)
    if _is_known(model, GRAPH_PARTS):
        return linear_graph_gradients(model, packed, loss_of_each)
    gradients: Gradients = {n: p.new_zeros(len(packed.y), *p.shape) for n, p in model.named_parameters()}
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: value.detach().clone() for name, value in model.state_dict(keep_vars=True).items()}
    with seeded(secrets.randbits(63)):  # nobody can repeat it, so no draw tells of those before it
        for number in range(len(packed.y)):
            one = select_graphs(packed, torch.tensor([number]))
            loss = loss_of_each(scores_of(model, one), one.y).mean()
            backs = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
            for name, back in zip(trained, backs, strict=True):
                if back is not None:
                    gradients[name][number] = back
    for name, value in model.state_dict().items():
        if name in before and not torch.equal(value, before[name]):
            raise BadInput(
                f"{name!r} of model {type(model).__name__} changes while it computes, so one graph's "
                "gradient depends on the others: under noise let it keep nothing (track_running_stats=False)"
            )
    return gradients


def linear_graph_gradients(model: nn.Module, packed: Data, loss_of_each: Loss = cross_entropy) -> Gradients:
    """The gradients of each graph's loss, all graphs at once.

    Every parameter belongs to a linear layer, whose gradient is a sum of outer products, one for each row;
    rows of one graph are added up, so graphs need no padding.

    Needs:
        - no layer of the model mixes graphs: nothing here sees that.

    Args:
        model: as in :func:`graph_gradients`, its linear layers given a row a node or a row a graph.
        packed: as there.

    Raises:
        BadInput: for a linear layer that is given other rows.
    """
    layers = _linear(model)
    graphs = len(packed.y)
    inputs: dict[str, Tensor] = {}
    gradients: Gradients = {}

    def note(name: str) -> Any:
        def hook(layer: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
            inputs[name] = given[0].detach()
            result.register_hook(lambda back: record(name, back))

        return hook

    def record(name: str, back: Tensor) -> None:
        rows = packed.graph if len(back) == len(packed.graph) else torch.arange(graphs)
        if len(back) != len(rows):
            raise BadInput(f"layer {name!r} has {len(back)} rows: neither one per node nor one per graph")
        outer = torch.einsum("no,ni->noi", back, inputs[name])
        added = {"weight": outer, "bias": back}
        for part, _ in layers[name].named_parameters():
            start = back.new_zeros(graphs, *added[part].shape[1:])
            whole = start.index_add(0, rows, added[part])
            key = f"{name}.{part}"
            gradients[key] = gradients[key] + whole if key in gradients else whole

    handles = [layer.register_forward_hook(note(name)) for name, layer in layers.items()]
    try:
        loss_of_each(scores_of(model, packed), packed.y).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
        model.zero_grad()
    return {name: gradients.get(name, p.new_zeros(graphs, *p.shape)) for name, p in model.named_parameters()}
