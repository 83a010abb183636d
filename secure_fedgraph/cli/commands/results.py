"""The commands that read what there is: results, released models, schemas, names, and this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from secure_fedgraph.cli.options import option, options, work
from secure_fedgraph.cli.screen import to_a_pipe, visible, warn
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.schema import FILES, json_schema


@click.command(
    "list", epilog="\b\nExamples:\n  secure-fedgraph list policies --json\n  secure-fedgraph list fedsage"
)
@click.argument("what", metavar="KIND|NAME")
@options("as_json", "debug", as_json={"help": "One JSON object on stdout."}, debug={"hidden": True})
def list_names(what: str, as_json: bool) -> None:
    """Print what works today: algorithms, policies, attacks, datasets or tables; or all of one name."""
    from secure_fedgraph.cli import listing

    what = what.lower()
    if what in listing.KINDS:
        made: dict[str, Any] = {what: listing.listed(what)}
        registry = listing.REGISTRIES.get(what)
        for sentence in () if registry is None else registry.left_out:
            warn(sentence)
    else:
        made = listing.of_name(what)
    with to_a_pipe():
        if as_json:
            click.echo(json.dumps(made, indent=1))
        elif what in made:
            names = {str(next(iter(row.values()))): str(row["summary"]) for row in made[what]}
            width = max(map(len, names), default=0)
            for name, summary in names.items():
                click.echo(visible(f"{name:{width}}  {summary}".replace("\n", " ")))
        else:
            for key, value in made.items():
                told = ", ".join(map(str, value)) if isinstance(value, list | dict) else str(value)
                click.echo(visible(f"{key}: {told}"))


REPORT_EXAMPLES = """
\b
Examples:
  secure-fedgraph report runs/masked
  secure-fedgraph report runs/masked --officer    # what a data-protection officer is handed
"""


@click.command(epilog=REPORT_EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    *("ledger", "debug"),
    ledger={"help": "The ledger that the run shared with others."},
    debug={"hidden": True},
)
@click.option(
    "--officer", is_flag=True, help="Write officer.html for who signs, and sign the folder with it."
)
def report(folder: Path, ledger: Path | None, officer: bool) -> None:
    """Rebuild report.html from the JSON in a folder."""
    from secure_fedgraph.audits.conformance.ledger import check_printed
    from secure_fedgraph.report.page import write_officer_page, write_report
    from secure_fedgraph.storage import manifest

    if what := manifest.unchecked(folder, ledger):
        warn(f"not checked: {what}")
    check_printed(folder, ledger)
    place = "disputes/[0-9][0-9][0-9][0-9][0-9]*"
    judged, asked = (
        {int(one.parent.name[:5]) for one in folder.glob(f"{place}/{name}.json")}
        for name in ("judgement", "request")
    )
    for number in sorted(judged):
        warn(f"uploads of round {number} were opened to an auditor: {folder / 'disputes'}")
    for number in sorted(asked - judged):
        warn(f"owners were asked to open round {number}; their own ledgers say who did, and then spent inf")
    if not officer:
        click.echo(write_report(folder))
        return
    if what or not (folder / manifest.KEY).exists():
        raise BadInput(
            f"--officer signs the page, and {what or f'{folder} holds no {manifest.KEY}'}: give the "
            "folder of one run (seed-0 in that of several seeds), on the machine that ran it"
        )
    key = manifest.check(folder, ledger)["public"]
    signed = (
        f"Every file was as the run left it when this page was written. {manifest.NAME} has the digest of "
    )
    signed += f"this page and of the files, signed by the run's key {key}."
    page = write_officer_page(folder, signed, sorted(judged | asked))
    manifest.write(folder, ledger)
    click.echo(page)


SCHEMA_EXAMPLES = """
\b
Examples:
  secure-fedgraph schema result > result.schema.json
  secure-fedgraph schema ledger      # of one line of ledger.jsonl
"""


@click.command(epilog=SCHEMA_EXAMPLES)
@click.argument("file", type=click.Choice(list(FILES)))
@option("debug", hidden=True)
def schema(file: str) -> None:
    """Print the JSON Schema of result.json, audit.json, compare.json, or a line of ledger.jsonl."""
    click.echo(json.dumps(json_schema(FILES[file]), indent=1))


EXPORT_EXAMPLES = """
\b
Example:
  secure-fedgraph export runs/masked --out model.pt
"""
PREDICT_EXAMPLES = """
\b
Examples:
  secure-fedgraph predict runs/banks next-week.csv --out scores.csv
  secure-fedgraph predict runs/banks/released.model nodes.csv edges.csv --threshold best --out scores.csv
  secure-fedgraph predict my-silo/runs/DIGEST nodes.csv edges.csv --out scores.csv
"""


@click.command(epilog=EXPORT_EXAMPLES)
@click.argument("folder", type=click.Path(path_type=Path))
@options(
    *("out", "algorithm", "ledger", "overwrite", "as_json", "debug"),
    out={"required": True, "help": "The file to write."},
    algorithm={"help": "Your own algorithm as module:Class, where the run is of one."},
    ledger={"help": "The ledger that the run shared with others."},
    overwrite={"help": "Replace earlier files."},
)
@work("exporting.exporting")
def export() -> None:
    """Write the released model of a finished run for other programs, and a model card beside it."""


@click.command(epilog=PREDICT_EXAMPLES)
@click.argument("model", metavar="RUN-OR-MODEL", type=click.Path(path_type=Path))
@click.argument("nodes", metavar="NODES.csv")
@click.argument("edges", metavar="[EDGES.csv]", required=False)
@options("out", out={"required": True, "help": "The CSV file to write."})
@click.option(
    "--schema", type=click.Path(path_type=Path), metavar="FILE",
    help="The schema.toml that the model learned by, where it does not hold it.",
)  # fmt: skip
@click.option(
    "--threshold", metavar="NUMBER|best",
    help="From which probability on the positive class is named; best: as the run chose on validation nodes.",
)  # fmt: skip
@options(
    *("algorithm", "overwrite", "as_json", "debug"),
    algorithm={"help": "Your own algorithm as module:Class, where the model is of one."},
    overwrite={"help": "Replace an earlier file."},
)
@work("predicting.predicting")
def predict() -> None:
    """Score a table by a released model: a row a node, with what is predicted and a score a class."""


DOCTOR_EXAMPLES = """
\b
Examples:
  secure-fedgraph doctor
  secure-fedgraph doctor --json      # for a bug report
"""


@click.command(epilog=DOCTOR_EXAMPLES)
@options("as_json", "debug", debug={"hidden": True})
@work("doctoring", quietly=True)
def doctor() -> None:
    """Look at packages, data, cores, memory and folders; status 1 where a run would fail.

    Nothing is installed, downloaded, changed or sent.
    """
