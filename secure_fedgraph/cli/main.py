"""The command line: run, compare, resume, audit, budget, list, report."""

from __future__ import annotations

import json
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from secure_fedgraph import __version__, files
from secure_fedgraph.cli import listing, tables
from secure_fedgraph.cli.audit import audit
from secure_fedgraph.cli.budget import budget
from secure_fedgraph.cli.compare import compare
from secure_fedgraph.cli.options import (
    asked_for,
    command_line,
    default_folder,
    experiment_options,
    read_experiment,
)
from secure_fedgraph.cli.own_algorithm import check_own
from secure_fedgraph.cli.schema import schema
from secure_fedgraph.cli.screen import Screen, leave_the_pipe, plain_warnings
from secure_fedgraph.errors import BadInput, SecureFedGraphError, unknown_name
from secure_fedgraph.experiment.compare import forget
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.intent import check_intent
from secure_fedgraph.experiment.results import (
    begin,
    begun,
    execute,
    finish,
    fresh_folder,
    is_begun,
    mean_result,
    read_json,
    rehearse,
    run_result,
    write_json,
)
from secure_fedgraph.experiment.run_logs.opening import logged
from secure_fedgraph.report.page import write_report

RUN_EXAMPLES = """
\b
Examples:
  secure-fedgraph run --algorithm fedsage --data cora --clients 3 --policy masked --out runs/masked
  secure-fedgraph run --policy local_dp --norm 1.0 --multiplier 1.1 --rounds 10
  secure-fedgraph run experiment.toml --set rounds=5 --set training.batch=32
"""


NO_NOISE_GIVEN = " (the default, since no noise was given: --epsilon, or --norm and --multiplier, choose it)"


class _Errors(click.Group):
    """Turns this package's errors into one line and its exit status."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        given = kwargs.get("args") or (args[0] if args else None) or sys.argv[1:]
        debug = "--debug" in given
        try:
            status = super().main(*args, **{**kwargs, "standalone_mode": False})
            sys.exit(status if isinstance(status, int) else 0)
        except SecureFedGraphError as error:
            _fail(error, str(error), error.exit_status, debug)
        except click.ClickException as error:
            _fail(error, error.format_message(), 2, debug)
        except (click.Abort, KeyboardInterrupt) as interrupt:
            _fail(None, str(interrupt.__cause__ or interrupt) or "interrupted", 130, False)
        except BrokenPipeError:  # whoever reads, as head does, has enough
            leave_the_pipe()
            sys.exit(0)
        except Exception as error:
            _fail(error, f"{type(error).__name__}: {error} (run with --debug for the traceback)", 1, debug)


def _fail(error: BaseException | None, message: str, status: int, debug: bool) -> NoReturn:
    if debug and error is not None:
        traceback.print_exception(error)
    click.echo(f"secure-fedgraph: {message}", err=True)
    sys.exit(status)


@click.group(cls=_Errors, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="secure-fedgraph")
def main() -> None:
    """Train graph neural networks across data silos, under protection, and measure what leaks.

    \b
    Exit status: 0 done, 2 bad arguments or configuration, 3 refused for privacy,
    4 an audit found a broken claim, 1 anything else.
    """


@main.command(epilog=RUN_EXAMPLES)
@click.argument("experiment_file", required=False, type=click.Path(path_type=Path))
@click.option("--policy", help="How uploads are protected; see 'list policies'.")
@experiment_options
def run(experiment_file: Path | None, policy: str | None, **flags: Any) -> None:
    """Train under a policy and write result.json, report.html and the privacy ledger."""
    screen = Screen(flags)
    flags["policy"] = policy
    asked, seeds = read_experiment(experiment_file, flags)
    check_intent(asked_for(experiment_file, flags), [asked])
    experiment = asked.with_default_budget()
    note = "" if experiment is asked else NO_NOISE_GIVEN
    check_own(experiment)
    if flags["overwrite"]:
        rehearse(experiment)  # an earlier result goes only for a run that starts
        if flags["out"] is not None:
            forget(flags["out"])
    out = fresh_folder(flags["out"] or default_folder(experiment, "run"), flags["overwrite"])
    with _can_go_on(out):
        _run_seeds(out, experiment, seeds, command_line(), screen, note)


@main.command(epilog="\b\nExample:\n  secure-fedgraph resume runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", type=float, help="A larger budget; a round that is done again is paid again.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def resume(folder: Path, epsilon: float | None, **flags: Any) -> None:
    """Go on with a run that was killed, or stopped by its budget, after its last whole round."""
    screen = Screen(flags)
    if (folder / "result.json").exists():
        result = read_json(folder / "result.json", "run")
        if epsilon is not None:
            raise BadInput(f"--epsilon {epsilon:g}: {folder} is finished, and no budget changes it; drop it")
        finish(folder)
        if not (folder / "report.html").exists():
            write_report(folder)
        screen.say(f"{folder} is finished: nothing to resume", result)
        return
    experiment, seeds, command = begun(folder)
    if epsilon is not None:
        experiment = _with_budget(experiment, epsilon)
    with _can_go_on(folder):
        _run_seeds(folder, experiment, seeds, command, screen)


@contextmanager
def _can_go_on(out: Path) -> Iterator[None]:
    """Whatever stops a run says how it goes on; one that never began leaves no empty folder."""
    go_on = f"go on with: secure-fedgraph resume {shlex.quote(str(out))}"
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {go_on}" if is_begun(out) else "interrupted") from None
    except OSError as error:
        if not is_begun(out):
            raise
        raise SecureFedGraphError(
            f"{error.strerror or error} ({error.filename or out}): mend that, then {go_on}"
        ) from error
    finally:
        if out.is_dir() and not any(out.iterdir()):
            out.rmdir()


def _with_budget(experiment: Experiment, epsilon: float) -> Experiment:
    """The same experiment with a larger budget; its noise stays as it was."""
    if experiment.epsilon is None:
        raise BadInput(f"--epsilon {epsilon:g}: this run has no budget that could be larger")
    if not epsilon >= experiment.epsilon:
        raise BadInput(f"--epsilon {epsilon:g}: the run was started with {experiment.epsilon:g}; give more")
    return experiment.model_copy(update={"epsilon": epsilon})


def _begin(asked: dict[Path, tuple[Experiment, list[int]]], command: str) -> None:
    for folder, (experiment, seeds) in asked.items():
        begin(folder, experiment, seeds, command)


def _run_seeds(
    out: Path, experiment: Experiment, seeds: list[int], command: str, screen: Screen, note: str = ""
) -> None:
    results: list[dict[str, Any]] = []

    def first_line(text: str) -> None:
        if not results:  # of several seeds the first says it
            screen.lead(text + note)

    for seed in seeds:
        one = experiment.model_copy(update={"seed": seed})
        folder = out if len(seeds) == 1 else out / f"seed-{seed}"
        if folder != out:
            files.refuse_link(folder)
        if (folder / "result.json").exists():  # finished before the others were killed
            results.append(read_json(folder / "result.json", "run"))
            continue
        rounds = one.rounds or one.make_algorithm().rounds
        with (
            screen.bar(f"{one.algorithm} under {one.policy}, seed {seed}", rounds) as advance,
            plain_warnings(),
        ):
            started = partial(_begin, {out: (experiment, seeds), folder: (one, [seed])}, command)
            with logged(one, folder.name) as log:
                on_round = partial(_each, advance, log.round)
                finished = execute(
                    one, folder, on_round, checkpoints=True, on_start=started, on_form=first_line
                )
                results.append(run_result(finished, one, command))
                log.result(results[-1])
        if len(seeds) > 1:
            write_json(folder / "result.json", results[-1])
            finish(folder)
    result = results[0] if len(seeds) == 1 else mean_result(results)
    write_json(out / "result.json", result)
    finish(out)
    page = write_report(out)
    screen.finish(result, tables.run_tables(result), page)


def _each(advance: Callable[..., None], log: Callable[[dict[str, Any]], None], row: dict[str, Any]) -> None:
    advance(row)
    log(row)


@main.command("list", epilog="\b\nExample:\n  secure-fedgraph list policies --json")
@click.argument("what", type=str)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--debug", is_flag=True, hidden=True)
def list_names(what: str, as_json: bool, debug: bool) -> None:
    """Print what works today: algorithms, policies, attacks or datasets."""
    what = what.lower()
    if what not in listing.LISTS:
        raise unknown_name("list", what, listing.LISTS)
    rows = listing.LISTS[what]()
    if as_json:
        click.echo(json.dumps({what: rows}, indent=1))
    else:
        Console().print(tables.listing_table(what, rows))


@main.command(epilog="\b\nExample:\n  secure-fedgraph report runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--debug", is_flag=True, hidden=True)
def report(folder: Path, debug: bool) -> None:
    """Rebuild report.html from the JSON in a folder."""
    click.echo(write_report(folder))


for command in (audit, compare, budget, schema):
    main.add_command(command)


if __name__ == "__main__":
    main()
