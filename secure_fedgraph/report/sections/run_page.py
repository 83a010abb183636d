"""What the page of a run says."""

from __future__ import annotations

from statistics import median

from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.part import Scores
from secure_fedgraph.report import text
from secure_fedgraph.report.first_screens.run import first_screen
from secure_fedgraph.report.left_out import left_out
from secure_fedgraph.report.measures import AT_HOME, measure_of, of_owners, others
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.parts import Story
from secure_fedgraph.report.sections.trained import Trained

# What a page says of single owners: where they lie, and all of them one click away.


def each_owner(run: Trained) -> dict[str, object] | None:
    """The last round's score of each owner on its own test data.

    Returns:
        ``summary``, ``heads`` and ``rows`` of all owners; None where no round says anything about them.
    """
    last = next((history[-1].owners for history in run.histories if history), {})
    scores = {name: value for name, value in last.items() if value is not None}
    if not scores:
        return None
    result = run.results[0]
    measure = of_owners(result)
    nodes = (
        result.data.partition.sizes
        if len(result.data.partition.sizes) == len(scores)
        else [None] * len(scores)
    )
    what = "accuracy " if measure is AT_HOME and measure_of(result).key not in ("global", "local") else ""
    low, high = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
    return {
        "summary": f"{len(scores)} owners on their own test data: {what}"
        f"lowest {measure.write(scores[low])} ({low}), median {measure.write(median(scores.values()))}, "
        f"highest {measure.write(scores[high])} ({high}).",
        "heads": ["owner", "nodes", f"{what}last round"],
        "rows": [
            [name, text.count(size), measure.write(value)]
            for size, (name, value) in zip(nodes, scores.items(), strict=True)
        ],
    }


def run_story(result: RunResult) -> Story:
    """Everything that ``run.html`` prints."""
    config, seeds = result.config, result.seeds
    policy = str(config.get("policy") or text.MISSING)
    shown = Trained(policy, [result], [result.rounds])
    each = Trained(policy, [result.of_seed(seed) for seed in seeds] or [result], shown.histories)
    by_round = learning.accuracy([shown])
    algorithm, data = (
        text.named(text.ALGORITHMS, config.get("algorithm")),
        trained.data_name(result.data.data),
    )
    told: dict[str, object] = {
        "kind": "run",
        "title": f"{algorithm} on {data or text.MISSING} under policy {policy}",
        "first": first_screen(result, algorithm),
        "command": result.command,
        "owned": trained.owners([config]),
        "source": result.data,
        "seed": result.seed,
        "seconds": result.seconds,
        "federated": result.federated,
        "form": {"settings": result.form, "why": result.form_why},
        "left_out": left_out(result.left_out),
        "measure": measure_of(result),
        "score": result.accuracy,
        "others": others(result),
        "std": result.accuracy.std or Scores(),
        "seeds": seeds,
        "rounds": config.get("rounds"),
        "accuracy": by_round,
        "time_head": "time, all seeds" if seeds else "time",
        "finals": learning.finals([shown]),
        "owners": each_owner(shown),
        "only_seed": seeds[0].seed if seeds else None,
        "budget": result.budget,
        "plan": result.plan or [],
        "traffic": trained.traffic([shown]),
        "privacy": trained.privacy([shown]),
        "released": [one.split(":")[0] for one in result.released_exactly],
        "runs": [shown],
        "partition": trained.partition([each]),
        "facts": trained.facts(config, result.versions),
    }
    return Story(told, by_round.pictures if by_round else [])
