"""What a terminal shows of a result: short lines, and with ``-v`` its tables. The page has all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from rich.table import Table
from rich.text import Text

from secure_fedgraph.cli.screen import table_of
from secure_fedgraph.experiment.schema import AuditResult, CompareResult, RunResult
from secure_fedgraph.experiment.schema.audit import Cell
from secure_fedgraph.experiment.schema.compare import Point
from secure_fedgraph.experiment.schema.part import Part
from secure_fedgraph.experiment.schema.run import NO_LEARNING
from secure_fedgraph.report.cautions import best_alone, headline_of, no_better_than, written
from secure_fedgraph.report.left_out import left_out, left_out_of
from secure_fedgraph.report.measures import MEASURES, NAMES
from secure_fedgraph.report.text import size

Shown = list[Table | Text]


def run_lines(run: RunResult) -> Shown:
    """What a user came for: the score, the budget and what was sent, a line each."""
    scores = [f"{name.replace('_', ' ')} {value:.4f}" for name, value in run.accuracy.named().items()]
    spent = [
        f"{unit} {claim.epsilon} (delta {claim.delta:g}, {claim.against})"
        for unit, claim in run.privacy.items()
    ]
    lines = [
        f"scores: {', '.join(scores)}" if scores else "",
        f"epsilon: {', '.join(spent)}" if spent else "epsilon: 0, nothing left a client",
        f"sent: {size(run.bytes.up)} up, {size(run.bytes.down)} down",
        _owners(run),
    ]
    said = [
        *left_out(run.left_out),
        *([] if run.federated else ["Not federated: this baseline pools all data."]),
    ]
    excess = [row.name for row in run.channels if row.excess]
    if excess:
        lines.append(f"Channels that show more than they declare (-v says what): {', '.join(excess)}.")
    if run.released_exactly:
        exact = len(run.released_exactly)
        lines.append(
            f"result.json holds {exact} kinds of exact values, which no epsilon covers: -v names them."
        )
    if run.noise_to_signal is not None and run.noise_to_signal > NO_LEARNING:
        said.append(
            f"The noise is {run.noise_to_signal:.3g} times what the signal can be at most (above "
            f"{NO_LEARNING:g}): whatever the scores are, this is no learning. Give a larger epsilon or more "
            "owners; secure-fedgraph plan says what a budget buys."
        )
    bold = [Text(one, style="bold") for one in said]
    return [_first(run), *(Text(line) for line in lines if line), *bold]


def run_tables(run: RunResult) -> Shown:
    """The same, and every metric, claim, part of the budget and channel."""
    scores, alone = run.accuracy, run.baselines.alone.metrics
    rounds = {
        "last round": scores,
        "best by validation": scores.best_by_validation,
        "best on test": scores.best_on_test,
    }
    metrics = [
        {"metric": name, "value": one.value, "low": one.low, "high": one.high, "best alone": alone.get(name)}
        for name, one in run.metrics.items()
    ]
    of_rounds = [
        {"score": name, **{head: one.get(name) if one else None for head, one in rounds.items()}}
        for name in scores.named()
    ]
    claims = [{"unit": str(unit), **dumped(claim)} for unit, claim in run.privacy.items()]
    budget = run.budget
    exact = [Text(f"No epsilon covers {one}.", style="dim") for one in run.released_exactly]
    return [
        *run_lines(run),
        *table("metrics of all test items together, with 95 % intervals", metrics),
        *table("scores", of_rounds),
        *table("privacy: what the most exposed client has spent", claims),
        *table(
            f"how epsilon {budget.epsilon:g} of one {budget.unit} is split" if budget else "", run.plan or ()
        ),
        *table("what was sent", run.channels, "name reveal policy bytes_up messages epsilon epsilon_unit"),
        *(
            Text(f"Channel `{row.name}` shows more than it declares: {'; '.join(row.excess)}.")
            for row in run.channels
            if row.excess
        ),
        *exact,
        Text(f"{run.data.source}, sha256 {run.data.digest[:18]}; {run.evaluation.note}", style="dim"),
    ]


def _first(run: RunResult) -> Text:
    """The headline, and what it is no better than."""
    score = headline_of(run)
    if score is None and (error := run.accuracy.get("mae")) is not None:  # of ratings owners score their own
        alone = "" if (best := run.baselines.alone.best) is None else f"; owners alone {best:.3f}"
        return Text(f"{NAMES['mae']}: {error:.3f}{alone}.".capitalize(), style="bold")
    if score is None:
        return Text("No score: owners keep theirs." if run.evaluation.mode == "at_home" else "No score.")
    measure, figure = MEASURES.get(run.headline), run.metrics.get(run.headline)
    said = f"{measure.title if measure else run.headline}: {written(run.headline, score)}"
    if figure is not None and figure.high > figure.low:
        said += f" ({written(run.headline, figure.low)} to {written(run.headline, figure.high)})"
    worse, best = no_better_than(run), best_alone(run)
    said += f"{', ' if worse else ''}{worse}"
    if "alone" not in worse and best is not None:
        said += f"; owners alone {written(run.headline, best)}"
    return Text(f"{said}.", style="bold")


def _owners(run: RunResult) -> str:
    """The range of the single owners' scores; empty where the rounds do not have them."""
    scores = run.rounds[-1].owners if run.rounds else {}
    if len(scores) < 2:
        return ""
    low, high = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
    which = f" of seed {run.seeds[0].seed}" if run.seeds else ""
    return (
        f"{len(scores)} owners{which}: lowest {scores[low]:.4f} ({low}), median "
        f"{median(scores.values()):.4f}, highest {scores[high]:.4f} ({high})"
    )


def audit_lines(audit: AuditResult) -> Shown:
    """What an audit came to, what would stop what leaks, and what was not run or checked."""
    left = dict.fromkeys(row.check for row in audit.conformance if row.reason)
    unseen = [f"Not run: {len(audit.not_run)} cells; -v says why."] if audit.not_run else []
    unseen += [f"Not checked ({', '.join(left)}): -v says why."] if left else []
    broken = [Text(f"Broken claim: {text}", style="bold red") for text in audit.broken]
    verdict = Text(audit.verdict, style="bold")
    return [*_forms(audit.cells), *_stops(audit.cells), *map(Text, unseen), *broken, verdict]


def audit_tables(audit: AuditResult) -> Shown:
    """The same, and every cell, run, check without an attack, measured epsilon and gap."""
    cells = [{**dumped(cell), **dumped(cell.settings)} for cell in audit.cells]
    runs = [
        {**dumped(row), "seed": row.result.seed, **row.result.accuracy.named(), "seconds": row.result.seconds}
        for row in audit.runs
    ]
    empirical = "algorithm policy noise of claim lower ceiling trials outcome"
    leaks = "attack adversary variant aim algorithm policy outcome score baseline leaks reason"
    return [
        *table("what leaks (a score of 1 is exact; the baseline is the best trivial guess)", cells, leaks),
        *table("the runs that were attacked", runs, "algorithm policy variant seed global local seconds"),
        *table("conformance, with no attack", audit.conformance, "policy check outcome findings reason"),
        *table("epsilon, measured on worst-case neighbours", audit.empirical, empirical),
        *table("not run", audit.not_run, "algorithm policy variant attack reason"),
        *audit_lines(audit),
    ]


def _stops(cells: Sequence[Cell]) -> list[Text]:
    """What would stop what leaks, once for the attacks and policies that share the answer."""
    by_remedy: dict[tuple[str, str], dict[str, None]] = {}
    for cell in cells:
        if cell.leaks and cell.stops:
            by_remedy.setdefault((cell.adversary, cell.stops), {})[cell.attack] = None
    return [
        Text(f"What would stop {', '.join(names)} in the hands of the {adversary}: {stops}.", style="red")
        for (adversary, stops), names in by_remedy.items()
    ]


def compare_tables(comparison: CompareResult) -> Shown:
    """Every point: its score, what was spent, what leaks, bytes and seconds; and whether that is worth it."""
    config, points, seeds = comparison.config, comparison.points, len(comparison.seeds)
    every = table_of(
        f"{config['data']}, {config['clients']} clients, {seeds} seed{'s' * (seeds != 1)}",
        ("point", f"epsilon ({config['unit']})", "spent", "score", "local", "personal", "bytes up", "s"),
        (_point(row, row.name in comparison.pareto) for row in points),
        whole=["point"],  # two lines: it is read whole on a terminal of 80 columns
    )
    notes = ["* no other point that spends as little has a better score"]
    guesses = [row.commonest_class for row in points if row.commonest_class is not None]
    notes += [f"always the commonest class: accuracy {guesses[0]:.4f}"] if guesses else []
    leaks = [
        {"point": row.name, "attack": attack, **dumped(found := row.leaks.get(attack)), "leak": score}
        | {"leaks": "leaks" if found is not None and found.leaks else ""}
        for row in points
        for attack, score in row.leak.items()
    ]
    failed = [f"Attacks on {row.name} failed: {row.leak_failed}" for row in points if row.leak_failed]
    return [
        every,
        *(Text(one, style="bold") for one in left_out_of(points)),
        *(Text(one, style="dim") for one in notes),
        *(Text(f"{row.name}: {row.worth}") for row in points if row.worth),
        *_forms(points),
        *table(
            "what attacks make of single owners, on the first seed (1 is exact)",
            leaks,
            "point attack leak baseline leaks",
        ),
        *(Text(one, style="bold red") for one in failed),
    ]


def _point(row: Point, best: bool) -> list[Text | str]:
    usual = row.kind in ("budget", "as configured")
    point = Text(f"{row.algorithm}\n{row.policy if usual else row.kind}")
    label = "inf" if row.epsilon == "inf" else f"{row.epsilon:g}"
    if row.outcome != "ran":
        style = "bold red" if row.outcome == "failed" else ""
        return [point, "" if row.asked is None else label, Text(row.outcome, style=style), Text(row.reason)]
    scores = row.accuracy.named()
    shown = next((key for key in (row.measure, "global", "auc", "mae", "local") if key in scores), "global")
    spread = f" ± {_number(row.std.get(shown))}" if row.seeds > 1 else ""
    return [
        *(point, label + " *" * best, str(row.spent), _number(scores.get(shown)) + spread),
        *(_number(scores.get("local")), _number(scores.get("personal"))),
        *(size(row.bytes), f"{row.seconds:.0f}"),
    ]


def _forms(rows: Iterable[Cell | Point]) -> list[Text]:
    """The forms that policies made algorithms take, once each."""
    sentences: dict[str, None] = {}
    for row in rows:
        if row.form:
            settings = " ".join(f"training.{k}={str(v).lower()}" for k, v in row.form.items())
            sentences[f"{row.algorithm} under policy {row.policy} takes the form {settings}."] = None
    return [Text(text) for text in sentences]


def table(title: str, rows: Iterable[Part | Mapping[str, Any]], keys: str = "") -> list[Table]:
    """Rows under their keys, without a column that is empty everywhere; nothing where there is no row.

    Args:
        keys: which, by blanks; all by default.
    """
    given = [row if isinstance(row, Mapping) else dumped(row) for row in rows]
    heads = keys.split() or list(dict.fromkeys(key for row in given for key in row))
    heads = [head for head in heads if any(row.get(head) not in (None, "", [], {}, False) for row in given)]
    if not heads:
        return []
    names = [head.replace("_", " ") for head in heads]
    return [table_of(title, names, ([_number(row.get(head)) for head in heads] for row in given))]


def dumped(part: Part | None) -> dict[str, Any]:
    return {} if part is None else part.model_dump(by_alias=True, mode="json")


def _number(value: Any) -> str:
    """A value in a cell.

    >>> _number(0.25), _number(None), _number({"server": "inf"}), _number(["a", "b"])
    ('0.2500', '', 'server inf', 'a; b')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_number(one)}" for key, one in value.items())
    if isinstance(value, list):
        return "; ".join(map(_number, value))
    if isinstance(value, float):
        return f"{value:.4f}" if 0.001 <= abs(value) < 10_000 else f"{value:.4g}"
    return "" if value is None else str(value)
