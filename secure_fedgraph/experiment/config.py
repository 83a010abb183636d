"""One experiment, validated before anything starts: from a file, flags and ``--set KEY=VALUE``."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, ValidationError, model_validator
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, adds_up, check_switches
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.plugins import algorithm_named, is_own
from secure_fedgraph.algorithms.training.weighting import AveragingSettings
from secure_fedgraph.arguments import nearest, training_setting, unknown_name
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.core.guarantee import Relation, Unit
from secure_fedgraph.core.protection.binding import PRESENCE
from secure_fedgraph.core.protection.contracts import MAJORITY
from secure_fedgraph.core.text import printable
from secure_fedgraph.experiment.schema.settings import Keys, short
from secure_fedgraph.federation import check_sides
from secure_fedgraph.graph.data import synthetic
from secure_fedgraph.graph.data.datasets import DATASETS, KINDS
from secure_fedgraph.graph.kinds import GraphDataset, GraphSetDataset, RatingsDataset
from secure_fedgraph.graph.partition.registry import BY_KIND, names
from secure_fedgraph.graph.partition.result import owner_names
from secure_fedgraph.graph.silos.agreement import check_names
from secure_fedgraph.graph.silos.folders import GRAPH
from secure_fedgraph.graph.silos.places import is_place
from secure_fedgraph.graph.silos.reading import DATA, digest_of_places, is_function, read_places
from secure_fedgraph.graph.tables.schema import TableSchema, read_schema
from secure_fedgraph.privacy.broadcasts import BroadcastLimits
from secure_fedgraph.privacy.dp_sgd import RECORDS, PrivateSteps, check_on_cpu
from secure_fedgraph.privacy.input_dp.labels import DividedLabels, RandomisedLabels
from secure_fedgraph.privacy.input_dp.links import DividedLinks, RandomisedLinks
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.privacy.input_dp.registry import RANDOMIZERS
from secure_fedgraph.privacy.planning import TRAINING
from secure_fedgraph.privacy.policies import (
    RECIPES,
    is_noised,
    needs_multiplier,
    only_scales,
    planned_amount,
    takes_multiplier,
)
from secure_fedgraph.privacy.policies.strictest import LADDER, strictest
from secure_fedgraph.privacy.policy import SCORES, Policy
from secure_fedgraph.registry import named_settings

NORM = 1.0
"""The clip of a run with a budget that names none."""
LARGEST = 2**18
"""Bytes of an experiment's file."""
EPSILON = 8.0
"""The budget of a policy of noise that is asked for by name alone."""
SCORES_BY_HAND = 5.0
"""The noise multiplier of counted scores, where noise is set by hand and no budget plans it."""
PLACEHOLDER_MULTIPLIER = 1.0
"""The noise of a policy that is made to learn its channels, before a plan decides: nothing runs with it."""
OPTIONS = ("norm", "multiplier")
"""The settings of a policy that have an option of their own."""
TRUSTED = ("central_dp",)
"""The policies whose noise is the server's: no budget against the server, as the default one is, holds."""
SURVIVE = ("masked", "distributed_dp", "strictest")
"""The policies under which a sum opens without clients that stop answering."""
ON_SUMS = "distributed_dp"
"""The policy of masks with noise on what they add up."""
SUMMED = ("masked", ON_SUMS, "strictest", "local_dp")
"""The policies under which an algorithm may take a form whose noise is on sums over all clients."""
FEW_OWNERS = 50
"""With fewer owners a budget that names no unit is for a node, for a graph where graphs are records, or for a
rating."""
ADAPTIVE = "adaptive"
"""What ``training.clip`` is where a budget names no norm."""


class Experiment(Keys):
    """One experiment, whose keys fit each other; what they are is said at each key.

    Names are as ``list`` prints them. Of ``data``, ``clients`` and ``partition``, what is not named is as in
    the algorithm's paper.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **values: Any) -> None:
        """Checks every value.

        Raises:
            BadInput: naming the key, the value and the mend.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise BadInput(_sentence(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _as_in_the_paper(cls, values: Any) -> Any:
        """What is not named is as in the algorithm's paper: data, clients, partition."""
        if not isinstance(values, dict):
            return values
        check_switches(cls, values)
        values = {**values, **{k: as_listed(k, values[k]) for k in LISTED if isinstance(values.get(k), str)}}
        if "\0" in str(values.get("ledger") or ""):
            raise BadInput(f"ledger = {str(values['ledger'])[:200]!r}: no file has such a name; give another")
        name = values.get("algorithm", cls.model_fields["algorithm"].default)
        if not isinstance(name, str) or not isinstance(values.get("data", ""), str):
            return values  # whose type is refused below
        kind = _own(name) if is_own(name) else ALGORITHMS.get(name)
        if kind is None:
            return values
        if values.get("silos"):
            return _with_silos(values)
        if "silos" in values and "data" not in values:
            raise BadInput("silos is empty: name owners and their files, or the key data")
        filled = {"data": kind.data, **values}
        misfits = dict.fromkeys(OF_SILOS, "owners with data of their own (--silo NAME=FILE)")
        named = {"dataset": "data sets by name"}
        misfits |= (
            named if is_place(filled["data"]) else {"tables": "tables of your own (--silo, --data FILE)"}
        )
        for key, whose in misfits.items():
            if values.get(key) not in (None, {}, cls.model_fields[key].default):
                raise BadInput(f"{key} = {short(values[key])} is for {whose}: leave it out here")
        kind = kind.of_kind(kind_of(filled["data"]))
        filled.setdefault("clients", kind.clients.get(filled["data"], cls.model_fields["clients"].default))
        if "partition" not in filled:
            fitting = BY_KIND.get(kind_of(filled["data"]), {})
            filled["partition"] = next((p for p in kind.partitions if p in fitting), kind.partitions[0])
        return filled

    @model_validator(mode="after")
    def _of_records(self) -> Self:
        """A budget of few owners that names no unit is for one record: no noise hides one owner of three."""
        if self.unit_by_default:
            records = {GraphSetDataset.kind: Unit.GRAPH, RatingsDataset.kind: Unit.EDGE}
            self.__dict__["unit"] = records.get(self._kind_or_none or "", Unit.NODE)
        return self

    @property
    def unit_by_default(self) -> bool:
        """Whether the unit is a record since nobody named one and owners are few."""
        few = self.clients < FEW_OWNERS and "unit" not in self.model_fields_set
        kind = ALGORITHMS.get(self.algorithm)
        return few and not (kind is not None and kind.hands_links_out and self._noised)

    @property
    def _kind_or_none(self) -> str | None:
        try:
            return self.kind
        except SecureFedGraphError:  # reading the data says why
            return None

    def make_algorithm(self) -> Algorithm:
        """The algorithm with its settings.

        Raises:
            BadInput: for an unknown name or setting, or a partition that the algorithm does not run on.
        """
        kind = algorithm_named(self.algorithm).of_kind(self.kind)
        kind.check_device(self.device)
        if not self.silos and not kind_of(self.data):
            if Path(self.data).exists():
                raise BadInput(f"--data {self.data}: to read your own file or folder, write ./{self.data}")
            raise unknown_name("dataset", self.data, KINDS)
        fits = self.kind
        if fits not in kind.kinds:
            data = [name for name, one in KINDS.items() if one in kind.kinds]
            others = [name for name, one in ALGORITHMS.items() if fits in one.kinds]
            raise BadInput(
                f"data = {self.data!r} is of kind {fits!r}, and {self.algorithm} learns from kind "
                f"{' or '.join(kind.kinds)}: give it such data, as {', '.join(data)}"
                + (f"; algorithms for yours are {', '.join(others)}" if others else "")
            )
        if self.silos:
            check_sides(kind, self.rows is not None)
        else:
            self._check_partition(kind, fits)
        if (form := self._ran_as) is not None:
            return form(**self.training)
        known = [f"training.{one}" for one in kind.Settings.model_fields]
        for key in self.training.keys() - kind.Settings.model_fields.keys():
            others = [name for name, one in ALGORITHMS.items() if key in one.Settings.model_fields]
            raise unknown_name(f"setting of {self.algorithm}", f"training.{key}", known, others)
        if self._on_sums:
            return kind(**self.training).on_sums(self.unit)
        if self._untouched:
            return kind(**self.training).untouched_by(self.unit)
        links = self._links()
        chosen = {} if links is None or "links" in self.training else {"links": links}
        return kind(**self._clip_of(kind), **chosen, **self.training)

    @property
    def kind(self) -> str:
        """The kind of the data, as ``graph.kinds`` has it; empty where nothing has that name."""
        if not self.silos:
            return kind_of(self.data)
        first = next(iter(read_places(self.silos, self.rows, self.given_schema).data.values()))
        return GraphDataset.kind if isinstance(first, Data) else GraphSetDataset.kind

    @property
    def digest_of_silos(self) -> str:
        """Of the files of silos, or of own data, so that a result of other data is not taken for its own."""
        schema = self.given_schema
        files_of = digest_of_places({"": self.data} if self.own_data else self.silos)
        return files_of if schema is None else f"{files_of} {schema.digest}"

    @property
    def given_schema(self) -> TableSchema | None:
        """What the columns of tables mean, as the file ``tables`` says; None where none is named.

        Raises:
            BadInput: for a file that is missing or holds something else.
        """
        return None if self.tables is None else read_schema(Path(self.tables))

    @property
    def used_schema(self) -> TableSchema | None:
        """The given schema, or what owners declare about their tables; None where no data are in tables."""
        if self.silos:
            return read_places(self.silos, self.rows, self.given_schema).schema
        if not self.own_data:
            return None
        return read_places({"data": self.data}, None, self.given_schema, option=DATA).schema

    @property
    def own_data(self) -> bool:
        """Whether ``data`` is a user's own graph, from files or a function, and no data set's name."""
        return not self.silos and is_place(self.data)

    @property
    def owners(self) -> tuple[str, ...]:
        """The clients' names."""
        return tuple(sorted(self.silos)) or owner_names(self.clients)

    def _check_partition(self, kind: type[Algorithm], fits: str) -> None:
        if self.partition not in names():
            raise unknown_name("partition", self.partition, names())
        ways = [name for name in kind.partitions if name in BY_KIND.get(fits, {})]
        if self.partition not in ways:
            raise BadInput(f"partition = {self.partition!r}: {self.algorithm} runs on {', '.join(ways)}")

    def _clip_of(self, kind: type[Algorithm]) -> dict[str, str]:
        """A budget that names no norm follows the clients' norms, where the algorithm can.

        Raises:
            BadInput: for a norm beside a clip that has one of its own.
        """
        if not issubclass(kind.Settings, AveragingSettings):  # another's clip is of something else
            return {}
        if self.training.get("clip") == ADAPTIVE and "norm" in self.protection:
            raise BadInput(
                "training.clip = adaptive: updates travel with a norm of 1, and --norm would be another "
                "clip; leave one of the two out"
            )
        free = "norm" not in self.protection and not {"clip", "weighted"} & self.training.keys()
        noised = self.planned and not (self._steps_carry_budget or self._inputs_carry_budget)
        # its one more coordinate has to survive every stage
        return {"clip": ADAPTIVE} if free and noised and only_scales(self.policy) else {}

    def make_policy(self, multipliers: Mapping[str, float] | None = None) -> Policy:
        """The policy with its settings, and noise by channel where a budget planned it.

        Raises:
            BadInput: for an unknown policy or setting, or one for a channel that the algorithm does not have.
        """
        noises, protection = dict(multipliers or {}), self.protection
        on_sums = self._on_sums and self.policy == "masked" and not self._inputs_carry_budget
        name = ON_SUMS if on_sums else self.policy
        steps, scores = {"unit": self._record, **self.steps}, SCORES_BY_HAND
        _check_known("steps", PrivateSteps, steps)
        if self.trains_under_noise and "noise" not in steps:
            if not (self.planned and self._steps_carry_budget):
                raise BadInput(
                    "steps.noise is missing: set it, or give a budget with --epsilon and --unit "
                    f"{steps['unit']}"
                )
            steps["noise"] = noises.pop(TRAINING, PLACEHOLDER_MULTIPLIER)
            scores = noises.setdefault(SCORES, PLACEHOLDER_MULTIPLIER)
            if self.policy == "strictest":  # of what is sent besides, sums over single units
                protection = {"norm": NORM, **protection, "multiplier": noises}
        elif self.planned and not self._inputs_carry_budget:
            protection = {"norm": NORM, **protection, "multiplier": planned_amount(name, noises)}
        elif self.training.get("clip") == ADAPTIVE:
            protection = {"norm": NORM, **protection}
        if self.relation == Relation.ADD_REMOVE and "links" not in self.randomised_kinds:
            raise BadInput(PRESENCE + " (add-remove is for the links that --unit edge randomises)")
        policy = make_policy(name, protection, self.relation)
        formed = self._on_sums or self._untouched
        kind = type(self.make_algorithm()) if formed else algorithm_named(self.algorithm)
        policy.check_amounts(kind.channel_names(), self.algorithm)
        # also where the recipe knows none, as masks do: what is asked for is kept to, or refused
        if self.randomised_kinds:
            shares = {
                kind: getattr(self, kind) or 1 / noises.get(kind, PLACEHOLDER_MULTIPLIER)
                for kind in self.randomised_kinds
            }
            randomizers = tuple(self._randomizer(kind, share) for kind, share in shares.items())
            policy = replace(policy, randomizers=randomizers, relation=self.relation)
        if self.trains_under_noise:
            check_on_cpu(self.device)
            counted = None if is_noised(self.policy) or self.policy == "strictest" else scores
            _check_numbers("steps", steps, PrivateSteps)
            made = PrivateSteps(**steps)
            policy = replace(policy, steps=made, relation=self.relation, scores_noise=counted)
        if self.broadcast:
            _check_known("broadcast", BroadcastLimits, self.broadcast)
            policy = replace(policy, broadcasts=BroadcastLimits(**self.broadcast))
        return policy

    @property
    def randomised_kinds(self) -> tuple[str, ...]:
        """The kinds of what clients randomise: those that are set, and the one that a budget is about where
        the policy has no noise of its own."""
        summed = self._untouched or (self.unit == Unit.EDGE and self._on_sums)
        about = self.unit if self.epsilon is not None and not (self._noised or summed) else None
        return tuple(
            k for k, kind in RANDOMIZERS.items() if getattr(self, k) is not None or kind.unit == about
        )

    @property
    def _inputs_carry_budget(self) -> str | None:
        """The kind that a budget's unit is covered by, where an input of that unit is randomised."""
        return next((k for k in self.randomised_kinds if RANDOMIZERS[k].unit == self.unit), None)

    def _randomizer(self, kind: str, epsilon: float) -> InputRandomizer:
        if kind == RandomisedLinks.kind and self._links() == "divided":
            return DividedLinks(epsilon, self.clients)
        if kind == RandomisedLabels.kind and self._on_sums:
            return DividedLabels(epsilon)
        return RANDOMIZERS[kind](epsilon, *(self.feature_range if kind == "features" else ()))

    def _links(self) -> str | None:
        """How an algorithm of columns uses links; None where it has no choice.

        Where links are randomised and several clients hold the same, each answers about a part of the pairs:
        else a link would pay once a holder.
        """
        if not algorithm_named(self.algorithm).hands_links_out:
            return None
        several = self.clients > 1 and RandomisedLinks.kind in self.randomised_kinds
        links: str = self.training.get("links", "divided" if several else "own")
        return links

    @property
    def _noised(self) -> bool:
        return "multiplier" in self.protection or is_noised(self.policy)

    @property
    def trains_under_noise(self) -> bool:
        """Whether clients take noisy steps: where they are set, or a budget is about less than a client and
        the policy has no noise of its own."""
        wanted = self.epsilon is not None and self.unit in RECORDS and not self._noised
        return bool(self.steps) or (wanted and not (self._on_sums or self._untouched))

    @property
    def _on_sums(self) -> bool:
        """Whether the algorithm, or its form for the budget, has its noise on sums over all clients."""
        made = None if self.policy not in SUMMED else self._configured
        if made is None:
            return False
        form = made.on_sums(self.unit)
        by_itself = self.unit in RECORDS and adds_up(made, self.unit) and not self._untouched
        return self.kind in form.kinds and (form is not made or by_itself)

    @property
    def _untouched(self) -> bool:
        """Whether the algorithm has a form that sends nothing that depends on the budget's unit."""
        made = None if self._noised else self._configured
        return made is not None and made.untouched_by(self.unit) is not made

    @property
    def _configured(self) -> Algorithm | None:
        """The algorithm before a budget gives it a form; None where it gives none: noise is set by hand."""
        by_hand = self.steps or "multiplier" in self.protection
        randomised = any(getattr(self, kind) is not None for kind in RANDOMIZERS)
        if self.epsilon is None or by_hand or randomised:
            return None
        try:
            training = {} if self._ran_as else self.training
            return algorithm_named(self.algorithm).of_kind(self.kind)(**training)
        except SecureFedGraphError:  # making the algorithm says why
            return None

    @property
    def _ran_as(self) -> type[Algorithm] | None:
        """The form that a budget put in the algorithm's place, where ``training`` has its settings, all of
        them, as a finished run's has."""
        kind = algorithm_named(self.algorithm).of_kind(self.kind)
        if self.epsilon is None or not self.training.keys() - kind.Settings.model_fields.keys():
            return None
        forms = (type(kind().on_sums(self.unit)), type(kind().untouched_by(self.unit)))
        return next((one for one in forms if self.training.keys() == one.Settings.model_fields.keys()), None)

    def with_policy(self, policy: str, by_default: bool = True) -> Experiment:
        """This experiment with another policy, as one row of several.

        ``plaintext`` is the baseline and has no budget. At client level, policies without noise have none
        either, since they could not keep one.

        Args:
            by_default: whether a policy of noise without any has the default budget.
        """
        dropouts = self.dropouts if policy in SURVIVE else 0.0
        changed = self.model_copy(update={"policy": policy, "dropouts": dropouts})
        unbudgeted = self.unit == "client" and not changed._noised and policy != "strictest"
        if unbudgeted or policy == "plaintext":
            return changed.model_copy(update={"epsilon": None})
        return changed.with_default_budget() if by_default else changed

    def with_default_budget(self) -> Experiment:
        """This experiment; where its policy is one of noise and none was given, with the default budget.

        A multiplier says how much noise there is, and so do a budget, noisy steps, and what is randomised.
        """
        given = (
            "multiplier" in self.protection or self.epsilon is not None or self.steps or self.randomised_kinds
        )
        by_default = needs_multiplier(self.policy) and self.policy not in TRUSTED
        return self.model_copy(update={"epsilon": EPSILON}) if by_default and not given else self

    @property
    def planned(self) -> bool:
        """Whether a budget decides the noise."""
        by_hand = "multiplier" in self.protection or (self._noised and not takes_multiplier(self.policy))
        if self._steps_carry_budget:
            by_hand = "noise" in self.steps
        elif self._inputs_carry_budget:
            by_hand = getattr(self, self._inputs_carry_budget) is not None
        return self.epsilon is not None and not by_hand and not self._untouched

    @property
    def adds_noise(self) -> bool:
        """Whether anything is noised, so that a finite epsilon may be printed."""
        return self._noised or self.planned or self.trains_under_noise or bool(self.randomised_kinds)

    @property
    def _steps_carry_budget(self) -> bool:
        """Whether the noise of clients' steps is what the budget's unit is covered by."""
        return self.trains_under_noise and self.steps.get("unit", self._record) == self.unit

    @property
    def of_others(self) -> tuple[Callable[..., Any], ...]:
        """The functions of other packages that make its data and its policy, for digests of their code."""
        made = None if self.silos or self.own_data else DATASETS[self.data].make
        recipe = None if self.policy in RECIPES.own else RECIPES[self.policy]
        return tuple(function for function in (made, recipe) if function is not None)

    @property
    def _record(self) -> str:
        if self.unit in RECORDS:
            return self.unit
        return "graph" if self.kind == GraphSetDataset.kind else "node"


OF_SILOS = ("rows", "classes", "holders")
"""Keys that only owners with data of their own have."""
SILOS = "silos"
"""What ``data`` and ``partition`` are of such owners."""


def _with_silos(values: dict[str, Any]) -> dict[str, Any]:
    """The keys that follow from owners with data of their own.

    Raises:
        BadInput: for keys that hand out one data set.
    """
    silos = values["silos"]
    if not isinstance(silos, dict) or not all(isinstance(one, str) for one in silos.values()):
        raise BadInput(
            f"silos = {short(silos)}: give a table of names and files, such as bank-a = 'bank.csv'"
        )
    check_names(silos)
    follows = {"data": SILOS, "partition": SILOS, "clients": len(silos)}
    of_silos = {**follows, "split": values.get("split") if isinstance(values.get("split"), int) else None}
    for key in (*follows, "dataset", "split"):
        if values.get(key) and values[key] != of_silos.get(key):
            raise BadInput(
                f"{key} = {short(values[key])}: silos have their own data, and nothing is handed out; leave "
                f"{key} out"
            )
    return {
        **values,
        **follows,
        "evaluation": values.get("evaluation", "referee" if values.get("rows") else "in_band"),
    }


LISTED: dict[str, Iterable[str]] = {
    "algorithm": ALGORITHMS,
    "data": KINDS,
    "policy": RECIPES,
    "partition": names(),
}
"""Keys whose values are names that ``list`` prints."""


def kind_of(data: str) -> str:
    """The kind of data, as ``graph.kinds`` has it; empty for an unknown name.

    Own data are read for it where they may be several graphs. What cannot be read is taken for one graph, and
    said where the data are used.
    """
    if not is_place(data):
        return KINDS.get(data, "")
    several = data.endswith(".pt") or is_function(data) or os.path.isfile(os.path.join(data, GRAPH))
    with suppress(BadInput):
        if several and not isinstance(read_places({"data": data}, option=DATA).data["data"], Data):
            return GraphSetDataset.kind
    return GraphDataset.kind


def as_listed(key: str, given: str) -> str:
    """A name as ``list`` prints it, whatever its case.

    >>> as_listed("algorithm", "FedSage")
    'fedsage'
    """
    return given.lower() if given.lower() in LISTED[key] else given


def _own(name: str) -> type[Algorithm] | None:
    """A user's own class; what is wrong with it is said where it is made."""
    try:
        return algorithm_named(name)
    except BadInput:
        return None


def _check_known(table: str, kind: type[PrivateSteps | BroadcastLimits], settings: Iterable[str]) -> None:
    known = [name for name in inspect.signature(kind).parameters if name != "seed"]
    for key in settings:
        if key not in known:
            raise unknown_name(f"setting of {table}", f"{table}.{key}", [f"{table}.{k}" for k in known])


def make_policy(name: str, protection: Mapping[str, Any], relation: str = Relation.ZERO_OUT) -> Policy:
    """The named recipe with its settings.

    A setting that the recipe does not know is refused only if no recipe knows it, so that one set of flags
    serves a list of policies.

    Raises:
        BadInput: for an unknown policy or setting, or one that is missing.
    """
    if name not in RECIPES:
        raise unknown_name("policy", name, RECIPES)
    known = {key for recipe in RECIPES.values() for key in named_settings(recipe)}
    for key in protection:
        if key not in known - {"relation"}:
            raise unknown_name("protection setting", key, known - {"relation"})
    quorum = protection.get("quorum", MAJORITY)
    if quorum != MAJORITY and (isinstance(quorum, bool) or not isinstance(quorum, int | float)):
        raise BadInput(f"protection.quorum = {quorum!r}: give a number of clients, a share, or {MAJORITY}")
    settings = {**protection, "relation": relation}
    if name == "strictest":
        noised = {"norm", "multiplier"} <= protection.keys()
        ladder = [other for other in LADDER if noised or not needs_multiplier(other)]
        return strictest(*(make_policy(other, protection, relation) for other in ladder))
    parameters = named_settings(RECIPES[name])
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in settings]
    if missing:
        raise BadInput(
            f"policy {name!r} needs {' and '.join(f'protection.{key}' for key in missing)}: "
            f"give {' '.join(f'--{k} 1.0' if k in OPTIONS else f'--set protection.{k}=1.0' for k in missing)}"
        )
    return RECIPES[name](**{key: value for key, value in settings.items() if key in parameters})


def load(path: Path | None, flags: Mapping[str, Any], assignments: Iterable[str]) -> Experiment:
    """The experiment of a TOML file, over it the flags, over them ``KEY=VALUE`` assignments.

    Raises:
        BadInput: naming the key, the value and the mend.
    """
    experiment = experiment_of(read_values(path, flags, assignments))
    _check_numbers("dataset", experiment.dataset, synthetic.citation)
    return experiment


def experiment_of(values: Mapping[str, Any]) -> Experiment:
    """The experiment of named values, from wherever they come.

    Raises:
        BadInput: naming the key, the value and the mend.
    """
    return Experiment(**{printable(str(key), 60): value for key, value in values.items()})


def read_values(path: Path | None, flags: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """What a user wrote, by key: a file, over it the flags, over them ``KEY=VALUE`` assignments.

    Raises:
        BadInput: for what cannot be read.
    """
    values: dict[str, Any] = {} if path is None else _read(path)
    values |= {key: value for key, value in flags.items() if value is not None}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise BadInput(f"--set {assignment}: write KEY=VALUE, e.g. --set training.batch=32")
        _assign(values, key.split("."), _value(text), assignment)
    return values


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BadInput(f"experiment file {str(path)!r} is not there")
    try:
        text = files.read(path.resolve(), most=LARGEST).decode()  # a link is its user's own
        return tomllib.loads(text)
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read as TOML: {str(error)[:200]}") from None


def _assign(values: dict[str, Any], keys: list[str], value: Any, assignment: str) -> None:
    for key in keys[:-1]:
        inner = values.get(key, {})
        if not isinstance(inner, dict):
            raise BadInput(f"--set {assignment}: {key!r} is a value, not a table")
        inner = dict(inner)  # never write into a caller's mapping
        values[key] = inner
        values = inner
    values[keys[-1]] = value


def _value(text: str) -> Any:
    """A value as TOML has it; what is none is a word.

    >>> _value("1e-5"), _value("[8, 4]"), _value("True"), _value("cora")
    (1e-05, [8, 4], True, 'cora')
    """
    for read in (int, float, _CONSTANTS.__getitem__):
        with suppress(ValueError, KeyError):
            return read(text.lower())
    try:
        return tomllib.loads(f"value = {text[:LARGEST]}")["value"]
    except (ValueError, RecursionError):
        return text


_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}


def _check_numbers(table: str, values: Mapping[str, Any], function: Callable[..., Any]) -> None:
    """Refuses words where a function takes numbers, before anything starts."""
    for key, parameter in inspect.signature(function).parameters.items():
        kinds: tuple[type, ...] = {"float": (int, float), "int": (int,)}.get(str(parameter.annotation), ())
        value = values.get(key, 1)
        if kinds and (isinstance(value, bool) or not isinstance(value, kinds)):
            whole = "" if float in kinds else "whole "
            raise BadInput(f"{table}.{key} = {value!r}: give a {whole}number")


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    if isinstance(cause := first.get("ctx", {}).get("error"), BadInput):
        return str(cause)  # a sentence of this package's own
    if first["type"] == "switch":  # of keys together: it names its own
        return first["msg"]
    key = printable(".".join(str(part) for part in first["loc"]))
    if first["type"] == "extra_forbidden":
        near = training_setting(key) or nearest(key, Experiment.model_fields)
        hint = f"did you mean {near!r}? " if near else ""
        return f"unknown key {key!r}: {hint}Known: {', '.join(Experiment.model_fields)}"
    if key == "data":  # most likely a graph: an experiment is text, which other processes make again
        return (
            f"data is of type {type(first['input']).__name__}, and an experiment names its data: put a graph "
            "of your own behind a secure_fedgraph.datasets entry point, and give its name "
            "(docs/own_graphs_and_models.md)"
        )
    return f"{key} = {short(first['input'])}: {first['msg'].lower()}"
