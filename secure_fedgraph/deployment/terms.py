"""What a federation's file comes to: the same at the server and at every silo, each from its own copy."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from torch_geometric.data import Data

from secure_fedgraph.algorithms.plugins import is_own
from secure_fedgraph.core.errors import BadInput, Refused, SecureFedGraphError
from secure_fedgraph.core.guarantee import Reader
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.evaluation import Evaluator
from secure_fedgraph.experiment.config import SILOS, Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import ELSEWHERE, in_form
from secure_fedgraph.federation import Federation as Owners
from secure_fedgraph.graph.kinds import GraphDataset
from secure_fedgraph.graph.partition.result import TestSet
from secure_fedgraph.graph.silos.rows import no_test_set
from secure_fedgraph.graph.tables.schema import TableSchema
from secure_fedgraph.round import Sampler, everyone
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import Prepared, prepare


class AgreedExperiment(Experiment):
    """An experiment over silos whose data nobody here can read: the file says what they are like.

    Args:
        held: the kind of the data, as ``graph.kinds`` has it.
        agreed: what the columns of every silo's tables mean, where data are in tables.
    """

    held: str = Field(GraphDataset.kind, exclude=True)
    agreed: TableSchema | None = Field(None, exclude=True)

    @property
    def kind(self) -> str:
        """The kind of the data."""
        return self.held

    @property
    def used_schema(self) -> TableSchema | None:
        """What the file says of tables."""
        return self.agreed

    @property
    def digest_of_silos(self) -> str:
        """Nothing: the files are on other machines."""
        return ""


@dataclass(frozen=True)
class Terms:
    """What a silo agrees to by approving a file, and what the server runs.

    Args:
        approved: the file.
        experiment: its settings.
        prepared: algorithm, protections and budget, bound to every channel.
    """

    approved: Approved
    experiment: AgreedExperiment
    prepared: Prepared

    @property
    def server_scores(self) -> bool:
        """Whether the server is the referee, which reads what silos answer it without any protection."""
        return bool(self.approved.federation.data.rows)

    @property
    def quorum(self) -> int:
        """The smallest cohort that silos answer on every channel."""
        return max((one.quorum for one in self.prepared.bound.bounds.values()), default=1)

    @property
    def sampler(self) -> Sampler:
        """Picks the cohort of a round."""
        size = self.approved.federation.cohort
        return cohorts_of(size) if size else everyone


def cohorts_of(size: int) -> Sampler:
    """A sampler of so many clients a round, each round's drawn from the seed.

    >>> cohorts_of(2)(1, ("a", "b", "c"), 0), cohorts_of(2)(2, ("a", "b", "c"), 0)
    (('b', 'c'), ('a', 'b'))
    """

    def sample(round: int, clients: tuple[str, ...], seed: int) -> tuple[str, ...]:
        chosen = set(random.Random(f"{seed}/{round}").sample(clients, size))
        return tuple(one for one in clients if one in chosen)

    return sample


def experiment_in(approved: Approved) -> AgreedExperiment:
    """The experiment of a file.

    Raises:
        BadInput: naming the key, the value and the mend.
    """
    federation = approved.federation
    values: dict[str, Any] = dict(federation.experiment)
    if is_own(str(values.get("algorithm", ""))):
        raise BadInput(
            f"algorithm = {values['algorithm']!r}: over machines an algorithm of your own has to be "
            "installed at every silo as a package with an entry point "
            "(docs/recipes/add_an_algorithm.md); give its name"
        )
    if federation.data.rows:
        values["rows"] = federation.data.rows
    elif values.get("evaluation") == "referee":
        raise BadInput(
            "evaluation = 'referee': a server may not score silos in the clear; leave it out, and they score "
            "in band"
        )
    return AgreedExperiment(
        **values,
        silos=dict.fromkeys(federation.names, ELSEWHERE),
        classes=federation.data.classes,
        holders=1 if federation.data.rows else federation.data.holders,
        held=federation.data.kind,
        agreed=federation.tables,
    )


def terms_in(approved: Approved, test_set: TestSet | None = None) -> Terms:
    """The terms of a file.

    Args:
        test_set: what the referee has, where silos hold columns of the same rows; the server alone has it.

    Raises:
        BadInput, Refused: where the settings cannot run, or a protection cannot give what a channel declares,
            naming the file.
    """
    try:
        return _terms_in(approved, test_set)
    except SecureFedGraphError as error:
        raise type(error)(f"{approved.where}: {error}" if approved.where else str(error)) from error


def _terms_in(approved: Approved, test_set: TestSet | None) -> Terms:
    experiment = experiment_in(approved)
    owners = owners_in(approved, test_set)
    algorithm = in_form(experiment, owners)
    protected = protect(experiment, algorithm, owners)
    prepared = prepare(
        algorithm,
        owners,
        protected.policy,
        RunOptions(
            rounds=experiment.rounds,
            seed=experiment.seed,
            evaluation=experiment.evaluation,
            budget=protected.budget,
            allow_plaintext=experiment.allow_plaintext,
            sampler=everyone,
        ),
    )
    budget = protected.budget
    if approved.federation.data.rows and budget is not None and budget.against == Reader.SERVER:
        raise Refused(
            f"epsilon = {budget.epsilon:g} against the server: where silos hold columns, the server scores "
            "them, and reads each one's rows without noise; set against=outsider"
        )
    if prepared.algorithm.pools:
        raise BadInput(
            f"{experiment.algorithm} pools all data in one place, and silos keep theirs: use another"
        )
    terms, cohort = Terms(approved, experiment, prepared), approved.federation.cohort
    if 0 < cohort < terms.quorum:
        raise BadInput(
            f"cohort = {cohort}: under policy {experiment.policy} silos answer {terms.quorum} of "
            f"{len(owners.names)} together or more; give that many, 0 for all, or a smaller protection.quorum"
        )
    return terms


def owners_in(approved: Approved, test_set: TestSet | None = None) -> Owners:
    """The owners as the run's preparation knows them: names and public facts, and no data."""
    federation = approved.federation
    held, names = federation.data, federation.names
    split: dict[str, Any] = {"name": SILOS}
    if held.rows:
        columns = {one.name: one.columns for one in federation.silos}
        split |= {
            "owners": len(names),
            "holders": len(names),
            "columns": [columns[name] for name in names],
            "labels": held.labels,
        }
        test_set = test_set or TestSet(
            Data(num_nodes=1), no_test_set().labels, {"everybody": no_test_set().labels}, {}
        )
    elif held.holders > 1:
        split["holders"] = held.holders
    facts = {
        "data": "own silos",
        "source": "on their owners' machines",
        "digest": approved.digest,
        "nodes": 0,
        "features": held.features,
        "classes": held.classes,
        "clients": len(names),
        "silos": list(names),
        "partition": split,
    }
    return Owners(
        held.schema_of_data, Evaluator(test_set or no_test_set()), facts, {name: Data() for name in names}
    )
