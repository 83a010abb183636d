"""Models that users bring: made from an instance, a class or a factory, checked, and called by signature."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Batch, Data

from secure_fedgraph.core.errors import BadInput, wrong_type
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.placing import CPU, placed
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, OF_LINKS, Schema, Task
from secure_fedgraph.models.finite import is_finite
from secure_fedgraph.models.parameters import glorot, on_device, parameters_of

Given = nn.Module | type[nn.Module] | Callable[..., nn.Module]
"""An instance; a class whose constructor takes nothing or widths by name; a factory, ``schema -> Module``."""

FEATURES = (
    *("features", "in_channels", "in_features", "num_features", "num_node_features", "input_dim", "in_dim"),
)
CLASSES = ("classes", "out_channels", "out_features", "num_classes", "output_dim", "out_dim")
"""Names of a constructor's arguments that the data's widths are given for."""
OURS = ("secure_fedgraph.models.", "secure_fedgraph.algorithms.")
CACHES = ("_cached_edge_index", "_cached_adj_t", "_cached_x")
"""Where PyG's layers with ``cached=True`` keep values that are right for one graph only."""
GRAPHS, OF_GRAPHS = ("Data", "Batch"), ("data", "batch", "graph", "g")
"""Annotations and names of an argument that is a whole graph."""
SCORES = ("logits", "out", "scores")
"""What models that give a dict call their scores."""
OUTPUTS = "_outputs_of_the_data"
"""The attribute of a user's model with how many outputs the data have, and which is the positive class."""
MEND = "give an instance, a class or a factory, e.g. lambda schema: Net(schema.features, schema.classes)"
NODES = 4
"""Nodes of the graph that a model is tried on: a ring, or two graphs of two nodes each."""


def own_copy(model: object) -> Given:
    """A user's model as an algorithm keeps it: instances copied, so that training leaves theirs alone.

    Raises:
        BadInput: for anything else, and for an instance that cannot be copied.

    >>> own_copy(3)
    Traceback (most recent call last):
    secure_fedgraph.core.errors.BadInput: model is an int (3): give an instance, a class or a factory, ...
    """
    if isinstance(model, nn.Module):
        try:
            return copy.deepcopy(model)
        except Exception as error:  # a lock, an open file, a graph of gradients
            raise BadInput(
                f"model {_name(model)} cannot be copied ({_line(error)}): give a factory"
            ) from None
    if not callable(model) or (isinstance(model, type) and not issubclass(model, nn.Module)):
        raise wrong_type("model", model, MEND)
    return model


def build(given: Given, schema: Schema, seed: int) -> nn.Module:
    """A fresh model with the initialisation that its author gave it.

    Guarantees:
        - an instance is copied as it is; a class or a factory draws from torch's generator under the seed,
          and the generator's state is restored afterwards;
        - no parameter is initialised again, except those of this package's own networks that are all zeros.

    Raises:
        BadInput: where a constructor fails, needs an argument that is not known, or returns no module.
    """
    with seeded(seed):
        model = copy.deepcopy(given) if isinstance(given, nn.Module) else _constructed(given, schema)
        for module in model.modules():
            for cache in CACHES:
                if getattr(module, cache, None) is not None:
                    setattr(module, cache, None)
        if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
            _probe(model, schema)  # lazy layers take their widths from the first input
        for module in model.modules():
            if _ours(module) and not any(bool(p.any()) for p in module.parameters()):
                initialise = getattr(module, "initialise", None)  # ours are zeros until they are initialised
                initialise(seed) if callable(initialise) else glorot(module, seed)
        if not _ours(model):
            one_column = schema.task in (Task.CLASSES, Task.NUMBER)
            vars(model)[OUTPUTS] = (schema.classes if one_column else 0, schema.positive)
    return model


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Torch's generator under a seed, then restored. Users' layers draw from no other generator.

    Args:
        device: whose generator is seeded too: layers on a GPU draw from one of its own.
    """
    before = torch.random.get_rng_state()
    there = None if device.type == CPU.type else torch.cuda.get_rng_state(device)
    torch.random.set_rng_state(_state_of(seed, CPU))
    if there is not None:
        torch.cuda.set_rng_state(_state_of(seed, device), device)
    try:
        yield
    finally:
        torch.random.set_rng_state(before)
        if there is not None:
            torch.cuda.set_rng_state(there, device)


def _state_of(seed: int, device: torch.device) -> Tensor:
    """A generator's state under a seed."""
    return torch.Generator(device).manual_seed(seed).get_state()


def scores_of(model: nn.Module, graph: Data, generator: torch.Generator | None = None) -> Tensor:
    """Class scores of all nodes of a graph, or of all graphs of a union.

    Guarantees:
        - the graph is not changed, also by a user's model that works in place: it gets copies;
        - no user's model sees an answer.

    A model gets ``x`` and ``edge_index``, and by name what its ``forward`` takes of ``edge_weight``,
    ``edge_attr`` and ``batch`` (which graph a node is of). One whose ``forward`` takes one graph, as
    :func:`takes_data` sees it, gets these as a PyG ``Data``, or as a ``Batch`` of whole graphs. A model of
    whole graphs whose ``forward`` names no ``edge_index`` otherwise gets the union, and the generator that
    draws its dropout. Of what it gives, the scores are :func:`first_scores`; a column of scores for two
    classes is completed.
    """
    if getattr(model, "reads_pairs", False):
        of_pairs: Tensor = model(graph)
        return of_pairs
    whole, taken = graph.get("graph") is not None, _arguments(model)
    if takes_data(model):
        return _completed(model, model(_as_data(graph)))
    if whole and "edge_index" not in taken:
        union = graph.clone()
        return _completed(model, model(union) if generator is None else model(union, generator))
    more = {key: graph[key].clone() for key in reads(model) if graph.get(key) is not None}
    if "batch" in taken and whole:
        more["batch"] = graph.graph.clone()
    elif "batch" in taken and taken["batch"].default is inspect.Parameter.empty:
        more["batch"] = torch.zeros(len(graph.x), dtype=torch.long, device=graph.x.device)
    inputs = {"x": spare(model, graph.x), "edge_index": spare(model, graph.edge_index)}
    named = inputs.keys() <= taken.keys()  # in any order
    return _completed(model, model(**inputs, **more) if named else model(*inputs.values(), **more))


def takes_data(model: nn.Module) -> bool:
    """Whether a model's ``forward`` takes one graph, as PyG's examples do: ``forward(data)``.

    So it does where its first argument is annotated as ``Data`` or ``Batch``, or called ``data``, ``batch``,
    ``graph`` or ``g``, and it needs no other.

    >>> class Net(nn.Module):
    ...     def forward(self, data): ...
    >>> Net.__module__ = "mine"
    >>> takes_data(Net()), takes_data(nn.Linear(2, 2))
    (True, False)
    """
    taken = _arguments(model)
    if _ours(model) or not taken or "edge_index" in taken:
        return False
    first, *others = taken.values()
    kind = (
        first.annotation if isinstance(first.annotation, str) else getattr(first.annotation, "__name__", "")
    )
    alone = all(one.default is not one.empty or one.kind is one.VAR_KEYWORD for one in others)
    return alone and (kind.rpartition(".")[2] in GRAPHS or first.name in OF_GRAPHS)


def _as_data(graph: Data) -> Data:
    """Copies of the inputs of a graph as PyG's models read them, without answers and masks."""
    fields = {
        key: graph[key].clone() for key in ("x", "edge_index", *EDGE_FIELDS) if graph.get(key) is not None
    }
    of, y = graph.get("graph"), graph.get("y")
    if of is None:
        return Data(**fields)
    graphs = max(len(y) if isinstance(y, Tensor) else 0, int(of.max()) + 1 if len(of) else 0)
    sizes = torch.bincount(of, minlength=graphs)
    ends = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return Batch(**fields, batch=of.clone(), graph=of.clone(), ptr=ends)


def first_scores(made: Any) -> Any:
    """The scores in what a model gives: the first tensor of several, or those that a dict calls so.

    >>> first_scores((torch.ones(2), None)), first_scores({"loss": None, "logits": torch.ones(1)})
    (tensor([1., 1.]), tensor([1.]))
    """
    if isinstance(made, Mapping):
        return next((made[key] for key in SCORES if isinstance(made.get(key), Tensor)), made)
    if isinstance(made, tuple | list):
        return next((one for one in made if isinstance(one, Tensor)), made)
    return made


def _completed(model: nn.Module, made: Any) -> Tensor:
    """The scores in what a model gives: a column a class where a user's model gives one for two classes.

    A number for each, ``[n]``, becomes ``[n, 1]``. What is no tensor is left to the checks.
    """
    scores: Tensor = first_scores(made)
    outputs: tuple[int, int] | None = vars(model).get(OUTPUTS)
    if outputs is None or not isinstance(scores, Tensor):
        return scores
    classes, positive = outputs
    if scores.dim() == 1 and classes in (1, 2):
        scores = scores.unsqueeze(1)
    if classes == 2 and scores.dim() == 2 and scores.shape[1] == 1:
        nothing = torch.zeros_like(scores)
        scores = torch.cat([nothing, scores] if positive else [scores, nothing], dim=1)
    return scores


def spare(model: nn.Module, x: Tensor) -> Tensor:
    """What a model may write to: itself for this package's own networks, which do not write, else a copy."""
    return x if type(model).__module__.startswith(OURS) or not isinstance(x, Tensor) else x.clone()


def reads(model: nn.Module) -> tuple[str, ...]:
    """Which fields of the links a model's ``forward`` takes.

    >>> from torch_geometric.nn import GATConv, GCNConv
    >>> reads(GCNConv(2, 2)), reads(GATConv(2, 2))
    (('edge_weight',), ('edge_attr',))
    """
    if takes_data(model):
        return EDGE_FIELDS  # which of them it looks at, nobody sees
    # PyG's ready models name both and pass on what their layers take
    taken = _arguments(model)
    return tuple(key for key in EDGE_FIELDS if key in taken and getattr(model, f"supports_{key}", True))


def width_of(model: nn.Module, schema: Schema) -> int:
    """How many numbers a model gives for a node.

    Raises:
        BadInput: for one that gives something else than a row a node.
    """
    made = _probe(model, schema)
    width = made.shape[1] if isinstance(made, Tensor) and made.dim() == 2 else schema.classes
    return check_scores(made, NODES, width, f"model {_name(model)}", "node").shape[1]


def check_fits(given: Given, schema: Schema, device: torch.device = CPU) -> None:
    """Checks that a user's model takes the data's features and gives their classes, before anything is sent.

    Args:
        device: where it is tried.

    Raises:
        BadInput: in one line that names the model's widths and the data's.
    """
    model = build(given, schema, 0)
    name = _name(model)
    if not any(p.requires_grad for p in model.parameters()):
        raise BadInput(f"model {name} has no parameter that can be trained: leave requires_grad on for some")
    for key, value in parameters_of(model).items():
        whole = not value.is_floating_point() and not value.is_complex() and value.dtype != torch.bool
        if value.layout is not torch.strided or not (whole or value.dtype in (torch.float32, torch.float64)):
            raise BadInput(
                f"model {name}: {key!r} is {value.layout} of {value.dtype}, which no message carries: "
                "convert it with model.float(), or register the buffer with persistent=False"
            )
        if not is_finite(value):
            raise BadInput(f"model {name}: {key!r} is not finite, and it is sent: give finite values")
    needed = {
        "edge_weight": schema.edge_weight,
        "edge_attr": schema.edge_attr != NO_EDGE_ATTR or schema.bonds,
    }
    for key in reads(model):
        argument = _arguments(model).get(key)
        if argument is not None and argument.default is inspect.Parameter.empty and not needed[key]:
            raise BadInput(f"model {name} needs {key}, but the data have none: add it, or make it optional")
    outputs = vars(model).pop(OUTPUTS, None)  # what it gives by itself
    with seeded(0, device), on_device(model, device):
        made = _probe(model, schema, device)
    if outputs is not None:
        vars(model)[OUTPUTS] = outputs
        completed = _completed(model, made)
        if outputs[0] == 2 and completed is not made:
            warnings.warn(
                f"model {name} gives one column for two classes: it is taken as the score of class "
                f"{schema.positive}, beside 0 for the other",
                DataWarning,
                stacklevel=2,
            )
        made = completed
    columns = schema.classes
    if schema.task in OF_LINKS and isinstance(made, Tensor) and made.dim() == 2:
        columns = max(made.shape[1], 1)  # ends of links are embedded in any width
    check_scores(made, 2 if schema.kind == "graph" else NODES, columns, f"model {name}", schema.kind)


def check_scores(scores: object, rows: int, classes: int, who: str, asked: str) -> Tensor:
    """Checks that scores are a tensor with a row for each that was asked about and a column a class.

    A column more than there are classes would train as well, for a class that nothing is ever of.

    Args:
        scores: what a model gave.
        rows: how many were asked about.
        classes: of the data.
        who: what gave them.
        asked: what a row is of, in the singular.

    Raises:
        BadInput: naming what it gave, and what its output has to be.
    """
    if isinstance(scores, Tensor) and scores.shape == (rows, classes):
        return scores
    shape = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    raise BadInput(
        f"{who} gives {shape} for {rows} {asked}{'s' * (rows != 1)}, and the data have {classes} classes: "
        f"make its output [{asked}s, {classes}]"
    )


def _probe(model: nn.Module, schema: Schema, device: torch.device = CPU) -> object:
    """A model's output on a small graph with the data's widths, all features 0."""
    nodes = torch.arange(NODES)
    if schema.kind == "graph":
        edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    else:
        after = (nodes + 1) % NODES
        edge_index = torch.stack([torch.cat([nodes, after]), torch.cat([after, nodes])])
    edges = edge_index.shape[1]
    graph = Data(x=torch.zeros(NODES, schema.features), edge_index=edge_index)
    if schema.kind == "graph":
        graph.graph = nodes // 2
    if schema.edge_weight:
        graph.edge_weight = torch.ones(edges)
    if schema.edge_attr != NO_EDGE_ATTR or schema.bonds:
        width = len(schema.bonds) or schema.edge_attr
        graph.edge_attr = torch.zeros(edges, width) if width else torch.zeros(edges)
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            return scores_of(model, placed(graph, device))
    except Exception as error:
        widths = (getattr(module, key, 0) for module in model.modules() for key in FEATURES)
        width = next((one for one in widths if isinstance(one, int) and one > 0), schema.features)
        if width != schema.features:
            raise BadInput(
                f"model {_name(model)} takes {width} features a node, and the data have {schema.features}: "
                f"build it with {schema.features}"
            ) from None
        raise BadInput(
            f"model {_name(model)} fails on x [nodes, {schema.features}] "
            f"and edge_index [2, edges] ({type(error).__name__}: {_line(error)}): its forward takes x and "
            "edge_index, and by name edge_weight, edge_attr and batch; or it takes one graph, forward(data)"
        ) from None
    finally:
        model.train(was)


def _constructed(given: Callable[..., object], schema: Schema) -> nn.Module:
    name = getattr(given, "__name__", type(given).__name__)
    try:
        model = given(**_by_name(given, name, schema)) if isinstance(given, type) else _called(given, schema)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"model {name} cannot be made ({type(error).__name__}: {_line(error)}): {MEND}"
        ) from None
    if not isinstance(model, nn.Module):
        raise BadInput(f"model {name} makes a {type(model).__name__}, no torch.nn.Module: {MEND}")
    return model


def _called(factory: Callable[..., object], schema: Schema) -> object:
    try:
        inspect.signature(factory).bind(schema)
    except TypeError:
        return factory()
    except ValueError:  # without a signature
        pass
    return factory(schema)


def _by_name(kind: type, name: str, schema: Schema) -> dict[str, object]:
    """The arguments that a constructor names: the schema, or widths under a name in these lists."""
    widths: Mapping[str, object] = {
        "schema": schema,
        **dict.fromkeys(FEATURES, schema.features),
        **dict.fromkeys(CLASSES, schema.classes),
    }
    parameters = inspect.signature(kind).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unknown = [p.name for p in named if p.default is p.empty and p.name not in widths]
    if unknown:
        raise BadInput(f"model {name} needs {' and '.join(unknown)}, which the data do not say: {MEND}")
    return {p.name: widths[p.name] for p in named if p.name in widths and p.default in (p.empty, None)}


def _ours(module: nn.Module) -> bool:
    return any(kind.__module__.startswith(OURS) for kind in type(module).__mro__)


def _arguments(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters


def _name(model: nn.Module) -> str:
    return type(model).__name__


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
