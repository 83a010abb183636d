"""The work of ``run`` and ``resume``."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from secure_fedgraph.cli import tables
from secure_fedgraph.cli.budgets.planning import settled
from secure_fedgraph.cli.options import asked_for, command_line, default_folder, read_experiment
from secure_fedgraph.cli.screen import Screen, plain_warnings, said_later, warn
from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError, Terminated
from secure_fedgraph.experiment import released
from secure_fedgraph.experiment.compare.runner import ended
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.intent import check_intent
from secure_fedgraph.experiment.kept_schema import in_folder, keep_schema
from secure_fedgraph.experiment.pool import Failed, Tasks
from secure_fedgraph.experiment.ray_pool import on_ray
from secure_fedgraph.experiment.results import (
    begin,
    begun,
    check_can_start,
    check_goes_on,
    dropped_charges,
    execute,
    finish,
    fresh_folder,
    is_begun,
    mean_result,
    read_json,
    run_result,
    typed_again,
    write_json,
)
from secure_fedgraph.experiment.schema import RunResult, as_read
from secure_fedgraph.graph.placing import check_device
from secure_fedgraph.report.page import write_report
from secure_fedgraph.storage import manifest

NO_NOISE_GIVEN = " (the default, since no noise was given: --epsilon, or --norm and --multiplier, choose it)"


def run(experiment_file: Path | None, policy: str | None, **flags: Any) -> None:
    """Trains under a policy, and writes result.json, report.html and the privacy ledger."""
    screen = Screen(flags)
    flags, chosen = settled(experiment_file, {**flags, "policy": policy})
    asked, seeds = read_experiment(experiment_file, flags)
    check_intent(asked_for(experiment_file, flags), [asked])
    experiment = asked.with_default_budget()
    note = chosen if experiment is asked else NO_NOISE_GIVEN
    if flags["overwrite"]:
        dropped = "" if flags["out"] is None else dropped_charges(flags["out"], experiment.ledger)
        with said_later():
            check_can_start(experiment, flags["anyway"])  # an earlier result goes only for a run that starts
        if dropped:
            warn(dropped)
    out = flags["out"] or default_folder(experiment, "run")
    with on_ray(flags["engine"], out, None, experiment, len(seeds)) as pool:
        fresh_folder(out, flags["overwrite"])
        with _can_go_on(out, experiment):
            _run_seeds(out, experiment, seeds, command_line(), screen, note, flags["anyway"], pool)


def resume(
    folder: Path,
    epsilon: float | None,
    ledger: Path | None,
    algorithm: str | None,
    silos: dict[str, str] | None,
    data: str | None,
    device: str | None,
    engine: str | None,
    **flags: Any,
) -> None:
    """Goes on after the last whole round of a run that was killed, or stopped by its budget."""
    screen = Screen(flags)
    if (folder / "result.json").exists():
        result = read_json(folder / "result.json", "run")
        typed = {"epsilon": epsilon, "silo": next(iter(silos or ()), None), "data": data, "device": device}
        if extra := [f"--{option} {given}" for option, given in typed.items() if given is not None]:
            raise BadInput(f"{extra[0]}: {folder} is finished, and trains no more; drop it")
        if manifest.missing(folder):  # it was killed before
            warn(f"{folder} held no {manifest.NAME}, as after a kill at its end: it is signed as it is now")
            finish(folder, ledger)
        manifest.check(folder, ledger)
        if not (folder / "report.html").exists():
            write_report(folder)
        screen.say(f"{folder} is finished: nothing to resume", result)
        return
    experiment, seeds, command = begun(folder, ledger, algorithm, silos, data)
    experiment = experiment.model_copy(update=in_folder({"tables": experiment.tables}, folder))
    if epsilon is not None:
        experiment = _with_budget(experiment, epsilon)
    if device is not None:
        experiment = experiment.model_copy(update={"device": device})
    check_device(experiment.device)
    for seed in seeds:
        check_goes_on(_folder_of(folder, seed, seeds))
    with on_ray(engine, folder, None, experiment, len(seeds)) as pool, _can_go_on(folder, experiment):
        _run_seeds(folder, experiment, seeds, command, screen, pool=pool)


@contextmanager
def _can_go_on(out: Path, experiment: Experiment) -> Iterator[None]:
    """When a run stops, the message says how to resume it; a run that never began leaves no empty folder."""
    options = typed_again(out, experiment)
    folder = f"./{out}" if str(out).startswith("-") else str(out)  # else it would be read as an option
    go_on = f"go on with: {shlex.join(['secure-fedgraph', 'resume', folder, *options])}"
    try:
        with _raised_sigterm():
            yield
    except KeyboardInterrupt as interrupt:
        what = "terminated" if isinstance(interrupt, Terminated) else "interrupted"
        left = is_begun(out) or ((out / "result.json").exists() and not (out / "report.html").exists())
        raise type(interrupt)(f"{what}; {go_on}" if left else what) from None
    except OSError as error:
        if out.exists() and not is_begun(out):
            raise
        place = f"{error.strerror or error} ({error.filename or out})"  # another ledger would lack charges
        raise SecureFedGraphError(f"{place}: put that back or mend it, then {go_on}") from error
    finally:
        if out.is_dir() and not is_begun(out) and not _holds_anything(out):
            shutil.rmtree(out)


@contextmanager
def _raised_sigterm() -> Iterator[None]:
    """Turns SIGTERM, by which schedulers end a job, into an exception, as Ctrl-C is one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    own = os.getpid()

    def end(*_: object) -> None:
        if os.getpid() != own:  # a client's process, which has nothing to say
            os._exit(Terminated.exit_status)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _holds_anything(folder: Path) -> bool:
    """Whether a file below it has a byte: locks and empty folders are nothing."""
    return any(one.lstat().st_size for one in folder.rglob("*") if one.is_symlink() or not one.is_dir())


def _with_budget(experiment: Experiment, epsilon: float) -> Experiment:
    """The same experiment with a larger budget; its noise stays as it was."""
    begun_with = 0.0 if experiment.epsilon is None else experiment.epsilon
    if not epsilon >= begun_with > 0:
        raise BadInput(f"--epsilon {epsilon:g}: the run was started with {begun_with:g}; give more")
    return experiment.model_copy(update={"epsilon": epsilon})


def _folder_of(out: Path, seed: int, seeds: list[int]) -> Path:
    """Where the run of one of these seeds is."""
    return out if len(seeds) == 1 else out / f"seed-{seed}"


def _begin(asked: dict[Path, tuple[Experiment, list[int]]], command: str) -> None:
    for folder, (experiment, seeds) in asked.items():
        begin(folder, experiment, seeds, command)
        keep_schema(experiment, folder)


def _run_seeds(
    out: Path,
    experiment: Experiment,
    seeds: list[int],
    command: str,
    screen: Screen,
    note: str = "",
    anyway: bool = True,
    pool: Tasks | None = None,
) -> None:
    if pool is not None:
        _side_by_side(pool, out, experiment, seeds, command, screen, anyway)
    results: list[dict[str, Any]] = []
    said: set[str] = set()

    def first_line(text: str) -> None:
        if not results:  # of several seeds the first says it
            screen.lead(text + note)

    for seed in seeds:
        one = experiment.model_copy(update={"seed": seed})
        folder = _folder_of(out, seed, seeds)
        if folder != out:
            files.refuse_link(folder)
        if (folder / "result.json").exists():  # finished before the others were killed
            results.append(read_json(folder / "result.json", "run"))
            continue
        rounds = one.rounds or one.make_algorithm().rounds
        with (
            screen.bar(f"{one.algorithm} under policy {one.policy}, seed {seed}", rounds) as advance,
            plain_warnings(said),
        ):
            started = partial(_begin, {out: (experiment, seeds), folder: (one, [seed])}, command)
            finished = execute(
                one,
                folder,
                advance,
                checkpoints=True,
                on_start=started,
                on_form=first_line,
                anyway=anyway,
            )
            results.append(run_result(finished, one, command))
            released.keep(finished, folder, one)
        if len(seeds) > 1:
            write_json(folder / "result.json", results[-1])
            finish(folder, experiment.ledger)
    result = results[0] if len(seeds) == 1 else mean_result(results)
    write_json(out / "result.json", result)
    keep_schema(experiment, out)
    finish(out, experiment.ledger)
    page = write_report(out)
    shown = tables.run_tables if screen.verbose else tables.run_lines
    screen.finish(result, shown(as_read(RunResult, result)), page)


def _side_by_side(
    pool: Tasks,
    out: Path,
    experiment: Experiment,
    seeds: list[int],
    command: str,
    screen: Screen,
    anyway: bool,
) -> None:
    """Runs the seeds that have no result yet, on other machines perhaps.

    Raises:
        SecureFedGraphError: the first seed's that failed, once all have ended.
    """
    each = {seed: experiment.model_copy(update={"seed": seed}) for seed in seeds}
    with said_later():
        check_can_start(each[seeds[0]], anyway)
    _begin({out: (experiment, seeds)}, command)

    def start(seed: int) -> None:
        one, folder = each[seed], _folder_of(out, seed, seeds)
        pool.start(seed, _seed_elsewhere, one, folder, command, anyway, of=one, at=folder)

    left = [seed for seed in seeds if not (_folder_of(out, seed, seeds) / "result.json").exists()]
    failed, said = dict[int, Failed](), set[str]()
    with screen.bar(f"{experiment.algorithm} under policy {experiment.policy}", len(left)) as advance:
        for seed, made in ended(pool, left, start):
            if isinstance(made, Failed):
                failed[seed] = made
            else:
                said.update(made)
            advance(f"seed {seed}")
    for text in sorted(said):
        warn(text)
    if failed:
        told = f"{len(failed)} of {len(seeds)} seeds failed, and 'resume {out}' makes them: "
        raise failed[min(failed)].error(f"{told}seed {min(failed)}: ")


def _seed_elsewhere(one: Experiment, folder: Path, command: str, anyway: bool) -> list[str]:
    """Runs one seed, or goes on with it, where nobody reads a screen. Returns its warnings."""
    said: set[str] = set()
    started = partial(_begin, {folder: (one, [one.seed])}, command)
    with plain_warnings(said):
        finished = execute(one, folder, checkpoints=True, on_start=started, anyway=anyway)
    write_json(folder / "result.json", run_result(finished, one, command))
    released.keep(finished, folder, one)
    finish(folder)
    return list(said)
