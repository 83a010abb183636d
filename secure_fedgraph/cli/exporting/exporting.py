"""The work of ``export``: reads a finished run, writes its released model and the card."""

from __future__ import annotations

import json
from pathlib import Path

import click

from secure_fedgraph.cli.exporting.card import card
from secure_fedgraph.cli.exporting.model import as_state_dict, of_run, rebuilt
from secure_fedgraph.cli.screen import visible, warn
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.results import read_json
from secure_fedgraph.experiment.schema import AuditResult, RunResult, as_read
from secure_fedgraph.storage import manifest

CARD = ".card.md"
"""After the name of the exported file: its card's."""


def export(
    folder: Path,
    out: Path,
    algorithm: str | None,
    ledger: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Writes the released model of a finished run, and its card beside it.

    Where the folder or its ledger could not be checked, a warning and the card say so.

    Raises:
        BadInput: where the folder holds no finished run with a model, or something stands in the
            way.
    """
    run, name, kept = of_run(folder, algorithm)
    unchecked = manifest.unchecked(folder, ledger)
    beside = out.with_name(out.name + CARD)
    for path in (out, beside):
        if path.is_dir() or (path.exists() and not overwrite):
            mend = "" if path.is_dir() else ", or --overwrite"
            raise BadInput(f"{path} exists: give another --out{mend}")
    if not out.parent.is_dir():
        raise BadInput(f"--out {out}: {out.parent} is no folder; make it first")
    model = rebuilt(name, kept)
    content = as_state_dict(model)
    text = card(run, _audit(folder, run), out.name, unchecked, kept.tables)
    if unchecked:
        warn(f"{out.name} and its card: {unchecked}")
    try:
        files.write(out, [content], private=False)
        files.write(beside, [text.encode(errors="backslashreplace")], private=False)
    except (OSError, ValueError) as error:
        out.unlink(missing_ok=True)  # no model without its card
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"--out {str(out)[:200]}: it cannot be written ({why}); give another") from None
    if as_json:
        parameters = sum(value.numel() for value in model.state_dict().values())
        said = {"schema": "secure-fedgraph/export/1", "file": str(out), "card": str(beside)}
        click.echo(json.dumps({**said, "parameters": parameters, "bytes": len(content)}))
    else:
        click.echo(visible(f"Model: {out}\nCard: {beside}"))


def _audit(folder: Path, run: RunResult) -> AuditResult | None:
    """The audit beside a run, if it is of this run."""
    if not (folder / "audit.json").exists():
        return None
    audit = as_read(AuditResult, read_json(folder / "audit.json", "audit"))
    return audit if audit.config == run.config else None
