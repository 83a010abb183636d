"""What the page of a run says."""

from __future__ import annotations

from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.part import Scores
from secure_fedgraph.report import text
from secure_fedgraph.report.first_screens.run import first_screen
from secure_fedgraph.report.left_out import left_out
from secure_fedgraph.report.measures import measure_of, others
from secure_fedgraph.report.sections import learning, trained
from secure_fedgraph.report.sections.owners import each_owner
from secure_fedgraph.report.sections.parts import Story
from secure_fedgraph.report.sections.trained import Trained


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
