"""The files that commands write, as models: of runs, audits, comparisons and the demo, and the ledger.

One place decides which keys a file has and of which type. Readers get an error that names key, value and mend
(:func:`read`), and other programs get a JSON Schema (``secure-fedgraph schema result``). Nothing here needs
torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.spending.ledger_line import LedgerLine as LedgerLine
from secure_fedgraph.core.text import printable
from secure_fedgraph.experiment.schema.audit import AuditResult as AuditResult
from secure_fedgraph.experiment.schema.bench import BenchResult as BenchResult
from secure_fedgraph.experiment.schema.compare import CompareResult as CompareResult
from secure_fedgraph.experiment.schema.demo import DemoResult as DemoResult
from secure_fedgraph.experiment.schema.part import Part
from secure_fedgraph.experiment.schema.run import ChannelReport as ChannelReport
from secure_fedgraph.experiment.schema.run import RunResult as RunResult

RESULTS: Mapping[str, type[Part]] = {
    "run": RunResult,
    "audit": AuditResult,
    "compare": CompareResult,
    "demo": DemoResult,
    "bench": BenchResult,
}
"""The kind that stands in a file's ``schema``, which is also the command that writes it -> its model."""
FILES: Mapping[str, type[BaseModel]] = {"result": RunResult, **RESULTS, "ledger": LedgerLine}
"""A file's name without its ending -> the model of it, or of one line of it."""
SHOWN = 5
"""How many missing keys are named."""

Model = TypeVar("Model", bound=Part)


def read(model: type[Model], value: object, path: Path) -> Model:
    """A file's content as its model. Keys that are not declared are kept.

    Raises:
        BadInput: for a key that is missing, or a value of another type or out of range, naming file, key,
            value and mend.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        command = next((kind for kind, one in RESULTS.items() if one is model), "run")
        mend = f"write it again with 'secure-fedgraph {command}', or put a copy back"
        faults = error.errors(include_url=False)
        if missing := [_place(one["loc"]) for one in faults if one["type"] == "missing"]:
            raise BadInput(f"{path} holds no {' and no '.join(missing[:SHOWN])}: {mend}") from None
        first = faults[0]
        raise BadInput(
            f"{path}: {_place(first['loc'])} is {str(first['input'])[:40]!r} ({first['msg']}): {mend}"
        ) from None


def of_kind(path: Path, kind: str, content: Callable[[], bytes]) -> dict[str, Any]:
    """What a result file of a kind holds, before it is read as the kind's model.

    Args:
        content: reads the file.

    Raises:
        BadInput: as :func:`json_in`, and for a file of another kind.
    """
    value = json_in(path, content)
    if not isinstance(value, dict) or value.get("schema") != f"secure-fedgraph/{kind}/1":
        written_as = value.get("schema") if isinstance(value, dict) else None
        article = "an" if kind[0] in "aeiou" else "a"
        raise BadInput(
            f"{path} has schema {repr(written_as)[:60]}, "
            f"not secure-fedgraph/{kind}/1: give the folder of {article} {kind}, or write it again"
        )
    return value


def json_in(path: Path, content: Callable[[], bytes]) -> Any:
    """What a JSON file holds.

    Args:
        path: for messages.
        content: reads the file.

    Raises:
        BadInput: for a file that cannot be read, or holds no JSON.
    """
    try:
        return json.loads(content())
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(
            f"{path} is not JSON, so it is damaged: put a copy back, or write it again with --overwrite"
        ) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): put a copy back") from None


def as_read(model: type[Model], value: Mapping[str, Any]) -> Model:
    """What stands in memory, as a reader of the file has it: JSON knows lists and no tuples.

    Raises:
        ValidationError: for a value that no reader takes.
    """
    return model.model_validate(json.loads(json.dumps(value)))


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}


def _place(loc: tuple[int | str, ...]) -> str:
    """``('channels', 0, 'epsilon')`` as ``channels.0.epsilon``, without the name of a type."""
    if len(loc) > 1 and loc[-1] in ("float", "constrained-float"):
        loc = loc[:-1]
    return ".".join(printable(str(one), 60) for one in loc)
