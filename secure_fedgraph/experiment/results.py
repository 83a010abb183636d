"""What a run leaves on disk: ``result.json``, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.plugins import algorithm_named, check_own_name, is_own, refuse_inside
from secure_fedgraph.core import files
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import IN_ANOTHER_FOLDER, BadInput, Refused, damaged
from secure_fedgraph.core.guarantee import Reader, Unit
from secure_fedgraph.core.message import ANSWER, CARRIER
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.spending.ledger import TORN, read_ledger
from secure_fedgraph.core.text import printable
from secure_fedgraph.evaluation import NOTES
from secure_fedgraph.experiment import schema
from secure_fedgraph.experiment.baselines import baselines, expected_gain
from secure_fedgraph.experiment.config import FEW_OWNERS, Experiment, experiment_of
from secure_fedgraph.experiment.noise_to_signal import of_a_run
from secure_fedgraph.experiment.protect import budget_of, protect
from secure_fedgraph.experiment.schema.run import NO_LEARNING
from secure_fedgraph.federation import Federation, federate
from secure_fedgraph.forms import fit
from secure_fedgraph.graph.placing import check_device
from secure_fedgraph.graph.silos.places import is_place
from secure_fedgraph.graph.silos.reading import read_one, read_silos
from secure_fedgraph.privacy.budget_warnings import warn_of_delta
from secure_fedgraph.privacy.planning import Plan
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.privacy.spent import number, spent
from secure_fedgraph.protocol import nested
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import SERVER, Keep, Transcript, everything, nothing
from secure_fedgraph.round import Sampler, everyone
from secure_fedgraph.running.loop import train
from secure_fedgraph.running.options import OnRound, RunOptions
from secure_fedgraph.running.planned_noise import Forecast
from secure_fedgraph.running.preparation import Prepared, channels_of, fitted
from secure_fedgraph.running.remote_clients import Connect
from secure_fedgraph.running.run import OF_ITEMS, Run
from secure_fedgraph.storage import manifest
from secure_fedgraph.storage.checkpoint import RESERVED, commit_path
from secure_fedgraph.storage.party_store import read_json as read_checked
from secure_fedgraph.storage.party_store import write_json as write_checked

WRITTEN = ("result.json", "audit.json", "compare.json", "demo.json")
BESIDE = (
    *("compare.csv", "compare.parquet", "report.html", "released.model", "schema.toml"),
    *(manifest.NAME, manifest.KEY),
)
"""Files that commands write beside their results, and remove together with them."""
LEDGERS = ("ledger.jsonl", "ledger.torn")
ELSEWHERE = "on its own machine"
"""The data of an owner whom a run reached on its own machine, where others' have a file."""
ASKED, PLANNED = "experiment.json", "plan.json"
Noted = TypeVar("Noted", bound=BaseModel)
PACKAGES = (
    "secure-fedgraph",
    "torch",
    "torch-geometric",
    "tenseal",
    "cryptography",
    "dp-accounting",
    "numpy",
)


def execute(
    experiment: Experiment,
    out: Path | None,
    on_round: OnRound | None = None,
    keep: Keep | None = None,
    checkpoints: bool = False,
    on_start: Callable[[], None] | None = None,
    plays: Callable[[type[Any]], type[Any]] | None = None,
    on_form: Callable[[str], None] = lambda text: None,
    federation: Federation | None = None,
    connect: Connect | None = None,
    sampler: Sampler = everyone,
    run_name: str | None = None,
    anyway: bool = True,
) -> Run:
    """Runs one experiment with one seed.

    Args:
        federation, connect: of owners on machines of their own: who they are, and the way to them. By default
            the federation that the experiment names, in this process.
        sampler: picks the cohort of a round.
        run_name: the run's public name; drawn by default.
        on_form: called after all checks with one line: what is about to run, and in which form.
        checkpoints: write checkpoints, and resume from an existing one.
        on_start: as :func:`~secure_fedgraph.running.loop.train`'s.
        plays: for an audit with a dishonest party: turns the algorithm's class into the one that this party
            runs. The party neither clips nor noises what it sends on the channels in the class's ``spares``.
            It has no guarantee, so no budget stops the run, and a shared ledger is not charged.
        anyway: also where the noise that a budget needs leaves nothing to learn.

    Raises:
        Refused: where it does, without ``anyway``; and as making and binding the policy would.
    """
    federation = make_federation(experiment) if federation is None else federation
    algorithm = in_form(experiment, federation)
    first_line = lead(experiment, algorithm, federation)
    if plays is not None:
        algorithm = _played(algorithm, plays)
    resume = checkpoints and out is not None and commit_path(out / "checkpoint").exists()
    note = None if out is None else out / "checkpoint" / PLANNED  # an audit of the folder reads it too
    protected = protect(experiment, algorithm, federation, noted_noise(note) if resume else None)
    if not resume:
        if not anyway:
            ratio = _check_learns(experiment, algorithm, federation, protected.policy)
            score = algorithm.measure(federation.schema)
            if experiment.planned and (outlook := expected_gain(federation, ratio, score)):
                first_line = f"{first_line}; {outlook}"
        _note_plan(note, protected.plan)

    def started() -> None:
        on_form(first_line)
        if on_start is not None and experiment.checkpoint_every:
            on_start()

    if experiment.adds_noise:
        asked = federation.units if experiment.epsilon is None else (experiment.unit,)
        sizes = federation.sizes
        warn_of_delta(experiment.delta, {unit: sizes[unit] for unit in asked if unit in sizes})
    return train(
        algorithm,
        federation,
        protected.policy if plays is None else _unspoilt(protected.policy, algorithm),
        budget=protected.budget if plays is None else None,
        ledger=experiment.ledger if plays is None else None,
        rounds=experiment.rounds,
        seed=experiment.seed,
        evaluation=experiment.evaluation,
        evaluate_every=experiment.evaluate_every,
        evaluate_sample=experiment.evaluate_sample,
        out=out,
        keep=keep or (everything if experiment.transcript == "full" else nothing),
        on_round=on_round,
        on_start=started,
        device=experiment.device,
        dropouts=Dropouts(experiment.dropouts, experiment.seed) if experiment.dropouts else None,
        resume=resume,
        checkpoint_every=experiment.checkpoint_every if checkpoints else 0,
        allow_plaintext=experiment.allow_plaintext,
        connect=connect,
        sampler=sampler,
        run=run_name,
    )


def in_form(experiment: Experiment, federation: Federation) -> Algorithm:
    """The algorithm in the form that runs under the experiment's policy.

    Raises:
        BadInput, Refused: as the run would.
    """
    algorithm = experiment.make_algorithm().for_data(federation.schema)
    run_on = federation.pooled() if algorithm.pools else federation
    run_on.check(algorithm, experiment.evaluation)
    return fitted(
        algorithm,
        experiment.make_policy(),
        federation,
        experiment.evaluation,
        experiment.allow_plaintext,
        budget_of(experiment, federation),
    )


def expected(experiment: Experiment) -> Algorithm:
    """The algorithm in the form that its run will take, as far as that is known without the data."""
    algorithm = experiment.make_algorithm()
    clients = ("pool",) if algorithm.pools else experiment.owners
    return fit(algorithm, experiment.make_policy(), clients, experiment.allow_plaintext)


def lead(experiment: Experiment, algorithm: Algorithm, federation: Federation) -> str:
    """What is about to run, in a line: in which form, under what budget, and what stays in plaintext."""
    e = experiment
    parts = [f"{e.algorithm} on {e.data}, {len(federation.names)} clients, under policy {e.policy}"]
    if algorithm.form is not None:
        parts.append(f"in the form {algorithm.form}: {algorithm.form.why}")
    if e.epsilon is not None:
        default = " (the default with few owners; --unit client is for all data of one owner)"
        chosen = default if e.unit_by_default else ""
        parts.append(
            f"epsilon {e.epsilon:g} at delta {e.delta:g} for one {e.unit}{chosen} against the {e.against}"
        )
    if e.device != "cpu":
        parts.append(f"training and scoring on {e.device}")
    if e.evaluate_every > 1:
        parts.append(f"scored every {e.evaluate_every} rounds")
    if e.evaluate_sample is not None and (tested := federation.referee.tested) > e.evaluate_sample:
        parts.append(f"scored on about {e.evaluate_sample:,} of {tested:,} test nodes, drawn once")
    if e.policy == "strictest":
        bound = bound_of(e, algorithm, federation, e.make_policy())
        if left := [repr(name) for name in bound.unprotected]:
            parts.append(f"with {' and '.join(left)} left in plaintext, as was allowed")
        parts += [
            f"{name!r} leaks, since settings by hand ask for it: {one.channel.leak}"
            for name, one in bound.bounds.items()
            if one.leaks
        ]
    return "; ".join(parts)


def bound_of(
    experiment: Experiment, algorithm: Algorithm, federation: Federation, policy: Policy
) -> BoundPolicy:
    """The policy on every channel of a run."""
    federation = federation.pooled() if algorithm.pools else federation
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run itself will warn
        budget = budget_of(experiment, federation)
        channels = channels_of(algorithm, federation, experiment.evaluation, policy, budget)
        return policy.bind(channels, federation.names)


NO_OWNER = 8.0
"""Up to this epsilon no family learned anything under noise for a whole owner of three to sixteen."""


def _check_learns(
    experiment: Experiment, algorithm: Algorithm, federation: Federation, policy: Policy
) -> float | None:
    """That the noise which a budget needs leaves something of the signal, by public facts.

    Returns:
        Noise to signal, where it is known.
    """
    bound = bound_of(experiment, algorithm, federation, policy)
    if experiment.epsilon is None or not experiment.planned:
        return None
    run_on = federation.pooled() if algorithm.pools else federation
    ratio = of_a_run(Prepared(algorithm, run_on, bound, RunOptions(rounds=experiment.rounds)))
    few = experiment.unit == Unit.CLIENT and experiment.clients < FEW_OWNERS
    drowns = few and experiment.epsilon <= NO_OWNER if ratio is None else ratio > NO_LEARNING
    if not drowns:
        return ratio
    drowned = "noise that hides all data of one owner of few hides what they share too"
    if ratio is not None:
        drowned = f"its noise would be {ratio:.3g} times what the signal can be at most"
    algorithm = algorithm_named(experiment.algorithm)()
    parts = [u for u in (Unit.FEATURE, Unit.LABEL, Unit.EDGE) if algorithm.untouched_by(u) is not algorithm]
    record = Unit.GRAPH if Unit.GRAPH in federation.units else Unit.NODE
    mend = "ask `secure-fedgraph plan` what works (--algorithm auto takes it)"
    if few:
        mend = f"give --policy masked and --unit {' or '.join(parts)}" if parts else f"give --unit {record}"
    raise Refused(
        f"epsilon {experiment.epsilon:g} for one {experiment.unit} with {experiment.algorithm} under "
        f"{experiment.policy}: {drowned}, so this run would learn nothing: {mend}. --anyway runs it"
    )


def _played(algorithm: Algorithm, plays: Callable[[type[Any]], type[Any]]) -> Any:
    played = plays(type(algorithm))(**algorithm.settings.model_dump())
    played.form, played.rounds = algorithm.form, algorithm.rounds
    return played


def _unspoilt(policy: Policy, algorithm: Any) -> Policy:
    """The policy without local_dp's clip and noise on the channels that a dishonest party spares."""
    names = getattr(algorithm, "spares", ())
    used = {c.name: policy.recipe(c) for c in algorithm.in_use if c.name in names}
    spared = {
        name: replace(protection, stages=())
        for name, protection in used.items()
        if any(isinstance(stage, Gaussian) for stage in protection.stages)
    }
    return replace(policy, exceptions={**policy.exceptions, **spared})


def _note_plan(note: Path | None, plan: Plan | None) -> None:
    """Saves the plan, so that a resumed run keeps its noise."""
    if note is None:
        return
    out = note.parents[1]
    if files.size_of(note) is not None or note.is_symlink():
        files.remove(note, out)
    if plan is not None:
        files.private_folder(note.parent, out)
        write_checked(note, {"multipliers": dict(plan.multipliers)}, out)


class _Planned(BaseModel):
    """What :func:`_note_plan` notes."""

    model_config = ConfigDict(strict=True)

    multipliers: dict[str, float]


def noted_noise(note: Path | None) -> dict[str, float] | None:
    """The multipliers of the plan that a run noted before it began; None where it noted none.

    Raises:
        BadInput: for a note that is damaged.
    """
    return None if note is None or files.size_of(note) is None else _checked(_Planned, note).multipliers


def _checked(model: type[Noted], note: Path) -> Noted:
    """A checked note below ``checkpoint``, by its model."""
    try:
        return model.model_validate(read_checked(note, note.parents[1]))
    except ValidationError as error:
        raise damaged(note, f"{error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from None


def make_federation(experiment: Experiment) -> Federation:
    """The federation that an experiment names."""
    given = experiment.given_schema
    if experiment.silos:
        federation = federate(
            read_silos(experiment.silos, experiment.rows, given, experiment.holders),
            seed=experiment.seed,
            rows=experiment.rows,
            classes=experiment.classes,
            holders=experiment.holders,
            split=experiment.split if isinstance(experiment.split, int) else None,
        )
    else:
        federation = federate(
            read_one(experiment.data, given) if experiment.own_data else experiment.data,
            experiment.clients,
            experiment.partition,
            experiment.seed,
            experiment.split,
            **experiment.dataset,
        )
    schema = experiment.used_schema
    return (
        federation
        if schema is None
        else replace(federation, facts={**federation.facts, "tables": schema.digest})
    )


def begin(out: Path, experiment: Experiment, seeds: list[int], command: str) -> None:
    """Notes what was asked for, before anything is sent, so that ``resume`` knows."""
    files.private_folder(out / "checkpoint", files.private_folder(out))
    asked = {"config": experiment.model_dump(mode="json"), "seeds": seeds, "command": command}
    write_checked(out / "checkpoint" / ASKED, asked, out)


def is_begun(out: Path) -> bool:
    """Whether there is a run to go on with, which has no result yet."""
    return (out / "checkpoint" / ASKED).is_file() and not (out / "result.json").exists()


def check_goes_on(out: Path) -> None:
    """Checks that a run without a result has a checkpoint to go on from, if it has sent or charged anything.

    Without one it would train again from round 1 and charge everything again, while its figures would be
    those of the second training alone.

    Raises:
        BadInput: naming the checkpoint, the result, and what the run left.
    """
    commit, result, ledger = commit_path(out / "checkpoint"), out / "result.json", out / "ledger.jsonl"
    if result.exists() or files.size_of(commit) is not None:
        return
    # raw data are pooled, and charged, before a first checkpoint
    charged = files.size_of(ledger) and any(charge.round > 0 for charge in read_ledger(ledger))
    left = [name for name in ("released.model", "report.html") if files.size_of(out / name) is not None]
    reserved = files.size_of(out / "checkpoint" / RESERVED) is not None
    if charged or left or reserved or Transcript.is_begun(out / "transcript"):
        raise BadInput(
            f"{commit} and {result} are missing, and the run has sent or charged something: from round 1 on "
            "everything would be charged again; put a copy of one of the two files back, or "
            f"{IN_ANOTHER_FOLDER}"
        )


class _Asked(BaseModel):
    """What :func:`begin` notes."""

    model_config = ConfigDict(strict=True)

    config: dict[str, Any]
    seeds: list[NonNegativeInt] = Field(min_length=1)
    command: str


def begun(
    out: Path,
    ledger: Path | None = None,
    algorithm: str | None = None,
    silos: Mapping[str, str] | None = None,
    data: str | None = None,
) -> tuple[Experiment, list[int], str]:
    """What :func:`begin` noted. The folder may be somebody else's, so it may not name every place.

    Args:
        ledger: the shared ledger that the user typed. The checkpoint says which charges it must begin with.
        algorithm: the own algorithm that the user typed.
        silos: the owners' files that the user typed.
        data: the own data that the user typed.

    Raises:
        BadInput: where nothing was begun, the note is damaged or older; where it names a ledger outside of
            the folder, own data or an own algorithm, and the user did not; or code that lies in the folder
            itself.
    """
    path = out / "checkpoint" / ASKED
    if files.size_of(path) is None:
        raise BadInput(f"{out} holds no checkpoint to resume from: start it with 'run --out {out}'")
    asked = _checked(_Asked, path)
    config = asked.config
    check_own_name(config.get("algorithm"), algorithm, out)
    config = {**config, "silos": typed_silos(config.get("silos"), silos, out)}
    config |= typed_data(config.get("data"), data, out)
    noted = config.get("ledger")
    if ledger is not None and noted is None:
        raise BadInput(f"--ledger {ledger}: the run in {out} was begun without: drop it")
    if ledger is None and isinstance(noted, str) and _leads_out(noted, out):
        raise BadInput(
            f"the run in {out} writes to ledger {noted[:200]!r}, outside of the folder: if that is what you "
            f"want, add --ledger {shlex.quote(noted[:200])}"
        )
    config |= {} if ledger is None else {"ledger": str(ledger)}
    try:
        return experiment_of(config), asked.seeds, asked.command
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def typed_again(out: Path, experiment: Experiment) -> list[str]:
    """The options that ``resume`` needs beside the folder."""
    ledger = None if experiment.ledger is None else str(experiment.ledger)
    options = ["--ledger", ledger] if ledger is not None and _leads_out(ledger, out) else []
    options += ["--algorithm", experiment.algorithm] if is_own(experiment.algorithm) else []
    options += ["--data", experiment.data] if experiment.own_data else []
    return options + [word for one in experiment.silos.items() for word in ("--silo", "=".join(one))]


def typed_silos(noted: Any, typed: Mapping[str, str] | None, folder: Path) -> dict[str, str]:
    """The files of a folder's silos, as the user typed them: a folder alone has no file opened, no code run.

    Raises:
        BadInput: where the folder's run has silos and the user typed none, or others.
    """
    given, silos = dict(typed or {}), noted if isinstance(noted, dict) else {}
    for place in given.values():
        refuse_inside(place, folder)
    if sorted(given) == sorted(silos):
        return given
    if silos and not given and set(silos.values()) == {ELSEWHERE}:
        raise BadInput(
            f"the run in {folder} had owners on machines of their own, whose data are not here: audit the "
            "same settings on data of yours ('audit --algorithm … --silo NAME=FILE')"
        )
    again = " ".join(f"--silo {shlex.quote(f'{name}={place}')}" for name, place in silos.items())
    known = f"silos, whose files are read if you name them: add {printable(again, 250)}"
    raise BadInput(
        f"--silo names {printable(', '.join(given), 100) or 'nobody'}, and the run in {folder} is of "
        f"{known if silos else 'no silos'}"
    )


def typed_data(noted: Any, typed: str | None, folder: Path) -> dict[str, str]:
    """The own data of a folder's run, as the user typed them: a folder alone has no file opened, no code run.

    Returns:
        The key ``data``; nothing where the folder's run is of a data set by name.

    Raises:
        BadInput: where the folder's run is of own data and the user typed none, or the other way round.
    """
    own = isinstance(noted, str) and is_place(noted)
    if typed is None and own:
        again = f"add --data {shlex.quote(noted[:200])}"
        raise BadInput(f"the run in {folder} is of own data, which are read if you name them: {again}")
    if typed is not None and not own:
        raise BadInput(f"--data {typed[:200]}: the run in {folder} is of {str(noted)[:60]!r}: drop it")
    if typed is None:
        return {}
    refuse_inside(typed, folder)
    return {"data": typed}


def _leads_out(noted: str, out: Path) -> bool:
    """Whether a file's value names a place outside of its folder."""
    return "\0" in noted or not Path(noted).resolve().is_relative_to(out.resolve())


def finish(out: Path, ledger: Path | None = None) -> None:
    """Removes the clients' memories, once ``result.json`` is written, and signs the folder as it is then.

    Args:
        ledger: that the run shared with others.
    """
    checkpoint = out / "checkpoint"
    if checkpoint.is_dir():
        for folder in ("clients", "server"):
            files.remove_folder(checkpoint / folder, out)
        files.remove(commit_path(checkpoint), out)
        for draft in checkpoint.glob(f".*{files.DRAFT}"):  # of a process that was killed
            files.remove(draft, out)
    manifest.write(out, ledger)


def weights(run: Run) -> str | None:
    """SHA-256 of the final state; None where the server holds none."""
    if not run.state:
        return None
    return hashlib.sha256(bytes(nested.pack(dict(sorted(run.state.items()))))).hexdigest()


def run_result(run: Run, experiment: Experiment, command: str = "") -> dict[str, Any]:
    """The ``secure-fedgraph/run/1`` object of one run."""
    traffic, transcript = run.transcript.traffic(), run.transcript
    left = _noted(transcript.left_out, "round channel step client reason")
    cut = _noted(transcript.cut, "round channel uploads of limit")
    return {
        "schema": "secure-fedgraph/run/1",
        "command": command,
        "config": resolved(experiment, run),
        "seed": experiment.seed,
        "versions": versions(),
        "form": run.form,
        "form_why": run.algorithm.form.why if run.algorithm.form else "",
        "federated": not run.algorithm.pools,
        "data": dict(run.federation.facts),
        "evaluation": evaluation_entry(
            run.evaluation,
            run.evaluate_every,
            run.federation.referee.facts(run.accuracy.get("global")) if run.evaluation == "referee" else {},
        ),
        "metric": experiment.metric or run.headline,
        "accuracy": run.accuracy | run.headlined(experiment.metric),
        "metrics": run.metrics,
        "headline": (said := experiment.metric or run.headline),
        "baselines": beside_it(run, said),
        "commonest_class": run.commonest_class,
        "privacy": run.privacy(delta=experiment.delta),
        "noise_to_signal": of_a_run(
            Prepared(run.algorithm, run.federation, run.policy, RunOptions(rounds=len(run.history) or None))
        ),
        "released_exactly": released_exactly(run),
        "budget": _budget(run, experiment),
        "plan": plan_rows(run),
        "bytes": {key: traffic[key] for key in ("up", "down", "evaluation")},
        "channels": _channels(run, experiment.delta),
        "carriers": _carriers(run),
        **({"left_out": left} if left else {}),
        **({"cut": cut} if cut else {}),
        "seconds": round(run.seconds, 3),
        "weights": weights(run),
        "notes": run.algorithm.notes(run.state),
        "rounds": [{key: row[key] for key in row if key not in OF_ITEMS} for row in run.history],
    }


def beside_it(run: Run, said: str) -> dict[str, Any]:
    """What the score stands beside; of owners on machines of their own, whose data are not here, less."""
    here = all(graph.get("y") is not None for graph in run.federation.owners.values())
    if not here or run.algorithm.pools:
        best = run.accuracy.get("mae_alone")  # of ratings owners tell it with their scores
        return {"commonest": run.commonest_class, "alone": {"best": best, "paper": None, "metrics": {}}}
    return baselines(run.federation, run.commonest_class, said)


def evaluation_entry(mode: str, every: int, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Who scored, how often, on which nodes."""
    note = NOTES[mode]
    if one := sample.get("sample"):
        note += (
            f"; scored on {one['nodes']:,} of {one['of']:,} test nodes, drawn once: by the last score all "
            f"of them have between {one['low']:.4f} and {one['high']:.4f} (95 % interval)"
        )
    return {"mode": mode, "note": note, "every": every, **sample}


def _budget(run: Run, experiment: Experiment) -> dict[str, Any] | None:
    """What was asked for, what each channel was given, and what is left."""
    budget = run.budget
    if budget is None:
        return None
    entry, of_all = run.privacy(budget.unit, budget.delta), dict[str, Any]()
    if experiment.ledger:
        charges = read_ledger(experiment.ledger)
        by_unit = spent(charges, budget.delta, budget.holders, (budget.unit,))
        of_all = {
            "spent_by_all_runs": number(by_unit[budget.unit][budget.against].epsilon),
            "guaranteed_for_all_runs": budget.epsilon,
        }
    return {
        **asdict(budget),
        "relation": entry["relation"],
        "planned": experiment.planned,
        "spent": entry["readers"][budget.against],
        **of_all,
    }


_SCORED = {
    "referee": "of the model on a graph that holds every protected training row beside the test nodes",
    "at_home": "none, since owners keep their scores",
    "in_band": "as the clients sent them, without noise on all of them",
}


def released_exactly(run: Run) -> list[str]:
    """What this file reveals of protected data without noise, so that no epsilon covers it.

    Keys of the result, each with what it reveals. Publishing the file publishes these too.
    """
    exact = [
        "accuracy.best_by_validation: which round was best on validation nodes",
        "data: how many nodes, features and classes there are (they make the model's width), and a digest",
        "data.partition: sizes of owners' pieces, and for links how many are in them and between them",
        "bytes, channels, seconds: sizes and times",
    ]
    if not _scores_are_noised(run):
        exact.insert(0, f"rounds, accuracy: scores of every round, {_SCORED[run.evaluation]}")
    if run.state:
        exact.append("weights: a digest of the final state")
    exact.append("baselines: what owners score alone, made outside of the federation")
    return exact


def _scores_are_noised(run: Run) -> bool:
    """Whether all that the server gets of scores are uploads with noise, which the ledger charges."""
    names = (run.algorithm.METRICS.name, run.algorithm.SCORES.name)
    scored = [run.policy[row["name"]] for row in run.policy.describe() if row["name"] in names]
    return (
        run.evaluation == "in_band"
        and bool(scored)
        and all(Reader.SERVER in one.releases() for one in scored)
    )


def plan_rows(run: Run) -> list[dict[str, Any]] | None:
    """How the budget is split, a row for each channel or randomised input that uses part of it."""
    if run.budget is None:
        return None
    channels, names = tuple(one.channel for one in run.policy.bounds.values()), run.federation.names
    forecast = Forecast(run.algorithm, channels, names, len(run.history), run.budget, run.evaluate_every)
    return [{**row, "epsilon": number(float(row["epsilon"] or 0))} for row in forecast.split(run.policy)]


def mean_result(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of several seeds: means, with the standard deviation and every seed's figures beside.

    What was spent is the largest of any seed, each a run of its own; the budget and the plan are that seed's.
    """
    first = results[0]
    figures = [
        key
        for key, value in first["accuracy"].items()
        if isinstance(value, float) and all(key in r["accuracy"] for r in results)
    ]
    scores = {key: [r["accuracy"][key] for r in results] for key in figures}
    dearest = max(results, key=lambda one: _size((one["budget"] or {}).get("spent")))
    return {
        **first,
        "seed": [r["seed"] for r in results],
        "seeds": [{key: r[key] for key in ("seed", "accuracy", "data", "weights")} for r in results],
        "accuracy": {
            **{key: fmean(values) for key, values in scores.items()},
            "std": {key: stdev(values) if len(values) > 1 else 0.0 for key, values in scores.items()},
            "best_by_validation": _mean_of(results, "best_by_validation"),
            "best_on_test": _mean_of(results, "best_on_test"),
        },
        "evaluation": evaluation_entry(first["evaluation"]["mode"], first["evaluation"]["every"], {}),
        "privacy": {unit: _largest([r["privacy"][unit] for r in results]) for unit in first["privacy"]},
        **{key: dearest[key] for key in ("budget", "plan")},
        "channels": [
            _largest([row for r in results for row in r["channels"] if row["name"] == one["name"]])
            for one in first["channels"]
        ],
        **{
            key: [{**row, "seed": r["seed"]} for r in results for row in r.get(key, ())]
            for key in ("left_out", "cut")
            if any(r.get(key) for r in results)
        },
        "bytes": {key: round(fmean([r["bytes"][key] for r in results])) for key in first["bytes"]},
        "seconds": round(sum(r["seconds"] for r in results), 3),
        "weights": [r["weights"] for r in results],
    }


def _size(epsilon: float | str | None) -> float:
    return -1.0 if epsilon is None else float(epsilon)


def _largest(claims: list[dict[str, Any]]) -> dict[str, Any]:
    """The claim with the largest epsilon, and for each reader the largest of all."""
    found = dict(max(claims, key=lambda claim: _size(claim["epsilon"])))
    for key in ("readers", "epsilon_by_reader"):
        if key in found:
            readers = {name: one for claim in claims for name, one in claim.get(key, {}).items()}
            found[key] = {
                name: max((claim[key][name] for claim in claims if name in claim.get(key, {})), key=_size)
                for name in readers
            }
    return found


def _mean_of(results: list[dict[str, Any]], key: str) -> dict[str, float] | None:
    scores = [r["accuracy"][key] for r in results if key in r["accuracy"]]
    if not scores:
        return None
    shared = [key for key in scores[0] if key != "round" and all(key in f for f in scores)]
    return {key: fmean([f[key] for f in scores]) for key in shared}


def resolved(experiment: Experiment, run: Run) -> dict[str, Any]:
    """The whole configuration, defaults filled in."""
    config = experiment.model_dump(mode="json")
    config["rounds"] = len(run.history)
    config["training"] = run.algorithm.settings.model_dump(mode="json")
    return config


@cache
def versions() -> dict[str, str]:
    """Python's and the packages' versions, read once a process: metadata are files."""
    by_package = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            by_package[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            by_package[name] = "not installed"
    return by_package


def write_json(path: Path, value: Mapping[str, Any], root: Path | None = None) -> None:
    """Writes a JSON file whole: a crash leaves the old one or the new one, never half of one.

    The file is for sharing and has the modes that the umask gives; a folder that is made for it is private,
    since ledgers and transcripts lie beside it.

    Args:
        root: the folder that a user named, the file's own by default; no link below it is followed.
    """
    files.private_folder(path.parent, root)
    text = json.dumps(value, indent=1, allow_nan=False) + "\n"
    files.write(path, [text.encode()], private=False, root=root)


def read_json(path: Path, kind: str, root: Path | None = None) -> dict[str, Any]:
    """A result file of a known kind, checked against its model in :mod:`secure_fedgraph.experiment.schema`.

    Args:
        kind: ``run``, ``audit`` or ``compare``; or another, which has no model.
        root: as :func:`write_json`'s.

    Raises:
        BadInput: for a file that is missing or holds something else; for a key that is missing or has a value
            of another type or out of range, naming file, key, value and mend.
    """
    if not path.exists():
        begun_here = kind == "run" and is_begun(path.parent)
        why = f"; it is not finished: `secure-fedgraph resume {path.parent}` goes on" if begun_here else ""
        raise BadInput(f"{path.parent} holds no {path.name}: give the folder of a finished {kind}{why}")
    value = schema.of_kind(path, kind, lambda: files.read(path, root=root))
    if kind in schema.RESULTS:
        schema.read(schema.RESULTS[kind], value, path)
    return value


def fresh_folder(out: Path, overwrite: bool) -> Path:
    """A folder for results.

    Raises:
        BadInput: where it holds an earlier result and ``overwrite`` is false.
    """
    earlier = [name for name in (*WRITTEN, *LEDGERS) if (out / name).exists()]
    started = any((out / "checkpoint" / file).exists() for file in ("checkpoint.json", ASKED))
    if started and "result.json" not in earlier and not overwrite:
        raise BadInput(
            f"{out} holds a run that did not finish: go on with 'resume {out}', or {IN_ANOTHER_FOLDER}"
        )
    if earlier and not overwrite:
        mend = "give another --out, or --overwrite" if earlier[0] in WRITTEN else IN_ANOTHER_FOLDER
        raise BadInput(f"{out} already holds {earlier[0]}: {mend}")
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out} is a file: give a folder")
    if overwrite:
        for folder in _left_in(out):
            files.remove_folder(folder, out)
        for path in (*out.glob("runs/*/leak-*.json"), *(out / name for name in earlier)):
            files.remove(path, out)
        for name in BESIDE if set(earlier) & set(WRITTEN) else ():
            files.remove(out / name)
        runs = out / "runs"
        for folder in () if runs.is_symlink() else (*runs.glob("*"), runs):
            if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
                folder.rmdir()
    try:
        files.private_folder(out)
    except OSError as error:
        raise BadInput(f"--out {out} cannot be made ({error.strerror}): give another folder") from None
    return out


def _left_in(out: Path) -> list[Path]:
    """The folders that earlier commands made in a folder of results. Everything else stays.

    Below ``runs`` these are the parts of audits and comparisons, which have no page of their own.
    """
    found = [out / name for name in ("transcript", "checkpoint", "disputes", "cells", "plots")]
    found += [folder for folder in out.glob("seed-*") if folder.name.removeprefix("seed-").isdigit()]
    found += [key.parent for key in out.glob("runs/*/seed-*/key.json")]
    runs = (result.parent for result in out.glob("runs/*/result.json"))
    return found + [folder for folder in runs if not (folder / "report.html").exists()]


def dropped_charges(out: Path, ledger: Path | None = None) -> str:
    """What ``--overwrite`` of a folder takes out of the count of what was spent.

    Args:
        out: the folder that :func:`fresh_folder` is about to clear.
        ledger: the ledger that the new run is to share.

    Returns:
        A warning that counts the charges of runs with noise; nothing where there are none.

    Raises:
        BadInput: where the ledger to share is one that would be removed.
    """
    below = (path for folder in _left_in(out) for path in folder.rglob(LEDGERS[0]))
    removed = [path for path in (out / LEDGERS[0], *below) if files.size_of(path)]
    if ledger is not None and ledger.resolve() in {path.resolve() for path in removed}:
        raise BadInput(f"--ledger {ledger} is in --out {out}, which --overwrite clears: give another --out")
    counts = {path: count for path in removed if (count := _noisy_charges(path))}
    if not counts:
        return ""
    return (
        f"--overwrite removes {sum(counts.values())} charges in {out}, and they count as spent no more; "
        f"--out OTHER --ledger {next(iter(counts))} would keep those of one run counted"
    )


def _noisy_charges(path: Path) -> int:
    """How many charges of a ledger are for noise; every line of one that is damaged may be one."""
    try:
        charges = read_ledger(path)
    except BadInput:
        return len(files.read(path).splitlines())
    return sum(bool(charge.releases or charge.steps or charge.client == TORN) for charge in charges)


def check_can_start(experiment: Experiment, anyway: bool = True) -> None:
    """Makes every check that can refuse a run before round 1, and writes nothing.

    Args:
        anyway: as :func:`execute` takes it.

    Raises:
        BadInput, Refused: as the run would.
    """
    check_device(experiment.device)
    federation = make_federation(experiment)
    algorithm = in_form(experiment, federation)
    protected = protect(experiment, algorithm, federation)
    if anyway:
        bound_of(experiment, algorithm, federation, protected.policy)
    else:
        _check_learns(experiment, algorithm, federation, protected.policy)
    federation = federation.pooled() if algorithm.pools else federation
    if experiment.ledger is not None and files.size_of(experiment.ledger):
        federation.check_ledger(experiment.ledger)


def _channels(run: Run, delta: float) -> list[dict[str, Any]]:
    rows = []
    for row in run.policy.describe():
        mine = [s for s in run.transcript.sent if s.channel == row["name"]]
        charges = [c for c in run.charges if c.channel == row["name"]]
        unit = charges[0].unit if charges else row["unit"]
        spendings = spent(charges, delta, run.federation.holders, (unit,))[unit] if charges else {}
        by_reader = {reader: number(cost.epsilon) for reader, cost in spendings.items()}
        uploads = sum(s.recipient == SERVER and s.step == ANSWER for s in mine)
        rows.append(
            {
                **row,
                "bytes_up": sum(s.bytes for s in mine if s.recipient == SERVER),
                "bytes_down": sum(s.bytes for s in mine if s.sender == SERVER),
                "messages": len(mine),
                "uploads": uploads,
                "read_singly": uploads if is_read_singly(run.policy[row["name"]]) else 0,
                "epsilon": by_reader.get("server"),
                "epsilon_unit": unit if by_reader else None,
                "epsilon_by_reader": by_reader,
            }
        )
    return rows


def is_read_singly(bound: Bound) -> bool:
    """Whether the server reads uploads on a channel one by one, with noise or without."""
    to_server = bound.channel.to == SERVER and bound.channel.reveal is not Reveal.NOTHING
    return to_server and (bound.carrier.gives.readable or bound.channel.reveal is Reveal.EACH)


def _noted(notes: Iterable[object], fields: str) -> list[dict[str, Any]]:
    """Some fields of notes of a transcript."""
    return [{field: getattr(note, field) for field in fields.split()} for note in notes]


def _carriers(run: Run) -> list[dict[str, Any]]:
    sent: dict[str, list[int]] = {}
    for one in run.transcript.sent:
        if one.channel.startswith(CARRIER):
            sent.setdefault(one.channel, []).append(one.bytes)
    return [{"name": name, "bytes": sum(of), "messages": len(of)} for name, of in sorted(sent.items())]
