"""A user's own graph: which fields of a PyG ``Data`` are used, which nodes train, warnings on the rest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import combinations

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.answers import (
    FLOATS,
    WHOLE,
    Target,
    answered,
    answers_of,
    check_varied,
    target_of,
    tensor_of,
)
from secure_fedgraph.graph.conversions import plain, plain_masks
from secure_fedgraph.graph.data.canonical import content_digest
from secure_fedgraph.graph.data.checks import check_inputs
from secure_fedgraph.graph.data.splits import MASKS, stratified
from secure_fedgraph.graph.data.store import digest_of_data
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.mapped import is_mapped
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.graph.schema import OF_LINKS, Task
from secure_fedgraph.graph.seeds import sub_seed

NAME = "your graph"
NAMES = ("feature_names", "class_names")
"""Fields that hold words for columns and classes."""
EXACT = (Task.LABELS, Task.NUMBER)
"""Tasks of which owners cannot lack an answer that others have."""


class DataWarning(UserWarning):
    """A part of a user's data is not used, or something was added to the data."""


def own_dataset(
    data: Data, seed: int, task: str | None = None, column: int | None = None, notes: Sequence[str] = ()
) -> GraphDataset:
    """A user's graph, checked, copied and completed.

    Guarantees:
        - nodes outside a given ``train_mask`` are not trained on; likewise ``val_mask`` and ``test_mask``;
        - nodes without a label (``y = -1``, or NaN) are in no mask;
        - every field that was converted or is not used, and every mask that was derived, is named in one
          :class:`DataWarning`;
        - the given graph is not changed, nor do the two share a tensor but features that are mapped.

    Args:
        data: ``edge_index [2, E]`` or ``adj_t``, ``x [N, F]`` where nodes have features, and ``y``, as
            :func:`~secure_fedgraph.graph.answers.target_of` takes it; optional are ``edge_weight [E]``,
            ``edge_attr [E]`` or ``[E, D]``, masks ``[N]`` or ``[N, splits]``, and the words ``feature_names``
            and ``class_names``, which pages print. Of links that are classified, ``edge_label_index`` and
            ``edge_label`` stand in the place of ``y``, and masks are of them.
        seed: of the masks that are derived.
        task: what is learned, where the answers do not show it.
        column: which of several splits is used.
        notes: what was converted before.

    Raises:
        BadInput: for a graph that cannot be used, naming the field and the mend.
    """
    graph, target, said = checked_graph(data, NAME, seed, also=NAMES, task=task, column=column)
    if target.task in (Task.CLASSES, Task.LINK_CLASSES):
        _check_classes(graph.y)
    if target.task != Task.LINKS:
        check_varied([graph.y], NAME)
    features, named = named_columns(data, graph, target, NAME)
    is_plain = target.task == Task.CLASSES and set(graph.keys()) == {"x", "edge_index", "y"}
    if said or notes:
        warnings.warn(f"{NAME}: {'; '.join([*notes, *said])}", DataWarning, stacklevel=4)
    return GraphDataset(
        name=NAME,
        graph=graph,
        source="given",
        digest=content_digest(graph) if is_plain else digest_of_data(graph),
        features=graph.x.shape[1],
        classes=target.outputs,
        feature_names=features,
        class_names=named[: target.outputs],
        task=target.task,
        positive=target.positive_of(NAME),
        low=target.low,
        high=target.high,
    )


def checked_graph(
    data: Data,
    name: str,
    seed: int,
    needs: tuple[str, ...] = ("test_mask", "train_mask"),
    also: tuple[str, ...] = (),
    task: str | None = None,
    column: int | None = None,
) -> tuple[Data, Target, list[str]]:
    """A copy of the fields of a graph that are used, what is learned of it, and notes.

    Args:
        data: as :func:`own_dataset` takes it.
        name: what messages call it.
        seed: of the masks that are derived.
        needs: masks that must name a node, where there are masks.
        also: further fields that the caller uses, which are not copied.
        task, column: as :func:`own_dataset` takes them.

    Returns:
        The graph, with all three masks or none; what is learned; and notes on fields that were converted or
        are not used. Where links are classified, ``y`` and masks are of them, and ``edge_label`` is ``y``.

    Raises:
        BadInput: naming the field and the mend.
    """
    data, notes = plain(data, name)
    check_inputs(data, name)
    nodes = data.x.shape[0]
    y, target, said = target_of(data, nodes, name, task)
    notes += said
    graph = Data(
        x=data.x if is_mapped(data.x) else _copied(data.x, torch.float32),
        edge_index=_copied(data.edge_index, torch.long),
        y=torch.zeros(nodes, dtype=torch.long) if y is None else y,
    )
    if target.task in OF_LINKS and y is not None:
        graph.edge_label_index, graph.edge_label = data.edge_label_index, y
    notes += plain_masks(data, len(graph.y), name, column)
    notes += _dropped(data, (*also, *target.reads))
    for key in EDGE_FIELDS:
        if data.get(key) is not None:
            graph[key] = _edge_field(name, key, data[key], graph.edge_index.shape[1])
    notes += _each_link_once(graph, name)
    if any(data.get(key) is not None for key in MASKS):
        notes += _masked(graph, data, name, seed, needs)
    return graph, target, notes


def _check_classes(y: Tensor) -> None:
    """Labels are the numbers of classes, and a model has an output for each up to the largest."""
    labelled, highest = int((y >= 0).sum()), int(y.max())
    if highest >= labelled:
        raise BadInput(
            f"{NAME}: y has label {highest} at node {int(y.argmax())}, which makes {highest + 1} classes for "
            f"{labelled} labelled nodes; relabel them from 0 without gaps: "
            "y[y >= 0] = y[y >= 0].unique(return_inverse=True)[1]"
        )


def _copied(given: Tensor, kind: torch.dtype) -> Tensor:
    return given.detach().to("cpu", kind, copy=True)


def _dropped(data: Data, also: tuple[str, ...]) -> Iterator[str]:
    used = {"x", "edge_index", "y", "num_nodes", *EDGE_FIELDS, *MASKS, *also}
    dropped = sorted(key for key in set(data.keys()) - used if data[key] is not None)
    if dropped:
        yield f"{', '.join(dropped)} {'is' if len(dropped) == 1 else 'are'} not used"


def _each_link_once(graph: Data, name: str) -> Iterator[str]:
    """Drops links that repeat one before: samplers and bounds on a link's uses count each link once."""
    _, place = torch.unique(graph.edge_index, dim=1, return_inverse=True)
    first = torch.full((int(place.max()) + 1 if len(place) else 0,), len(place))
    first = first.scatter_reduce(0, place, torch.arange(len(place)), "amin")
    repeated = len(place) - len(first)
    if not repeated:
        return
    for key in EDGE_FIELDS:
        values = graph.get(key)
        if values is not None and not torch.equal(values, values[first[place]]):
            other = values.reshape(len(place), -1) != values[first[place]].reshape(len(place), -1)
            edge = int(other.any(dim=1).nonzero()[0])
            ends = graph.edge_index[:, edge].tolist()
            raise BadInput(
                f"{name}: the link {ends[0]} -> {ends[1]} stands twice with different {key} (again at edge "
                f"{edge}): give each link once, with the sum or the mean of its values"
            )
    kept = first.sort().values
    for key in ("edge_index", *EDGE_FIELDS):
        if graph.get(key) is not None:
            graph[key] = graph[key][..., kept] if key == "edge_index" else graph[key][kept]
    yield f"{repeated} links stand more than once and are used once"


def _edge_field(name: str, key: str, value: object, edges: int) -> Tensor:
    wide = isinstance(value, Tensor) and value.dim() == 2 and key == "edge_attr"
    shape = (edges, None) if wide else (edges,)
    give = f"real numbers [{edges}]" + (" or [edges, columns]" if key == "edge_attr" else "")
    kinds = (*FLOATS, *WHOLE, torch.bool)
    numbers = _copied(tensor_of(value, f"{name}: {key}", kinds, shape, give), torch.float32)
    if not bool(torch.isfinite(numbers).all()):
        row = int((~torch.isfinite(numbers)).nonzero()[0, 0])
        raise BadInput(f"{name}: {key} is not finite, first at edge {row}; replace or drop it")
    return numbers


def _masked(graph: Data, data: Data, name: str, seed: int, needs: tuple[str, ...]) -> list[str]:
    """Sets the graph's three masks; returns notes on nodes that were left out and on derived masks."""
    nodes, labelled = len(graph.y), answered(graph.y)
    given = {
        key: _copied(
            tensor_of(data[key], f"{name}: {key}", (torch.bool,), (nodes,), f"booleans [{nodes}]"), torch.bool
        )
        for key in MASKS
        if data.get(key) is not None
    }
    for first, second in combinations(given, 2):
        both = given[first] & given[second]
        if bool(both.any()):
            raise BadInput(
                f"{name}: {int(both.sum())} nodes are in {first} and in {second}, the first is node "
                f"{int(both.nonzero()[0])}; put each into one"
            )
    notes = []
    for key, mask in given.items():
        without = int((mask & ~labelled).sum())
        if without:
            notes.append(
                f"{without} of {int(mask.sum())} nodes in {key} have no label and are left out of it"
            )
        given[key] = mask & labelled
    if "train_mask" in given and not bool(given["train_mask"].any()):
        raise BadInput(
            f"{name}: no node to train on has a label: train_mask, or a table's split column, names none"
        )
    rest = labelled.clone()
    for mask in given.values():
        rest &= ~mask
    missing = [key for key in MASKS if key not in given]
    derived = _derived(rest, graph.y, missing, seed)
    for key, mask in derived.items():
        notes.append(
            f"{key} is missing, so {int(mask.sum())} labelled nodes of no other mask are taken for it"
        )
    for key in MASKS:
        graph[key] = given[key] if key in given else derived[key]
    for key, use in (("test_mask", "test"), ("train_mask", "train")):
        if key in needs and not bool(graph[key].any()):
            raise BadInput(f"{name}: no labelled node is left to {use} on; give a {key} that names some")
    return notes


def _derived(rest: Tensor, y: Tensor, missing: list[str], seed: int) -> dict[str, Tensor]:
    """The missing masks: all labelled nodes that are in no given mask, divided class by class."""
    if not missing:
        return {}
    first = 1.0 if len(missing) == 1 else 0.75 if "train_mask" in missing else 0.5
    second = 1 - first
    parts = stratified(answers_of(y, rest), sub_seed(seed, "missing masks"), first, second)
    return dict(zip(missing, parts, strict=False))


def named_columns(
    data: Data, graph: Data, target: Target, name: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What features and classes are called, as far as they have names; all of them or none.

    Raises:
        BadInput: for another number of names.
    """
    features, classes = (words_of(data, key, name) for key in NAMES)
    for key, words, least, exact in (
        ("feature_names", features, graph.x.shape[1], True),
        ("class_names", classes, max(target.outputs, target.positive + 1), target.task in EXACT),
    ):
        if words and (len(words) < least or (exact and len(words) > least)):
            raise BadInput(f"{name}: {key} has {len(words)} names for {least}: name all of them, or none")
    return features, classes


def words_of(data: Data, key: str, name: str) -> tuple[str, ...]:
    """The names in a field, none where the field is missing.

    Raises:
        BadInput: for anything but a list of different words.
    """
    given = data.get(key)
    if given is None:
        return ()
    words = list(given) if isinstance(given, list | tuple) else []
    texts = tuple(one for one in words if isinstance(one, str) and one)
    if not texts or len(set(texts)) != len(words):
        raise BadInput(f"{name}: {key} is no list of different words")
    return texts
