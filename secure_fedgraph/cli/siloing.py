"""The work of the commands of a silo."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from torch_geometric.data import Data

from secure_fedgraph.cli.screen import PlainConsole, plain_warnings, warn
from secure_fedgraph.cli.tables import table
from secure_fedgraph.core import files
from secure_fedgraph.core.accounting.epsilon import Spent
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.deployment import federation_file
from secure_fedgraph.deployment.aligning import Aligner, row_names_in
from secure_fedgraph.deployment.dry_run import dry_run
from secure_fedgraph.deployment.flower.releases import check_flower
from secure_fedgraph.deployment.own_data import data_at, fits_at, own_part
from secure_fedgraph.deployment.resident import Resident
from secure_fedgraph.deployment.silo_folder import CARD, SCORES, Keys, SiloFolder, check_name
from secure_fedgraph.deployment.spending import spending_rows
from secure_fedgraph.deployment.staying import Staying
from secure_fedgraph.deployment.terms import terms_in
from secure_fedgraph.graph.data.own_graph import words_of
from secure_fedgraph.graph.silos.alone import declared_by
from secure_fedgraph.graph.silos.reading import data_at as data_in
from secure_fedgraph.graph.tables.drafting import described, doubts, draft, look_alike
from secure_fedgraph.graph.tables.encoding import Fit
from secure_fedgraph.graph.tables.owned import OwnTables
from secure_fedgraph.graph.tables.schema import read_schema, write_schema
from secure_fedgraph.privacy.spent import number


def describe(
    place: str, out: Path, label: str | None, task: str | None, positive: str | None, ident: str | None
) -> None:
    """Draft schema.toml from one owner's tables, and print what it gives away."""
    if os.path.lexists(out):
        raise BadInput(f"{out} is there already, and may have been mended by hand: give another --out")
    tables = data_in(place)
    if not isinstance(tables, OwnTables):
        raise BadInput(f"{place[:200]} holds no table: give a folder, NODES.csv or NODES.csv,EDGES.csv")
    schema = draft(tables.nodes, tables.links, label=label, task=task, positive=positive, ident=ident)
    said = [*tables.nodes.notes, *doubts(tables.nodes, schema.columns)]
    if tables.links is not None and schema.links is not None:
        said += [*tables.links.notes, *doubts(tables.links, schema.links.columns)]
    for line in (*said, *look_alike(schema)):
        warn(line)
    write_schema(schema, out)
    for line in described(schema):
        click.echo(line)
    click.echo(f"{out}: read it, mend it, then show it to the others: whoever has it learns all of this")


def _check_tables(place: Path, schema: str, as_json: bool) -> None:
    """Holds tables to a schema that nobody approved yet."""
    agreed = read_schema(Path(schema))
    _show_fits(*fits_at("data", str(place), None, agreed, option=""), as_json)
    if agreed.incomplete and not as_json:
        click.echo(f"columns without a range in {schema}: {', '.join(agreed.incomplete)}")


def _show_fits(fits: Sequence[Fit], notes: Sequence[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"columns": [vars(one) for one in fits], "notes": list(notes)}))
        return
    for one in fits:
        click.echo(str(one))
    for note in notes:
        warn(note)


def keygen(folder: Path, name: str, data: str, rows: str | None, tables: str | None = None) -> None:
    """Make this silo's keys, and card.toml for the operator."""
    check_name(name)
    with plain_warnings():
        held = data_at(name, data, rows, None if tables is None else read_schema(Path(tables)))
    if rows is not None:
        if not isinstance(held, Data):
            raise BadInput(f"--rows {rows}: give one table, not a list of graphs")
        labelled = held.get("y") is not None
        described: dict[str, Any] = {
            "kind": "node",
            "features": int(held.x.shape[1]),
            "classes": int(held.y.max()) + 1 if labelled else 0,
            "class_names": words_of(held, "class_names", name) if labelled else (),
            "labels": labelled,
            "rows": rows,
        }
    else:
        kind, declared = declared_by(name, held)
        described = {"kind": kind, **vars(declared)}
    home = SiloFolder(folder)
    keys = home.make_keys()
    card = federation_file.Card(
        schema=federation_file.CARD_SCHEMA,
        name=name,
        identity=keys.identity.public.hex(),
        node=keys.public_node,
        **described,
    )
    federation_file.write_card(card, folder / CARD)
    click.echo(f"{folder / CARD}: public keys, and what the data are like; send it to the operator")


def check(folder: Path, file: Path | None, data: str | None, tables: str | None, as_json: bool) -> None:
    """Print what would leave under a federation's file, for whom, at which epsilon."""
    if file is None:
        if tables is None:
            raise BadInput("--schema is missing: give it, or the federation's file after the silo's folder")
        _check_tables(folder, tables, as_json)
        return
    if tables is not None:
        raise BadInput(f"--schema {tables}: {file} says what columns mean; leave one of the two out")
    if data is None:
        raise BadInput("--data is missing: give your own data, as 'silo keygen' had them")
    home, approved = SiloFolder(folder), federation_file.read_federation(file)
    name, told = home.name_in(approved), set[str]()
    with plain_warnings(told):
        terms = terms_in(approved)
        if not approved.federation.data.rows:
            own_part(terms, name, data)
    schema, named = approved.federation.tables, approved.federation.data.rows or None
    fits, notes = ((), ()) if schema is None else fits_at(name, data, named, schema)
    before = [charge for path in home.ledgers().values() for charge in read_ledger(path)]
    made = dry_run(terms, before)
    alone, spent = _numbers(made.alone), _numbers(made.spent)
    leaving = [vars(one) for one in made.leaving]
    if as_json:
        said = {"digest": approved.digest, "name": name, "channels": leaving, "epsilon": spent}
        said |= {"epsilon_of_this_run": alone, "released": list(made.released)}
        click.echo(json.dumps({**said, "columns": [vars(one) for one in fits]}))
        return
    experiment, console = terms.experiment, PlainConsole()
    others = ", ".join(one for one in approved.federation.names if one != name)
    console.print(f"{file}: digest {approved.digest}", soft_wrap=True)
    console.print(
        f"{name} would take part in {approved.federation.name!r} at {approved.federation.server.address}, "
        f"with {others}",
        soft_wrap=True,
    )
    _show_fits(fits, [note for note in notes if not any(note in one for one in told)], as_json=False)
    title = f"{experiment.algorithm} under policy {experiment.policy}, rounds: {terms.prepared.rounds}"
    costs = f"epsilon of one unit at delta {experiment.delta:g}, against each reader:"
    shown = [
        *table(title, leaving, "channel to reveal protection uploads"),
        *table(f"{costs} the whole run", _rows(alone)),
        *(table(f"{costs} with earlier runs of this silo", _rows(spent)) if before else ()),
    ]
    for one in shown:
        console.print(one)
    for line in made.released:
        console.print(f"also shown: {line}", soft_wrap=True)
    console.print("nothing was sent")


def approve(folder: Path, file: Path, digest: str | None) -> None:
    """Take part under a federation's file, and under no other."""
    approved = federation_file.read_federation(file)
    if digest is not None and digest.lower() != approved.digest:
        raise BadInput(
            f"--digest {digest[:16]}…: {file} has the digest {approved.digest[:16]}…, so it is another "
            "file than the operator's"
        )
    with plain_warnings():
        terms_in(approved)
    home = SiloFolder(folder)
    with ExitStack() as held:
        held.callback(home.lock().release)
        name = home.approve(approved)
    click.echo(f"{name} approved {approved.digest}")


def start(folder: Path, data: str) -> None:
    """Answer the federation's server until the command is ended."""
    check_flower()
    _log_to_stderr()
    home = SiloFolder(folder)
    with ExitStack() as held:
        held.callback(home.lock().release)
        approved, keys = home.approved(), home.keys()
        with plain_warnings():
            terms = terms_in(approved)
            own = own_part(terms, home.name_in(approved), data, home)
        _stay(Resident(home, keys, terms, own), approved, keys)


def align(folder: Path, data: str) -> None:
    """Agree with the other silos on the common rows."""
    check_flower()
    home = SiloFolder(folder)
    _log_to_stderr()
    with ExitStack() as held:
        held.callback(home.lock().release)
        approved, keys = home.approved(), home.keys()
        name = home.name_in(approved)
        aligner = Aligner(home, keys, approved, row_names_in(name, data, approved))
        _stay(aligner, approved, keys)
    if aligner.aligned is None:
        raise BadInput("the rows were not aligned: run it again, while the operator runs 'server align'")
    click.echo(f"{len(aligner.aligned.rows)} rows are at every silo; their order is in {folder}")


def _log_to_stderr() -> None:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("secure_fedgraph").setLevel(logging.INFO)


def _stay(resident: Resident | Aligner, approved: federation_file.Approved, keys: Keys) -> None:
    staying = Staying(resident, approved, keys)
    for end in (signal.SIGTERM, signal.SIGINT):
        signal.signal(end, lambda *_: staying.stop())
    place = approved.federation.server.address
    click.echo(f"{resident.name} answers {place} under {approved.digest[:16]}…", err=True)
    staying.run()


def status(folder: Path, as_json: bool) -> None:
    """Print who this silo is, what it approved, and how far it came."""
    home = SiloFolder(folder)
    keys = home.keys()
    said: dict[str, Any] = {"identity": keys.identity.public.hex()}
    approved: federation_file.Approved | None = None
    if files.size_of(folder / "approval.json") is not None:
        approved = home.approved()
        path = home.ledgers().get(approved.digest[:16])
        charges = read_ledger(path) if path else []
        said |= {
            "name": home.name_in(approved),
            "approved": approved.digest,
            "server": approved.federation.server.address,
            "run": approved.run,
            "begun": home.times_begun(approved),
            "round": max((charge.round for charge in charges), default=0),
            "uploads": len(charges),
            "running": _is_running(home),
            "over": home.is_over(approved),
            **_scores(home, approved),
        }
    if as_json:
        click.echo(json.dumps(said))
        return
    for key, value in said.items():
        click.echo(f"{key} {value}")
    if approved is None:
        click.echo("approved nothing yet: look at a file with 'silo check', then 'silo approve'")


def _scores(home: SiloFolder, approved: federation_file.Approved) -> dict[str, Any]:
    """What the trained model scores on this silo's own test items, where there is one."""
    path = home.run_folder(approved) / SCORES
    if files.size_of(path) is None:
        return {}
    try:
        return {"own_tests": json.loads(files.read(path, most=2**16, root=home.path))}
    except ValueError:
        raise BadInput(f"{path} is damaged: delete it") from None


def _is_running(home: SiloFolder) -> bool:
    try:
        home.lock().release()
    except BadInput:
        return True
    return False


def ledger(folder: Path, delta: float, as_json: bool) -> None:
    """Print what this silo spent, run by run, from its own ledger."""
    home = SiloFolder(folder)
    home.keys()
    rows, total = spending_rows(home, delta)
    if as_json:
        click.echo(json.dumps({"runs": rows, "total": total, "delta": delta}))
        return
    console = PlainConsole()
    whole = {"file": "all", "run": "", "uploads": sum(r["uploads"] for r in rows), "epsilon": total}
    shown = [{**row, **one} for row in [*rows, whole] for one in _rows(row["epsilon"])]
    heads = " ".join(("file", "run", "uploads", "unit", *Reader))
    console.print(*table("what this silo spent, by run", shown, heads))
    if not rows:
        warn("no run was begun yet")


def _numbers(spent: dict[str, dict[str, Spent]]) -> dict[str, dict[str, Any]]:
    return {unit: {reader: number(one.epsilon) for reader, one in row.items()} for unit, row in spent.items()}


def _rows(epsilons: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"unit": str(unit), **readers} for unit, readers in epsilons.items()]
