"""One owner's data under a schema that was agreed before: nobody else's data are there to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.kinds import GraphDataset, GraphSetDataset
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.graph.silos.agreement import Declaration, check_alike
from secure_fedgraph.graph.silos.given import OwnData
from secure_fedgraph.graph.silos.rows import in_numbers_of, one_owner


def declared_by(name: str, data: OwnData, number: int = 0, seed: int = 0) -> tuple[str, Declaration]:
    """What an owner declares about its data, before there is an agreement.

    Returns:
        The kind of its data, as ``graph.kinds`` has it, and the declaration.

    Raises:
        BadInput: for data that cannot be used.
    """
    kind = GraphDataset.kind if isinstance(data, Data) else GraphSetDataset.kind
    return kind, one_owner(name, number, data, seed)[1]


def owned(
    name: str,
    number: int,
    data: OwnData,
    schema: Schema,
    feature_names: Sequence[str],
    class_names: Sequence[str],
    seed: int,
) -> tuple[Data, list[str]]:
    """One owner's data, ready to train on: bit for bit as a federation of all owners in one process has it.

    Args:
        name: the owner's.
        number: its place among the owners' sorted names.
        data: a graph, or a list of graphs.
        schema: what the owners agreed on.
        feature_names, class_names: where they name them.
        seed: of the run.

    Returns:
        The graph (or the union of graphs), and notes on fields that are not used.

    Raises:
        BadInput: for data that do not fit the schema, naming what differs.
    """
    graphs = schema.kind == GraphSetDataset.kind
    if isinstance(data, Data) == graphs:
        wanted, has = ("a list of graphs", "one graph") if graphs else ("one graph", "a list of graphs")
        raise BadInput(f"{name} has {has}, and this federation is of {wanted}: give other data")
    graph, declared, notes = one_owner(name, number, data, seed, schema.task)
    check_fits(name, declared, schema, feature_names, class_names)
    if schema.task in (Task.CLASSES, Task.LINK_CLASSES):
        in_numbers_of(class_names, graph, declared.class_names)
    return graph, notes


def check_fits(
    name: str, declared: Declaration, schema: Schema, feature_names: Sequence[str], class_names: Sequence[str]
) -> None:
    """Checks one owner's declaration against what was agreed.

    Raises:
        BadInput: naming what differs.
    """
    file = "the federation's file"
    wanted = Declaration(
        schema.features,
        schema.classes,
        tuple(feature_names),
        tuple(class_names),
        schema.edge_weight,
        schema.edge_attr,
        str(schema.task),
    )
    check_alike(f"{name}'s data", declared, file, wanted)
    said = ""
    if declared.task == Task.NUMBER and not schema.low <= declared.low <= declared.high <= schema.high:
        said = (
            f"numbers from {declared.low:g} to {declared.high:g}, and {file} has {schema.low:g} to "
            f"{schema.high:g}"
        )
    elif strange := sorted(set(declared.class_names) - set(class_names)):
        said = f"class {strange[0]!r}, which {file} lacks"
    elif (
        declared.classes != schema.classes
        if declared.task in (Task.LABELS, Task.NUMBER)
        else not class_names and declared.classes > schema.classes
    ):
        said = f"{declared.classes} classes or answers, and {file} has {schema.classes}"
    if said:
        raise BadInput(
            f"{name}'s data have {said}: give data of this federation's schema, or agree on another file"
        )
