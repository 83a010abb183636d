"""A silo's own data, from its own files, as its federation's file wants them."""

from __future__ import annotations

import warnings
from pathlib import Path

from torch_geometric.data import Data

from secure_fedgraph.client import check_graph
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.alignment import Alignment
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.silo_folder import SiloFolder
from secure_fedgraph.deployment.terms import Terms
from secure_fedgraph.graph.data.own_graph import DataWarning, words_of
from secure_fedgraph.graph.silos.aligned import AlignedTable, aligned
from secure_fedgraph.graph.silos.alone import owned
from secure_fedgraph.graph.silos.given import OwnData
from secure_fedgraph.graph.silos.reading import DATA, read_places, read_silo
from secure_fedgraph.graph.silos.rows import in_numbers_of
from secure_fedgraph.graph.tables.encoding import Fit
from secure_fedgraph.graph.tables.schema import TableSchema
from secure_fedgraph.privacy.budget_warnings import warn_of_delta

ALIGNED = "aligned.json"
"""The file of a run's folder with the names of the common rows, in order."""


def own_part(terms: Terms, name: str, place: str, home: SiloFolder | None = None) -> Data | AlignedTable:
    """A silo's data, ready for its client.

    Args:
        terms: of the file that it approved.
        name: the silo's.
        place: where its data are, as ``--data`` takes it.
        home: its folder, where the common rows of a vertical federation are kept.

    Raises:
        BadInput: for data that cannot be used or do not fit the file, naming what differs.

    Warns:
        DataWarning: names fields that are not used.
        DeltaWarning: where delta is too large for as many nodes.
    """
    federation = terms.approved.federation
    held, names = federation.data, federation.names
    data = data_at(name, place, held.rows or None, federation.tables)
    if held.rows:
        if not isinstance(data, Data):
            raise BadInput(f"{name} has a list of graphs, and this federation is of columns: give one table")
        order = common_rows(home, terms.approved) if home is not None else ()
        labels = held.labels == "all" or name == names[0]
        if data.x.shape[1] != {one.name: one.columns for one in federation.silos}[name]:
            raise BadInput(
                f"{name}'s data have {data.x.shape[1]} columns, and the federation's file says otherwise: "
                "give the data that its card was made from"
            )
        if labels and held.class_names:
            data = data.clone()
            in_numbers_of(held.class_names, data, words_of(data, "class_names", name))
        return aligned(name, data, held.rows, order, labels, terms.experiment.seed)
    graph, notes = owned(
        name,
        names.index(name),
        data,
        held.schema_of_data,
        held.feature_names,
        held.class_names,
        terms.experiment.seed,
    )
    if notes:
        warnings.warn("; ".join(notes), DataWarning, stacklevel=2)
    if terms.experiment.adds_noise:
        warn_of_delta(terms.experiment.delta, {"node": int(graph.num_nodes or 0)})
    check_graph(terms.prepared.algorithm, graph, name, terms.prepared.bound)
    return graph


def data_at(name: str, place: str, rows: str | None = None, schema: TableSchema | None = None) -> OwnData:
    """A silo's data, as the option ``--data`` names them.

    Raises:
        BadInput: as :func:`~secure_fedgraph.graph.silos.reading.read_places`.

    Warns:
        DataWarning: counts and names what was repaired or left out.
    """
    return read_silo(name, place, rows, schema, DATA)


def fits_at(
    name: str, place: str, rows: str | None, schema: TableSchema, option: str = DATA
) -> tuple[tuple[Fit, ...], tuple[str, ...]]:
    """How a silo's tables fit a schema: a line a column, and notes on what is repaired or left out.

    Nothing leaves the machine. Data that are in no tables have no columns to look at.

    Raises:
        BadInput: for tables that do not fit, with file, row and column.
    """
    read = read_places({name: place}, rows, schema, alone=True, option=option)
    return read.fits.get(name, ()), tuple(note.removeprefix(f"{name}: ") for note in read.notes)


def keep_alignment(home: SiloFolder, approved: Approved, alignment: Alignment) -> Path:
    """Keeps the names of the common rows, in order, in the folder of the file's run."""
    path = home.run_folder(approved) / ALIGNED
    alignment.save(path)
    return path


def common_rows(home: SiloFolder, approved: Approved) -> tuple[str, ...]:
    """The names of the common rows, in order.

    Raises:
        BadInput: where the rows were not aligned yet, or the file is damaged or another federation's.
    """
    path = home.run_folder(approved) / ALIGNED
    if files.size_of(path) is None:
        raise BadInput(
            f"the rows are not aligned: run 'secure-fedgraph silo align {home.path} --data …' at every "
            "silo while the operator runs 'secure-fedgraph server align'"
        )
    kept = Alignment.load(path)
    if kept.federation != approved.digest:
        raise BadInput(f"{path} is of another federation's file: align again")
    return kept.rows
