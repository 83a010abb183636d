"""The work of ``export``: a released model as a module, as a file of its tensors, and its card beside it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from torch import Tensor, nn

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.plugins import algorithm_named, check_own_name, is_own
from secure_fedgraph.audits.conformance.ledger import check_printed
from secure_fedgraph.cli.screen import visible, warn
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.text import printable
from secure_fedgraph.experiment.released import Released, read
from secure_fedgraph.experiment.results import read_json
from secure_fedgraph.experiment.schema import AuditResult, RunResult, as_read
from secure_fedgraph.graph.tables.schema import TableSchema, schema_text
from secure_fedgraph.models.finite import is_finite
from secure_fedgraph.models.parameters import load
from secure_fedgraph.storage import manifest

# The model card beside an exported model: what it learned from, who read what, and what it is not for.

LONGEST = 500
"""Characters of a value that a card shows."""


def card(
    run: RunResult,
    audit: AuditResult | None,
    file: str,
    unchecked: str = "",
    tables: TableSchema | None = None,
) -> str:
    """The card as Markdown, by the template ``card.md.j2``.

    Args:
        run: the run's result.
        audit: of the same folder, where there is one.
        file: the name of the exported file.
        unchecked: what was compared with nothing, and why.
        tables: what the columns of tables mean that the model learned from.
    """
    markdown = Environment(  # no HTML: words are escaped as Markdown, one by one
        loader=PackageLoader("secure_fedgraph.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    markdown.filters |= {"words": _text, "code": _code, "line": lambda line: printable(line, LONGEST)}
    scores = run.accuracy.named().items()
    return markdown.get_template("card.md.j2").render(
        run=run,
        audit=audit,
        file=file,
        unchecked=unchecked,
        tables=tables,
        schema=[] if tables is None else schema_text(tables).splitlines(),
        scores=[(name, f"{value:.4f}") for name, value in scores if value is not None],
        claims=[
            (
                *(unit, one.epsilon, one.delta, one.against, one.relation),
                ", ".join(f"{reader}: {value}" for reader, value in one.readers.items()),
            )
            for unit, one in run.privacy.items()
        ],
        channels=[
            (one.name, one.reveal, one.policy, one.messages, "" if one.epsilon is None else one.epsilon)
            for one in run.channels
        ],
    )


def _text(value: object) -> str:
    """A value as words in a line of Markdown: no markup, no link, no cell's end and no control character.

    >>> _text("a|b\\n# <b>[x](http://y)")
    'a\\\\|b \\\\# &lt;b&gt;\\\\[x\\\\](http:&#47;&#47;y)'
    """
    plain = printable(" ".join(str(value).split()), LONGEST)
    marked = re.sub(r"([\\`*_\[\]#!|])", r"\\\1", plain.replace("&", "&amp;"))
    return marked.replace("<", "&lt;").replace(">", "&gt;").replace("//", "&#47;&#47;")


def _code(value: object) -> str:
    """A value as code: no backtick ends it.

    >>> _code("a`b")
    "`a'b`"
    """
    return f"`{printable(' '.join(str(value).split()), LONGEST).replace('`', chr(39))}`"


CARD = ".card.md"
"""After the name of the exported file: its card's."""


def of_run(folder: Path, algorithm: str | None) -> tuple[RunResult, str, Released]:
    """A finished run's result, the name of the algorithm or form that ran, and the model that it released.

    Args:
        algorithm: the own algorithm that the user named, where the run is of one.

    Raises:
        BadInput: where the folder holds no finished run, or no model of it.
    """
    run = as_read(RunResult, read_json(folder / "result.json", "run"))
    name = run.config.get("algorithm")
    check_own_name(name, algorithm, folder)
    if not isinstance(name, str):
        raise BadInput(f"{folder / 'result.json'} names no algorithm: put a copy back")
    kept = read(folder, name)
    return run, name if is_own(kept.algorithm) else kept.algorithm or name, kept


def rebuilt(name: str, released: Released) -> nn.Module:
    """The model with its released weights, ready to predict.

    Args:
        name: the algorithm's.
        released: as its run left it.

    Raises:
        BadInput: where settings, schema and weights do not fit each other, or the algorithm has no module.
    """
    algorithm = _built(name, released)
    build: Callable[..., nn.Module] | None = getattr(algorithm, "model", None)
    if build is None:
        raise BadInput(
            f"what {name} releases is no torch module: score tables with 'secure-fedgraph predict'"
        )
    model = build(released.schema)
    try:
        load(model, released.state)
    except HostileMessage as error:
        raise BadInput(f"the released weights cannot be used: {error}") from None
    return model.eval()


def fitting(name: str, released: Released) -> Algorithm:
    """The algorithm of a released model, which predicts with it.

    Args:
        name: the algorithm's.
        released: as its run left it.

    Raises:
        BadInput: where settings, schema and weights do not fit each other, or a weight is not finite.
    """
    algorithm = _built(name, released)
    if not all(is_finite(value) for value in released.state.values() if isinstance(value, Tensor)):
        raise BadInput(f"the released weights of {name} are not finite: put a copy back")
    return algorithm


def _built(name: str, released: Released) -> Algorithm:
    """The algorithm by the released settings, whose model is first built without memory, to compare shapes.

    A file cannot ask for a model of any size.
    """
    deepest = max(map(_depth, released.settings.items()), default=0)
    if deepest > len(released.state):  # every layer has weights; memory for layers is taken even without any
        raise BadInput(
            f"the released model cannot be built: its settings ask for {deepest} layers, and it has "
            f"{len(released.state)} weights"
        )
    try:
        algorithm = algorithm_named(name)(**released.settings)
        build: Callable[..., nn.Module] | None = getattr(algorithm, "model", None)
        with torch.device("meta"):
            if build is not None:
                expected: Mapping[str, Any] = build(released.schema).state_dict()
            else:
                expected = algorithm.released(algorithm.init(released.schema, 0)) or {}
    except BadInput:
        raise
    except Exception as error:  # a schema that no data have
        raise BadInput(f"the released model cannot be built ({type(error).__name__})") from None
    wanted, given = (
        {key: getattr(value, "shape", torch.Size()) for key, value in one.items()}
        for one in (expected, released.state)
    )
    if wanted != given:
        odd = sorted(key for key in wanted.keys() | given.keys() if wanted.get(key) != given.get(key))
        raise BadInput(f"the released weights do not fit the model of {name}: {odd[:3]} differ")
    return algorithm


def _depth(setting: tuple[str, object]) -> int:
    """How many layers a setting asks for, at most."""
    name, value = setting
    if name == "class_weight":
        return 0
    if isinstance(value, list | tuple):
        return len(value)
    return value if name == "layers" and isinstance(value, int) else 0


def export(
    folder: Path, out: Path, algorithm: str | None, ledger: Path | None, overwrite: bool, as_json: bool
) -> None:
    """Writes the released model of a finished run, and its card beside it.

    Where the folder or its ledger could not be checked, a warning and the card say so.

    Raises:
        BadInput: where the folder holds no finished run with a model, or something stands in the
            way.
        BrokenClaim: where its result prints less than its ledger comes to.
    """
    run, name, kept = of_run(folder, algorithm)
    unchecked = manifest.unchecked(folder, ledger)
    check_printed(folder, ledger)
    beside = out.with_name(out.name + CARD)
    for path in (out, beside):
        check_free(path, overwrite)
    model = rebuilt(name, kept)
    file = io.BytesIO()
    torch.save({key: value.detach().clone() for key, value in model.state_dict().items()}, file)
    content = file.getvalue()
    text = card(run, _audit(folder, run), out.name, unchecked, kept.tables)
    if unchecked:
        warn(f"{out.name} and its card: {unchecked}")
    try:
        write_out(out, content, private=False)
        write_out(beside, text.encode(errors="backslashreplace"), private=False)
    except BadInput:
        out.unlink(missing_ok=True)  # no model without its card
        raise
    if as_json:
        parameters = sum(value.numel() for value in model.state_dict().values())
        said = {"schema": "secure-fedgraph/export/1", "file": str(out), "card": str(beside)}
        click.echo(json.dumps({**said, "parameters": parameters, "bytes": len(content)}))
    else:
        click.echo(visible(f"Model: {out}\nCard: {beside}"))


def check_free(out: Path, overwrite: bool) -> None:
    """Checks that a file may be written: nothing stands there, or it may be replaced."""
    if out.is_dir() or (out.exists() and not overwrite):
        raise BadInput(f"{out} exists: give another --out{'' if out.is_dir() else ', or --overwrite'}")
    if not out.parent.is_dir():
        raise BadInput(f"--out {out}: {out.parent} is no folder; make it first")


def write_out(out: Path, content: bytes, private: bool) -> None:
    """Writes the file that a user named; one that cannot be written is told so."""
    try:
        files.write(out, [content], private=private)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"--out {str(out)[:200]}: it cannot be written ({why}); give another") from None


def _audit(folder: Path, run: RunResult) -> AuditResult | None:
    """The audit beside a run, if it is of this run."""
    if not (folder / "audit.json").exists():
        return None
    audit = as_read(AuditResult, read_json(folder / "audit.json", "audit"))
    return audit if audit.config == run.config else None
