"""The command ``compare``: accuracy under privacy, side by side."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import click

from secure_fedgraph import tables
from secure_fedgraph.config import Experiment
from secure_fedgraph.errors import BadInput
from secure_fedgraph.options import command_line, default_folder, experiment_options, names, read_experiment
from secure_fedgraph.report.page import write_report
from secure_fedgraph.results import fresh_folder, write_json
from secure_fedgraph.screen import Screen

COMPARE_EXAMPLES = """
\b
Examples:
  secure-fedgraph compare --algorithm fedsage,fedavg --data pubmed --clients 200 --epsilon 1,8,inf --seeds 3
  secure-fedgraph compare --algorithm fedsage --policy plaintext,masked,homomorphic --rounds 5 --attack a1,a4
"""


@click.command(epilog=COMPARE_EXAMPLES)
@click.option("--policy", help="Policies, by commas; distributed_dp with a budget, else strictest.")
@click.option("--attack", help="Attacks to run under each point, by commas; none by default.")
@click.option("--workers", type=click.IntRange(1), help="Processes; one a core by default.")
@partial(experiment_options, epsilon=str)
def compare(policy: str | None, attack: str | None, workers: int | None, **flags: Any) -> None:
    """Accuracy under privacy, side by side: algorithms, policies, budgets, seeds; resumable."""
    from secure_fedgraph import comparison

    screen, started = Screen(flags), time.perf_counter()
    algorithms = names("algorithm", flags["algorithm"] or "fedsage")
    epsilons = _epsilons(flags.pop("epsilon"))
    policies = names("policy", policy or ("distributed_dp" if epsilons else "strictest"))
    base, seeds = read_experiment(
        None, {**flags, "algorithm": algorithms[0], "policy": policies[0], "epsilon": None}, made=False
    )
    leaks = None
    if attack is not None:
        from audits import grid

        leaks = partial(_leaks, attacks=[kind.id for kind in grid.choose(names("attack", attack))])
    chosen = comparison.points(base, algorithms, policies, epsilons)
    out = flags["out"] or default_folder(base, "compare")
    if flags["overwrite"] or not (out / "runs").is_dir():
        fresh_folder(out, flags["overwrite"])
    total = len(chosen) * (len(seeds) + (leaks is not None))
    with screen.bar("comparing", total) as advance:
        rows = comparison.compare(chosen, seeds, out, advance, leaks, workers)
    seconds = time.perf_counter() - started
    result = comparison.compare_result(base, rows, seeds, seconds, command_line())
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
