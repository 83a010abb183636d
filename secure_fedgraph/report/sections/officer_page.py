"""The page for who signs: what a run sent, what it promises, what was measured, and what remains open.

It claims no compliance with any law: it says what a figure is about, and what is for a person to judge.
"""

from __future__ import annotations

from collections.abc import Sequence

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.report import text
from secure_fedgraph.report.first_screens.readers import each_reader
from secure_fedgraph.report.first_screens.run import beside, bound, seen_by_server
from secure_fedgraph.report.measures import measure_of
from secure_fedgraph.report.sections import trained
from secure_fedgraph.report.sections.parts import Story


def officer_story(
    result: RunResult, audit: AuditResult | None, signed: str, opened: Sequence[int] = ()
) -> Story:
    """Everything that ``officer.html`` prints.

    Args:
        audit: of the same run, where it was attacked.
        signed: which key signed the folder, and what was checked against it, in a sentence.
        opened: rounds whose uploads an auditor read in a dispute, or may.

    Raises:
        BadInput: for an audit of another run.
    """
    if audit is not None and all(one.result.weights != result.weights for one in audit.runs):
        raise BadInput("audit.json is of another run than result.json: audit this one again")
    policy, measure = str(result.config.get("policy") or text.MISSING), measure_of(result)
    data = trained.data_name(result.data.data) or text.MISSING
    algorithm = text.named(text.ALGORITHMS, result.config.get("algorithm"))
    privacy = trained.privacy([trained.Trained(policy, [result], [])])
    told: dict[str, object] = {
        "kind": "run",
        "title": f"{algorithm} on {data}: what was promised, measured and left open",
        "result": result,
        "policy": f"{policy} ({text.named(text.POLICIES, policy)})",
        "owned": trained.owners([result.config]),
        "data": data,
        "promises": text.guarantee(result.privacy),
        "bound": bound(result),
        "score": measure.write(result.accuracy.get(measure.key)),
        "measure": measure.title,
        "beside": beside(result, measure),
        "seen": seen_by_server(result),
        "attacked": _attacked(audit, policy),
        "privacy": privacy,
        "exact": [one.split(":")[0] for one in result.released_exactly],
        "signed": signed,
        "opened": opened,
        "facts": trained.facts(result.config, result.versions),
    }
    return Story(told, [])


def _attacked(audit: AuditResult | None, policy: str) -> list[str]:
    """What attacks read, a sentence a reader; broken claims first."""
    if audit is None:
        return []
    tried = {cell.attack for cell in audit.cells if cell.outcome == "score"}
    failed = sum(row.outcome == "failed" for row in audit.conformance)
    told = [f"A claim is broken: {one}" for one in audit.broken]
    told += [f"{one.name}: {one.sentence}" for one in each_reader(audit.cells, [policy], policy)]
    checks = f"{failed} of {len(audit.conformance)} checks of the run failed"
    told.append(f"{len(tried)} attacks had a result; {checks}.")
    return told
