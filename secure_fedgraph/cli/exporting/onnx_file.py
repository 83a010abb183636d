"""A released model as ONNX: what any runtime reads, without torch and without this package."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from secure_fedgraph.cli.exporting.model import CLOSE, check_reads_nodes, graphs_of_other_sizes
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.released import Released
from secure_fedgraph.graph.tables.schema import schema_text

OPSET = 18
"""The first set of operators in which a scatter sums what falls on one place."""
INPUTS, OUTPUT = ("x", "edge_index"), "scores"
TABLES = "schema.toml"
"""The key of the file's metadata under which the schema of tables stands, where the model learned by one."""


def as_onnx(model: nn.Module, released: Released) -> bytes:
    """ONNX of ``forward(x, edge_index)``, with any number of nodes and links.

    Guarantees:
        - ONNX's own evaluator gives the model's scores on graphs of other sizes than it was exported with,
          without links too;
        - its metadata hold the schema of the tables that the model learned from (:data:`TABLES`).

    Raises:
        BadInput: where the extra is missing, the model is of another form, or it has no ONNX that answers
            the same.
    """
    check_reads_nodes(released.schema, "onnx")
    try:
        import onnx
        from onnx.reference import ReferenceEvaluator
    except ImportError as error:
        raise BadInput(
            f"--to onnx needs a package that is not installed ({error.name}): "
            "pip install 'secure-fedgraph[onnx]'"
        ) from None
    graphs = graphs_of_other_sizes(released.schema)
    file = io.BytesIO()
    try:
        with _quiet(), _exact_sums(), torch.no_grad():
            torch.onnx.export(
                model,
                graphs[0],
                file,  # type: ignore[arg-type]  # the annotation is the other exporter's
                dynamo=False,  # the other exporter takes three more packages
                opset_version=OPSET,
                input_names=[*INPUTS],
                output_names=[OUTPUT],
                dynamic_axes={"x": {0: "nodes"}, "edge_index": {1: "links"}, OUTPUT: {0: "nodes"}},
            )
            made = onnx.load_from_string(file.getvalue())
            if released.tables is not None:
                onnx.helper.set_model_props(made, {TABLES: schema_text(released.tables)})
            onnx.checker.check_model(made)
            evaluator = ReferenceEvaluator(made)
            for graph in graphs:
                given = {name: value.numpy() for name, value in zip(INPUTS, graph, strict=True)}
                (answer,) = evaluator.run(None, given)
                if not np.allclose(np.asarray(answer), model(*graph).numpy(), atol=CLOSE, rtol=CLOSE):
                    raise ValueError("its answers differ from the model's")
    except Exception as error:  # tracing calls the model, whatever it is
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise BadInput(
            f"this {type(model).__name__} is no ONNX that answers the same on graphs of other sizes ({why}): "
            "export --to state_dict"
        ) from None
    content: bytes = made.SerializeToString()
    return content


@contextmanager
def _exact_sums() -> Iterator[None]:
    """Operators of models here that the exporter lacks, or writes so that links to one node overwrite."""
    symbolics: dict[str, Callable[..., Any]] = {"aten::bincount": _bincount, "aten::index_add": _index_add}
    for name, symbolic in symbolics.items():
        torch.onnx.register_custom_op_symbolic(name, symbolic, OPSET)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name in symbolics:
            torch.onnx.unregister_custom_op_symbolic(name, OPSET)  # type: ignore[attr-defined]


# `graph` and the values are the exporter's own types, which torch does not publish


def _bincount(graph: Any, values: Any, weights: Any, minlength: Any) -> Any:
    """How often each number below ``minlength`` stands there: degrees, whose values are below it."""
    if weights.node().kind() != "prim::Constant":
        raise ValueError("a bincount with weights")
    first = graph.op("Constant", value_t=torch.tensor([0]))
    zeros = graph.op("ConstantOfShape", graph.op("Unsqueeze", minlength, first), value_t=torch.tensor([0]))
    ones = graph.op("ConstantOfShape", graph.op("Shape", values), value_t=torch.tensor([1]))
    return graph.op("ScatterElements", zeros, values, ones, axis_i=0, reduction_s="add")


def _index_add(graph: Any, to: Any, dim: Any, index: Any, values: Any, alpha: Any = None) -> Any:
    """Rows added at the places of an index, all that fall on one place."""
    if dim.node().kind() != "onnx::Constant" or int(dim.node().t("value")) != 0:
        raise ValueError("an index_add along another dimension than the first")
    if alpha is not None and float(alpha.node().t("value")) != 1:
        raise ValueError("an index_add that is scaled")
    places = graph.op("Unsqueeze", index, graph.op("Constant", value_t=torch.tensor([1])))
    return graph.op("ScatterND", to, places, values, reduction_s="add")


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing of what the exporter says of its age; nor the whole graph, which it prints past Python."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.CRITICAL)
    sys.stdout.flush()
    stdout, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(nowhere)
        log.setLevel(level)
