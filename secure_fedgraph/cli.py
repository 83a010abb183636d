"""The command line: run, compare, resume, audit, budget, list, report."""

from __future__ import annotations

import json
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from secure_fedgraph import __version__, listing, tables
from secure_fedgraph.budget_command import budget
from secure_fedgraph.config import Experiment, load
from secure_fedgraph.errors import BadInput, BrokenClaim, SecureFedGraphError, unknown_name
from secure_fedgraph.privacy.budget import DeltaWarning
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.report.page import write_report
from secure_fedgraph.results import (
    begin,
    begun,
    execute,
    finish,
    fresh_folder,
    mean_result,
    read_json,
    rehearse,
    run_result,
    write_json,
)

Command = Callable[..., Any]

RUN_EXAMPLES = """
\b
Examples:
  secure-fedgraph run --algorithm fedsage --data cora --clients 3 --policy masked --out runs/masked
  secure-fedgraph run --policy local_dp --norm 1.0 --multiplier 1.1 --rounds 10
  secure-fedgraph run experiment.toml --set rounds=5 --set training.batch=32
"""
AUDIT_EXAMPLES = """
\b
Examples:
  secure-fedgraph audit --algorithm fedsage --data cora --policy plaintext,masked,homomorphic --attack all
  secure-fedgraph audit --policy plaintext --attack a4 --seeds 3 --set rounds=1
  secure-fedgraph audit --algorithm fedsage+ --policy strictest --attack neighgen --effort 20
  secure-fedgraph audit runs/masked        # a finished run that kept its transcript
"""


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
        except (click.Abort, KeyboardInterrupt):
            _fail(None, "interrupted", 130, False)
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


def _experiment_options(command: Command, epsilon: Any = float) -> Command:
    options = [
        click.option("--algorithm", help="An algorithm's name; see 'list algorithms'."),
        click.option("--data", help="A data set's name; see 'list datasets'."),
        click.option("--clients", type=int, help="How many owners."),
        click.option("--partition", help="How nodes are handed out; the paper's by default."),
        click.option("--rounds", type=int, help="Training rounds; the algorithm's own number by default."),
        click.option("--norm", type=float, help="The clip: an L2 norm."),
        click.option("--multiplier", type=float, help="Noise standard deviation over sensitivity."),
        click.option("--epsilon", type=epsilon, help="A privacy budget; noise is planned from it."),
        click.option("--unit", help="Whose data it is about: client, graph, node or edge."),
        click.option("--against", help="Whom it holds against: server, peers or outsider."),
        click.option("--ledger", type=click.Path(path_type=Path), help="A ledger that several runs share."),
        click.option("--relation", help="Neighbouring relation: zero-out, add-remove or replace."),
        click.option("--delta", type=float, help="For every printed epsilon (1e-5)."),
        click.option("--seed", type=int, help="One run with this seed."),
        click.option(
            "--seeds", type=click.IntRange(1), help="That many runs, seeds 0, 1, ..., and their mean."
        ),
        click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Overrides any key."),
        click.option("--out", type=click.Path(path_type=Path), help="Folder for results."),
        click.option("--overwrite", is_flag=True, help="Replace an earlier result in --out."),
        click.option("--quiet", is_flag=True, help="Print nothing but errors."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else."),
        click.option("--debug", is_flag=True, help="Show a traceback with an error."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@main.command(epilog=RUN_EXAMPLES)
@click.argument("experiment_file", required=False, type=click.Path(path_type=Path))
@click.option("--policy", help="How uploads are protected; see 'list policies'.")
@_experiment_options
def run(experiment_file: Path | None, policy: str | None, **flags: Any) -> None:
    """Train under a policy and write result.json, report.html and the privacy ledger."""
    screen = _Screen(flags)
    experiment, seeds = _experiment(experiment_file, {**flags, "policy": policy})
    if flags["overwrite"]:
        rehearse(experiment)  # an earlier result goes only for a run that starts
    out = fresh_folder(flags["out"] or _default_folder(experiment, "run"), flags["overwrite"])
    _run_seeds(out, experiment, seeds, _command_line(), screen)


@main.command(epilog="\b\nExample:\n  secure-fedgraph resume runs/masked")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--epsilon", type=float, help="A larger budget; a round that is done again is paid again.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--debug", is_flag=True, help="Show a traceback with an error.")
def resume(folder: Path, epsilon: float | None, **flags: Any) -> None:
    """Go on with a run that was killed, or stopped by its budget, after its last whole round."""
    screen = _Screen(flags)
    if (folder / "result.json").exists():
        result = read_json(folder / "result.json", "run")
        finish(folder)
        if not (folder / "report.html").exists():
            write_report(folder)
        screen.say(f"{folder} is finished: nothing to resume", result)
        return
    experiment, seeds, command = begun(folder)
    if epsilon is not None:
        experiment = _with_budget(experiment, epsilon)
    _run_seeds(folder, experiment, seeds, command, screen)


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


def _run_seeds(out: Path, experiment: Experiment, seeds: list[int], command: str, screen: _Screen) -> None:
    results = []
    for seed in seeds:
        one = experiment.model_copy(update={"seed": seed})
        folder = out if len(seeds) == 1 else out / f"seed-{seed}"
        if (folder / "result.json").exists():  # finished before the others were killed
            results.append(read_json(folder / "result.json", "run"))
            continue
        rounds = one.rounds or one.make_algorithm().rounds
        with (
            screen.bar(f"{one.algorithm} under {one.policy}, seed {seed}", rounds) as advance,
            _plain_warnings(),
        ):
            started = partial(_begin, {out: (experiment, seeds), folder: (one, [seed])}, command)
            finished = execute(one, folder, on_round=advance, checkpoints=True, on_start=started)
        results.append(run_result(finished, one, command))
        if len(seeds) > 1:
            write_json(folder / "result.json", results[-1])
            finish(folder)
    result = results[0] if len(seeds) == 1 else mean_result(results)
    write_json(out / "result.json", result)
    finish(out)
    page = write_report(out)
    screen.finish(result, tables.run_tables(result), page)


@main.command(epilog=AUDIT_EXAMPLES)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--policy", help="Policies, separated by commas.")
@click.option("--attack", default="all", show_default=True, help="Ids, slugs, families, or all; by commas.")
@click.option("--adversary", help="Who attacks: server or client; all that the attacks declare by default.")
@click.option(
    "--control",
    multiple=True,
    metavar="NAME",
    help="Only these control settings beside the configured ones, by commas; see 'list attacks'.",
)
@click.option(
    "--effort",
    type=float,
    metavar="SECONDS",
    help="Processor seconds that one search of an attack may take; the attack's own limit by default.",
)
@_experiment_options
def audit(
    folder: Path | None,
    policy: str | None,
    attack: str,
    adversary: str | None,
    control: tuple[str, ...],
    effort: float | None,
    **flags: Any,
) -> None:
    """Measure what an adversary learns, attack by attack and policy by policy."""
    from audits import grid  # the judges and their libraries load only where they are asked for
    from audits.report import audit_result

    screen = _Screen(flags)
    attacks = grid.choose(_names("attack", attack))
    who = grid.adversaries(attacks, adversary)
    attacks = [a for a in attacks if set(a.adversaries) & set(who)]
    for kind in attacks:
        kind(effort)  # one that is no limit is refused before work starts
    started = time.perf_counter()
    if folder is not None:
        out = _folder_for_audit_of(folder, {**flags, "policy": policy, "control": control})
        experiment, found = grid.audit_folder(folder, attacks, adversary, effort)
        if out != folder:
            fresh_folder(out, flags["overwrite"])
        policies, seeds = [experiment.policy], [experiment.seed]
    else:
        policies = ["strictest"] if policy is None else _names("policy", policy)
        experiment, seeds = _experiment(None, {**flags, "policy": policies[0]})
        for name in policies:
            # every name is checked before work starts
            experiment.under(name).make_policy()
        if attack == "all":  # of the attacks those that read a channel of this algorithm, if any does
            channels = {channel.name for channel in experiment.make_algorithm().in_use}
            attacks = [a for a in attacks if a.channel in channels] or attacks
        controls = grid.controls(attacks, [name for one in control for name in _names("control", one)])
        if flags["overwrite"]:
            rehearse(experiment.under("plaintext"))
        out = fresh_folder(flags["out"] or _default_folder(experiment, "audit"), flags["overwrite"])
        total = len(policies) * len(seeds) * len(grid.variants(experiment, attacks, controls))
        with screen.bar("auditing", total) as advance, _plain_warnings():
            found = grid.audit(
                experiment, policies, attacks, seeds, out, advance, adversary, controls, effort
            )
    result = audit_result(found, experiment, policies, seeds, time.perf_counter() - started, _command_line())
    write_json(out / "audit.json", result)
    page = write_report(out)
    screen.finish(result, tables.audit_tables(result), page)
    if result["broken"]:
        raise BrokenClaim(" ".join(result["broken"]))


COMPARE_EXAMPLES = """
\b
Examples:
  secure-fedgraph compare --algorithm fedsage,fedavg --data pubmed --clients 200 --epsilon 1,8,inf --seeds 3
  secure-fedgraph compare --algorithm fedsage --policy plaintext,masked,homomorphic --rounds 5 --attack a1,a4
"""


@main.command(epilog=COMPARE_EXAMPLES)
@click.option("--policy", help="Policies, by commas; distributed_dp with a budget, else strictest.")
@click.option("--attack", help="Attacks to run under each point, by commas; none by default.")
@click.option("--workers", type=click.IntRange(1), help="Processes; one a core by default.")
@partial(_experiment_options, epsilon=str)
def compare(policy: str | None, attack: str | None, workers: int | None, **flags: Any) -> None:
    """Accuracy under privacy, side by side: algorithms, policies, budgets, seeds; resumable."""
    from secure_fedgraph import comparison

    screen, started = _Screen(flags), time.perf_counter()
    algorithms = _names("algorithm", flags["algorithm"] or "fedsage")
    epsilons = _epsilons(flags.pop("epsilon"))
    policies = _names("policy", policy or ("distributed_dp" if epsilons else "strictest"))
    base, seeds = _experiment(
        None, {**flags, "algorithm": algorithms[0], "policy": policies[0], "epsilon": None}, made=False
    )
    leaks = None
    if attack is not None:
        from audits import grid

        leaks = partial(_leaks, attacks=[kind.id for kind in grid.choose(_names("attack", attack))])
    chosen = comparison.points(base, algorithms, policies, epsilons)
    out = flags["out"] or _default_folder(base, "compare")
    if flags["overwrite"] or not (out / "runs").is_dir():
        fresh_folder(out, flags["overwrite"])
    total = len(chosen) * (len(seeds) + (leaks is not None))
    with screen.bar("comparing", total) as advance:
        rows = comparison.compare(chosen, seeds, out, advance, leaks, workers)
    seconds = time.perf_counter() - started
    result = comparison.compare_result(base, rows, seeds, seconds, _command_line())
    write_json(out / "compare.json", result)
    comparison.write_tables(rows, out)
    page = write_report(out)
    screen.finish(result, tables.compare_tables(result), page)


def _epsilons(text: Any) -> list[float]:
    """Budgets by commas; ``inf`` is the baseline without privacy, which is there anyway."""
    found = []
    for part in str(text or "").split(","):
        if not part.strip():
            continue
        try:
            found.append(float(part))
        except ValueError:
            found.append(-1.0)
        if not found[-1] > 0:
            raise BadInput(
                f"--epsilon {text}: {part!r} is no budget; give positive numbers or inf, by commas"
            )
    return found


def _leaks(config: dict[str, Any], attacks: list[str]) -> dict[str, float | str]:
    """What attacks make of one point's run as configured: the best score at single owners, or a word."""
    from audits import grid

    experiment = Experiment(**config)
    channels = {channel.name for channel in experiment.make_algorithm().in_use}
    kinds = [kind for kind in grid.choose(attacks) if kind.channel in channels]
    found: dict[str, float | str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = grid.audit(experiment, [experiment.policy], kinds, [experiment.seed], controls=())
    for cell in made.cells:
        if cell["settings"]["aim"] != grid.EACH:
            continue  # what all owners' sum shows is no single owner's
        score = cell.get("score")
        known = found.get(cell["attack"])
        if score is not None and not (isinstance(known, float) and known >= score):
            found[cell["attack"]] = float(score)
        elif known is None:
            found[cell["attack"]] = cell["outcome"]
    return found


@main.command("list", epilog="\b\nExample:\n  secure-fedgraph list policies --json")
@click.argument("what", type=str)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--debug", is_flag=True, hidden=True)
def list_names(what: str, as_json: bool, debug: bool) -> None:
    """Print what works today: algorithms, policies, attacks or datasets."""
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


main.add_command(budget)


class _Screen:
    """What the user sees: a progress bar on a terminal, tables at the end, or one JSON object."""

    def __init__(self, flags: dict[str, Any]) -> None:
        self._json, self._quiet = flags["as_json"], flags["quiet"]
        self._console = Console(stderr=True)

    @contextmanager
    def bar(self, text: str, total: int) -> Iterator[Callable[..., None]]:
        hidden = self._json or self._quiet or not self._console.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console, disable=hidden, transient=True) as progress:
            task = progress.add_task(text, total=total)

            def advance(note: object = None) -> None:
                progress.update(task, advance=1, description=note if isinstance(note, str) else None)

            yield advance

    def say(self, text: str, result: dict[str, Any]) -> None:
        """One line, or the result as JSON."""
        if self._json:
            click.echo(json.dumps(result))
        elif not self._quiet:
            click.echo(text)

    def finish(self, result: dict[str, Any], found: list[Any], page: Path) -> None:
        if self._json:
            click.echo(json.dumps(result))
        elif not self._quiet:
            console = Console()
            for table in found:
                console.print(table)
            console.print(f"Report: {page}", soft_wrap=True)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """A channel left in plaintext, or a delta too large, is said in one line, whatever else warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PlaintextWarning)
        warnings.simplefilter("always", DeltaWarning)
        warnings.showwarning = lambda message, *_, **__: click.echo(
            f"secure-fedgraph: warning: {message}", err=True
        )
        yield


def _experiment(path: Path | None, flags: dict[str, Any], made: bool = True) -> tuple[Experiment, list[int]]:
    if flags["seed"] is not None and flags["seeds"] is not None:
        raise BadInput("--seed runs one and --seeds runs many: give one of them")
    protection = [
        f"protection.{key}={flags[key]}" for key in ("norm", "multiplier") if flags[key] is not None
    ]
    keys = Experiment.model_fields.keys() & flags.keys()
    experiment = load(path, {key: flags[key] for key in keys}, [*protection, *flags["assignments"]])
    experiment.make_algorithm()
    if made:
        experiment.make_policy()
    seeds = [experiment.seed] if flags["seeds"] is None else list(range(flags["seeds"]))
    return experiment, seeds


def _names(option: str, given: str) -> list[str]:
    """What stands between the commas, each once."""
    names = [name.strip() for name in given.split(",")]
    if not all(names):
        raise BadInput(f"--{option} {given!r} leaves a name empty: give names, separated by commas")
    return list(dict.fromkeys(names))


def _folder_for_audit_of(folder: Path, flags: dict[str, Any]) -> Path:
    """Where the audit of a finished run goes: beside its result, which stays, or to ``--out``."""
    ignored = [key for key in ("policy", *Experiment.model_fields) if flags.get(key) is not None]
    ignored += ["control"] if flags["control"] else []
    if ignored or flags["assignments"] or flags["seeds"] is not None:
        name = (ignored or ["set" if flags["assignments"] else "seeds"])[0]
        raise BadInput(f"--{name} cannot change the finished run in {folder}: drop it, or drop the folder")
    out: Path = flags["out"] or folder
    if out.resolve() != folder.resolve():
        return out
    if (folder / "audit.json").exists() and not flags["overwrite"]:
        raise BadInput(f"{folder} already holds audit.json: give another --out, or --overwrite")
    return folder


def _default_folder(experiment: Experiment, kind: str) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{kind}-{experiment.algorithm}-{experiment.data}-{stamp}"


def _command_line() -> str:
    return shlex.join(["secure-fedgraph", *sys.argv[1:]])


if __name__ == "__main__":
    main()
