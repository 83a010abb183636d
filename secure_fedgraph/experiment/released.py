"""The model that a run released, kept beside its result: what ``export`` and ``predict`` read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.plugins import algorithm_named, is_own
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.graph.tables.schema import TableSchema, parsed, schema_text
from secure_fedgraph.protocol import nested
from secure_fedgraph.running.run import Run

if TYPE_CHECKING:
    from secure_fedgraph.experiment.config import Experiment

NAME = "released.model"
MOST = 2**31
"""Bytes of such a file that are read."""


@dataclass(frozen=True)
class Released:
    """A released model, as its run left it.

    Args:
        settings: of the algorithm, in the form that ran.
        schema: what the model was built for.
        state: parameters and buffers by name.
        algorithm: its name; empty in files that were written before it was kept.
        tables: what the columns of owners' tables mean, which are made into numbers by it; None where data
            came in no tables.
    """

    settings: Mapping[str, Any]
    schema: Schema
    state: Mapping[str, Any]
    algorithm: str = ""
    tables: TableSchema | None = None


def keep(run: Run, out: Path, experiment: Experiment | None = None) -> None:
    """Writes the released model for its user alone; nothing where the run releases no single model.

    Args:
        out: the run's folder.
        experiment: that ran: its schema of tables is kept in the file.
    """
    released, algorithm = run.algorithm.released(run.state), run.algorithm
    is_module = callable(getattr(algorithm, "model", None))
    predicts = type(algorithm).predict is not Algorithm.predict and algorithm.personal() is None
    if not released or not (is_module or predicts):
        return
    if not all(isinstance(value, Tensor | int | float) for value in released.values()):
        return
    tables = experiment.used_schema if experiment is not None else None
    asked = "" if experiment is None else experiment.algorithm
    own = is_own(asked) and isinstance(algorithm, algorithm_named(asked))
    value = {
        "algorithm": asked if own else algorithm.name,  # of a form that ran in another's place, the form's
        "tables": "" if tables is None else schema_text(tables),
        "settings": json.dumps(run.algorithm.settings.model_dump(mode="json")),
        "schema": json.dumps(asdict(run.federation.schema)),
        "state": dict(released),
    }
    files.write(out / NAME, [bytes(nested.pack(value))], private=True, root=out)


def read(out: Path, name: str) -> Released:
    """What :func:`keep` wrote. The folder may be somebody else's: nothing in it is run.

    Args:
        out: the run's folder.
        name: its algorithm's.

    Raises:
        BadInput: where there is none, with the reason; or the file is larger than any model, cut off or
            changed.
    """
    if files.size_of(out / NAME) is not None:
        return read_file(out / NAME, out)
    if seeds := sorted(out.glob("seed-*")):
        why = f"it is of several seeds: give the folder of one, as {seeds[0]}"
    elif algorithm_named(name).released is Algorithm.released:
        why = f"{name} releases no single model, for each owner keeps its own"
    else:
        why = f"{name} released no model that predicts by itself here, or the file is gone: run it again"
    raise BadInput(f"{out} holds no {NAME}: {why}")


def read_file(path: Path, root: Path | None = None) -> Released:
    """The same from the file alone, whatever it is called.

    Args:
        root: the folder that a user named, the file's own by default.

    Raises:
        BadInput: as :func:`read`.
    """
    try:
        value = nested.unpack(files.read(path, root=root, most=MOST))
        settings = json.loads(value["settings"])
        schema = TypeAdapter(Schema).validate_python(json.loads(value["schema"]))
        state, algorithm, tables = value["state"], value.get("algorithm", ""), value.get("tables", "")
        if not isinstance(settings, dict) or not isinstance(state, dict) or not state:
            raise ValueError("it holds no settings or no parameters")
        if not all(isinstance(one, Tensor | int | float) for one in state.values()):
            raise ValueError("a parameter is no tensor")
        if not isinstance(algorithm, str) or not isinstance(tables, str):
            raise ValueError("a text is none")
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}): give a folder of a run, or {NAME}"
        ) from None
    except (HostileMessage, ValidationError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadInput(f"{path} is damaged ({type(error).__name__}): run the experiment again") from None
    made = parsed(tables, f"{path}: the schema of tables") if tables else None
    return Released(settings, schema, state, algorithm, made)
