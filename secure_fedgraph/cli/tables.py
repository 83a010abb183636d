"""Results as short tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from pydantic import JsonValue
from rich.table import Table
from rich.text import Text

from secure_fedgraph.cli.screen import Cells, table_of, visible
from secure_fedgraph.experiment.schema import AuditResult, ChannelReport, CompareResult, RunResult
from secure_fedgraph.experiment.schema.audit import Cell, CellSettings, Conformance, Empirical, NotRun
from secure_fedgraph.experiment.schema.compare import Point, WithoutGraph
from secure_fedgraph.experiment.schema.larger_units import why_larger
from secure_fedgraph.experiment.schema.run import NO_LEARNING
from secure_fedgraph.report import beside
from secure_fedgraph.report.cautions import best_alone, headline_of, no_better_than, written
from secure_fedgraph.report.comparing import beside_it
from secure_fedgraph.report.left_out import left_out, left_out_of
from secure_fedgraph.report.measures import MEASURES, NAMES

Shown = list[Table | Text]


def run_lines(run: RunResult) -> Shown:
    """What a user came for: the score, the budget and what was sent, a line each."""
    scores = [f"{name.replace('_', ' ')} {value:.4f}" for name, value in run.accuracy.named().items()]
    spent = [
        f"{unit} {claim.epsilon} (delta {claim.delta:g}, {claim.against})"
        for unit, claim in run.privacy.items()
    ]
    said = [
        f"scores: {', '.join(scores)}" if scores else "",
        f"epsilon: {', '.join(spent)}" if spent else "epsilon: 0, nothing left a client",
        f"sent: {_bytes(run.bytes.up)} up, {_bytes(run.bytes.down)} down",
    ]
    shown: Shown = [_first(run), *(Text(line) for line in said if line)]
    shown += [owners] if (owners := _owners(run)) is not None else []
    shown += [Text(one, style="bold") for one in left_out(run.left_out)]
    if not run.federated:
        shown.append(Text("Not federated: this baseline pools all data.", style="bold"))
    if excess := [row.name for row in run.channels if row.excess]:
        shown.append(Text(f"Channels that show more than they declare (-v says what): {', '.join(excess)}."))
    if run.released_exactly:
        exact = f"{len(run.released_exactly)} kinds of values in result.json have no epsilon: -v names them."
        shown.append(Text(exact, style="dim"))
    return [*shown, *_no_learning(run)]


def run_tables(run: RunResult) -> Shown:
    """Accuracy, privacy by unit, how a budget was split, and what each channel sent."""
    accuracy, config, claims = run.accuracy, run.config, run.privacy
    columns = [
        one.named() if one else {} for one in (accuracy, accuracy.best_by_validation, accuracy.best_on_test)
    ]
    head = table_of(
        f"{config['algorithm']} on {config['data']}, {config['clients']} clients, {config['policy']}",
        ("accuracy", "last round", "best by validation", "best on test"),
        ([name.replace("_", " "), *(_score(column.get(name)) for column in columns)] for name in columns[0]),
    )
    head.caption = _owners(run)
    spent: list[Cells] = [
        [
            *(unit, str(claim.epsilon), str(claim.delta), claim.against, claim.relation, claim.accountant),
            ", ".join(f"{reader} {value}" for reader, value in claim.readers.items()),
        ]
        for unit, claim in claims.items()
    ]
    privacy = table_of(
        "privacy: what the most exposed client has spent",
        ("unit", "epsilon", "delta", "against", "relation", "accountant", "by reader"),
        spent or [["none", "0", "", "", "", "", "nothing left a client"]],
    )
    holders = max((claim.holders for claim in claims.values()), default=1)
    epsilons = {str(unit): claim.epsilon for unit, claim in claims.items()}
    larger = [
        Text(one, style="dim") for one in why_larger(epsilons, str(config.get("unit", "client")), holders)
    ]
    channels = table_of(
        f"on the wire: {_bytes(run.bytes.up)} up, {_bytes(run.bytes.down)} down",
        ("channel", "reveals", "policy", "bytes up", "messages", "epsilon (server)"),
        (
            [row.name, row.reveal, row.policy, _bytes(row.bytes_up), str(row.messages), _of_unit(row)]
            for row in run.channels
        ),
    )
    beyond = [
        Text(f"Channel `{row.name}` shows more than it declares: {'; '.join(row.excess)}.")
        for row in run.channels
        if row.excess
    ]
    notes = Text(f"{run.data.source}, sha256 {run.data.digest[:18]}; {run.evaluation.note}", style="dim")
    if not run.federated:
        notes.append("; not federated: this baseline pools all data", style="bold")
    exact = "; ".join(one.split(":")[0] for one in run.released_exactly)
    exact = f"These values of result.json come from the data and no epsilon covers them: {exact}."
    without = [Text(one, style="bold") for one in left_out(run.left_out)]
    about_noise: Shown = [*larger, *_plan(run), *_no_learning(run)]
    first: Shown = [_first(run), *_metrics(run), head, *without, privacy, *about_noise, channels]
    return [*first, *beyond, Text(exact, style="dim"), notes]


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


def _metrics(run: RunResult) -> Shown:
    """Every metric with its interval, beside what owners do alone."""
    if not run.metrics:
        return []
    alone = run.baselines.alone.metrics  # without any where owners' data are on other machines
    shown = table_of(
        "metrics of all test items together",
        ("metric", "value", "95 % interval", *(["the best alone"] if alone else [])),
        (
            [
                *(name.replace("_", " "), _score(one.value), f"{one.low:.4f} to {one.high:.4f}"),
                *([_score(alone.get(name))] if alone else []),
            ]
            for name, one in run.metrics.items()
        ),
    )
    if "threshold" not in run.metrics:
        return [shown]
    said = (
        "Accuracy names the likelier class; balanced accuracy and F1 the positive one from the threshold on."
    )
    return [shown, Text(said, style="dim")]


def _no_learning(run: RunResult) -> list[Text]:
    """That noise exceeds any signal, where it does."""
    ratio = run.noise_to_signal
    if ratio is None or ratio <= NO_LEARNING:
        return []
    return [
        Text(
            f"The noise is {ratio:.3g} times what the signal can be at most (above {NO_LEARNING:g}): "
            "whatever the scores are, this is no learning. Give a larger epsilon or more owners; "
            "secure-fedgraph plan says what a budget buys.",
            style="bold",
        )
    ]


def _owners(run: RunResult) -> Text | None:
    """The range of the single owners' scores; None where the rounds do not have them."""
    scores = run.rounds[-1].owners if run.rounds else {}
    if len(scores) < 2:
        return None
    low, high = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
    middle = f"median {median(scores.values()):.4f}"
    which = f" of seed {run.seeds[0].seed}" if run.seeds else ""
    lowest, highest = f"lowest {scores[low]:.4f} ({low})", f"highest {scores[high]:.4f} ({high})"
    return Text(f"{len(scores)} owners{which}: {lowest}, {middle}, {highest}")


def _of_unit(row: ChannelReport) -> str:
    """A channel's epsilon, with the unit that its noise was scaled to where that is not the channel's own."""
    if row.epsilon is None:
        return ""
    about = row.epsilon_unit or row.unit
    return str(row.epsilon) + ("" if about == row.unit else f" (one {about})")


def _plan(run: RunResult) -> list[Table]:
    """How the budget is split, where the run had one."""
    if not run.plan or not run.budget:
        return []
    how = "planned" if run.budget.planned else "by hand"
    rows = (
        [
            *(row.channel, row.unit, "" if row.multiplier is None else f"{row.multiplier:.4g}"),
            *(str(row.uses), str(row.epsilon)),
        ]
        for row in run.plan
    )
    title = f"noise, {how}, for epsilon {run.budget.epsilon:g} of one {run.budget.unit}"
    return [table_of(title, ("channel", "noise for one", "multiplier", "uses", "epsilon alone"), rows)]


def audit_tables(audit: AuditResult) -> Shown:
    """The outcome of every cell, and the accuracy behind it."""
    cells = audit.cells
    algorithms = list(dict.fromkeys(cell.algorithm for cell in cells))
    several = len(algorithms) > 1
    outcomes = [
        _outcomes([cell for cell in cells if cell.algorithm == algorithm], f"{algorithm}: " * several)
        for algorithm in algorithms
    ]
    reasons = dict.fromkeys(f"{cell.policy}: {cell.reason}" for cell in cells if cell.reason)
    results = [(row, row.result) for row in audit.runs]
    runs = table_of(
        "accuracy of the runs that were attacked",
        ("policy", "setting", "seed", "global", "local", "bytes up", "seconds"),
        (
            [
                *(f"{row.algorithm}, {row.policy}" if several else row.policy, row.variant, str(one.seed)),
                *(_score(one.accuracy.get("global")), _score(one.accuracy.get("local"))),
                *(_bytes(one.bytes.up), f"{one.seconds or 0.0:.1f}"),
            ]
            for row, one in results
        ),
    )
    return [
        *_forms(cells),
        *outcomes,
        Text("\n".join(reasons), style="dim"),
        *_stops(cells),
        runs,
        *_conformance(audit.conformance),
        *_empirical(audit.empirical),
        *_not_run(audit.not_run),
        *_not_checked(audit.conformance),
        *(Text(f"Broken claim: {text}", style="bold red") for text in audit.broken),
        Text(audit.verdict, style="bold"),
    ]


def _outcomes(cells: Sequence[Cell], head: str) -> Table:
    policies = list(dict.fromkeys(cell.policy for cell in cells))
    title = f"{head}what leaks (1 is exact; in brackets the best trivial guess)"
    table = table_of(title, ("attack", "adversary", "setting", "about", *policies), ())
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for cell in cells:
        about = "each owner" if cell.settings.aim == "each owner" else "all together"
        key = (cell.attack, cell.adversary, _setting(cell.settings), about)
        rows.setdefault(key, {}).setdefault(cell.policy, cell)
    refused = {(*_run_of(cell), cell.policy) for cell in cells if cell.outcome == "refused"}
    above: tuple[str, ...] = ()
    groups = list(dict.fromkeys(key[:2] for key in rows))
    # an attacker's rows stand together; its settings keep the order in which they ran
    for row, by_policy in sorted(rows.items(), key=lambda one: groups.index(one[0][:2])):
        shown = ["" if above[: i + 1] == row[: i + 1] else name for i, name in enumerate(row)]
        run = _run_of(next(iter(by_policy.values())))
        table.add_row(*shown, *(_outcome(by_policy.get(p), (*run, p) in refused) for p in policies))
        above = row
    return table


def _run_of(cell: Cell) -> tuple[str, str, str]:
    """The attack, who runs it and in which setting; a refused run has one cell of it, and no second aim."""
    return cell.attack, cell.adversary, cell.settings.variant


def _empirical(rows: Sequence[Empirical]) -> list[Table]:
    """One row a noise: its claim, what worst cases show, and what they could have shown."""
    if not rows:
        return []
    several, shown = len({row.algorithm for row in rows}) > 1, list[Cells]()
    for row in rows:
        label = f"{row.algorithm}, {row.policy}" if several else row.policy
        figures = ("" if value is None else f"{value:.3g}" for value in (row.claim, row.lower, row.ceiling))
        trials = "" if row.trials is None else str(row.trials)
        verdict = Text(row.outcome, style="bold red" if row.outcome == "broken" else "")
        shown.append([label, row.noise, row.of, *figures, trials, verdict])
    heads = ("policy", "noise", "of", "claimed", "at least", "power", "trials", "verdict")
    return [table_of("epsilon, measured on worst-case neighbours", heads, shown)]


def _conformance(rows: Sequence[Conformance]) -> list[Table]:
    """One row a check: how many runs pass it, and what is wrong with the others."""
    if not rows:
        return []
    heads = ("check", "passed", "leak", "failed", "what it found")
    table = table_of("conformance, with no attack", heads, ())
    for check in dict.fromkeys(row.check for row in rows):
        mine = [row for row in rows if row.check == check]
        counts = [sum(row.outcome == outcome for row in mine) for outcome in ("passed", "leak", "failed")]
        texts = ((row.policy, text) for row in mine for text in row.findings or [row.reason] if text)
        findings = dict.fromkeys(f"{policy}: {text}" for policy, text in texts)
        style = "red" if counts[2] else ""
        table.add_row(check, *(str(n or "") for n in counts), "; ".join(list(findings)[:2]), style=style)
    return [table]


def _not_checked(rows: Sequence[Conformance]) -> list[Text]:
    """A line for each reason that checks were not made, or not of all messages."""
    checks: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.reason:
            checks.setdefault(row.reason, {})[row.check] = None
    return [Text(f"Not checked ({', '.join(of)}): {why}", style="yellow") for why, of in checks.items()]


def _not_run(cells: Sequence[NotRun]) -> list[Table]:
    if not cells:
        return []
    rows: dict[tuple[str, ...], dict[str, None]] = {}
    for cell in cells:
        key = (cell.algorithm, cell.policy, cell.variant, cell.reason)
        rows.setdefault(key, {})[cell.attack.split("-")[0]] = None
    shown = ([*about, ", ".join(attacks), reason] for (*about, reason), attacks in rows.items())
    heads = ("algorithm", "policy", "setting", "attacks", "why")
    return [table_of(f"not run: {len(cells)} cells", heads, shown)]


def _setting(settings: CellSettings) -> str:
    """The variant; with the configured one the settings that decide the attack's reach."""
    extra = {key: value for key, value in settings.others().items() if value is not None}
    if settings.variant != "as configured" or not extra:
        return settings.variant
    told = ", ".join(f"{key.split('.')[-1].replace('_', ' ')} {value}" for key, value in extra.items())
    return f"as configured: {told}"


def _stops(cells: Sequence[Cell]) -> list[Text]:
    """What would stop what leaks, once for the attacks and policies that share the answer."""
    by_remedy: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.leaks and cell.stops:
            names = by_remedy.setdefault((cell.adversary, cell.stops), [])
            if cell.attack not in names:
                names.append(cell.attack)
    return [
        Text(f"What would stop {', '.join(names)} in the hands of the {adversary}: {stops}.", style="red")
        for (adversary, stops), names in by_remedy.items()
    ]


def _outcome(cell: Cell | None, refused: bool) -> Text:
    """One place of the table; where it has no cell, the run was refused, or the cell has no result."""
    if cell is None:
        return Text("refused" if refused else "not run", style="dim")
    if cell.outcome != "score":
        return Text(cell.outcome, style="green" if cell.outcome == "blind" else "dim")
    text, details = f"{cell.score:.3f} ({cell.baseline:.3f})", cell.details
    if "distinct_nodes" in details:
        text += f", {details['exact_rows']:.0f} of {details['asked_for']:.0f} rows,"
        text += f" {details['distinct_nodes']:.0f} nodes"
    return Text(text, style="red" if cell.leaks else "")


def compare_tables(comparison: CompareResult) -> Shown:
    """Every point: accuracy with its interval, what was spent, what leaks, bytes and seconds."""
    config, points = comparison.config, comparison.points
    personal = any(row.accuracy.get("personal") is not None for row in points)
    first = next((row.measure for row in points if row.outcome == "ran"), "accuracy")
    columns = [
        f"epsilon ({config['unit']})",
        "spent",
        first,
        "local",
        *["personal"] * personal,
        "bytes up",
        "s",
    ]
    table = table_of(
        f"{config['data']}, {config['clients']} clients, {_seeds(comparison)}",
        ["point", *columns],
        (_point(row, row.name in comparison.pareto, personal) for row in points),
        whole=["point"],  # two lines: it is read whole on a terminal of 80 columns
    )
    notes = [Text("* no other point that spends as little has a better score", style="dim")]
    if personal:
        notes.append(
            Text("personal: on owners' own test data, combined with what each owner has", style="dim")
        )
    guesses = [row.commonest_class for row in points if row.commonest_class is not None]
    if guesses:
        notes.append(Text(f"always the commonest class: accuracy {_score(guesses[0])}", style="dim"))
    worth = [Text(f"{row.name}: {row.worth}") for row in points if row.worth]
    larger = [Text(one) for one in beside.larger_units(points)]
    without = [Text(one, style="bold") for one in left_out_of(points)]
    return [table, *without, *notes, *_beside(points), *worth, *larger, *_forms(points), *_leaks(points)]


def _beside(points: Sequence[Point]) -> Shown:
    """Each budget beside what it is measured against; why one has no score without links."""
    rows = [row for row in points if row.kind == "budget" and row.outcome == "ran"]
    if not rows:
        return []
    ran, key = [row for row in points if row.outcome == "ran"], _key_of(rows[0])
    others = [beside_it(row, ran, key) for row in rows]
    personal = any(one["personal models"] is not None for one in others)
    names = ["same budget, no graph", "no privacy", *["personal models", "own only"] * personal]
    heads = ("point", "epsilon", "shared", "no graph", "no privacy", *["personal", "own only"] * personal)
    table = table_of(
        "each budget, and what it is measured against",
        heads,
        (
            [f"{row.algorithm}\n{row.policy}", f"{row.epsilon:g}", _score(_shown(row))]
            + [_score(one[name]) for name in names]
            for row, one in zip(rows, others, strict=True)
        ),
        whole=["point"],
    )
    guess = next((guess for one in others if (guess := one["commonest class"]) is not None), None)
    table.add_section()
    for name, score in (("alone", others[0]["alone"]), ("commonest class", guess)):
        if score is not None:
            table.add_row(name, "", _score(score))
    return [table, *(Text(f"no graph: {text}", style="dim") for text in beside.without_graph(rows))]


def _seeds(comparison: CompareResult) -> str:
    """How many there are."""
    return f"{len(comparison.seeds)} seed{'s' * (len(comparison.seeds) != 1)}"


def _shown(row: Point | WithoutGraph | None) -> float | None:
    """The score that is shown first; None where there is none."""
    return None if row is None else row.accuracy.get(_key_of(row))


def _key_of(row: Point | WithoutGraph) -> str:
    """The score that is shown first: the metric that a comparison is by, where the point has it."""
    scores, first = row.accuracy.named(), getattr(row, "measure", "auc")
    return next((key for key in (first, "global", "auc", "mae", "local") if key in scores), "global")


def _point(row: Point, best: bool, personal: bool) -> list[Text | str]:
    usual = row.kind in ("budget", "as configured")
    point = Text(f"{row.algorithm}\n{row.policy if usual else row.kind}")
    label = "inf" if row.epsilon == "inf" else f"{row.epsilon:g}"
    if row.outcome != "ran":
        style = "bold red" if row.outcome == "failed" else ""
        label = "" if row.asked is None else label
        return [point, label, Text(row.outcome, style=style), Text(row.reason, overflow="fold")]
    scores = row.accuracy.named()
    shown = _key_of(row)
    return [
        point,
        label + " *" * best,
        str(row.spent),
        _score(scores.get(shown)) + (f" ± {_score(row.std.get(shown))}" if row.seeds > 1 else ""),
        _score(scores.get("local")),
        *[_score(scores.get("personal"))] * personal,
        _bytes(row.bytes),
        f"{row.seconds:.0f}",
    ]


def _forms(rows: Iterable[Cell | Point]) -> list[Text]:
    """The forms that policies made algorithms take, once each."""
    sentences: dict[str, None] = {}
    for row in rows:
        if row.form:
            settings = " ".join(f"training.{k}={str(v).lower()}" for k, v in row.form.items())
            sentences[f"{row.algorithm} under policy {row.policy} takes the form {settings}."] = None
    return [Text(text) for text in sentences]


def _leaks(points: Sequence[Point]) -> Shown:
    """What attacks made of each point; in a word whether that beats the best trivial guess."""
    failed = [
        Text(f"Attacks on {row.name} failed: {row.leak_failed}", style="bold red")
        for row in points
        if row.leak_failed is not None
    ]
    if not any(row.leak for row in points):
        return [*failed]
    shown: list[Cells] = []
    for row in points:
        for attack, value in row.leak.items():
            leak = row.leaks.get(attack)
            score = f"{value:.3f}" if isinstance(value, float) else value
            guess = "" if leak is None else f"{leak.baseline:.3f}"
            leaks = leak is not None and leak.leaks
            shown.append([row.name, attack, score, guess, Text("leaks" if leaks else "", style="red")])
    title = "what attacks make of single owners, on the first seed (1 is exact)"
    return [table_of(title, ("point", "attack", "score", "best trivial guess", ""), shown), *failed]


def listing_lines(rows: Sequence[Mapping[str, JsonValue]]) -> list[str]:
    """A line a name: what it is."""
    names = [visible(str(next(iter(row.values())))) for row in rows]
    width = max(map(len, names), default=0)
    said = (visible(str(row.get("summary", ""))).replace("\n", " ") for row in rows)
    return [f"{name:{width}}  {text}".rstrip() for name, text in zip(names, said, strict=True)]


def listing_table(what: str, rows: Sequence[Mapping[str, JsonValue]]) -> Table:
    """One row a name: what it is, and below it everything else, so that it can be read at any width."""
    table = Table(title=what, show_header=False, show_lines=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for row in rows:
        name, *others = row.items()
        details = [(key, value) for key, value in others if key != "summary" and value not in ([], {})]
        rest = [Text.assemble((f"{key}:", "dim"), f" {_listed(value)}") for key, value in details]
        summary = Text(visible(str(row.get("summary", ""))))
        table.add_row(Text(visible(str(name[1]))), Text("\n").join([summary, *rest]))
    return table


def _listed(value: JsonValue) -> str:
    return visible(", ".join(map(str, value)) if isinstance(value, list | dict) else str(value))


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _bytes(count: int | None) -> str:
    """Decimal units, as networks count.

    >>> _bytes(1234567)
    '1.2 MB'
    """
    if count is None:
        return ""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"
