"""Results as short tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from rich.table import Table
from rich.text import Text

from secure_fedgraph.cli.screen import visible
from secure_fedgraph.experiment.schema import ChannelReport, RunResult


def run_tables(result: dict[str, Any]) -> list[Any]:
    """Accuracy, privacy by unit, how a budget was split, and what each channel sent."""
    run = RunResult.model_validate(result)
    accuracy, config = run.accuracy, run.config
    head = Table(
        title=f"{config['algorithm']} on {config['data']}, {config['clients']} clients, {config['policy']}"
    )
    for column in ("accuracy", "last round", "best by validation", "best on test"):
        head.add_column(column)
    columns = [
        one.named() if one else {} for one in (accuracy, accuracy.best_by_validation, accuracy.best_on_test)
    ]
    for score in columns[0]:
        head.add_row(score.replace("_", " "), *(_score(column.get(score)) for column in columns))

    head.caption = _owners(run)

    privacy = Table(title="privacy: what the most exposed client has spent")
    for column in ("unit", "epsilon", "delta", "against", "relation", "accountant", "by reader"):
        privacy.add_column(column)
    for unit, claim in run.privacy.items():
        readers = ", ".join(f"{reader} {value}" for reader, value in claim.readers.items())
        spent = (str(claim.epsilon), str(claim.delta))
        privacy.add_row(unit, *spent, claim.against, claim.relation, claim.accountant, readers)
    if not run.privacy:
        privacy.add_row("none", "0", "", "", "", "", "nothing left a client")

    channels = Table(title=f"on the wire: {_bytes(run.bytes.up)} up, {_bytes(run.bytes.down)} down")
    for column in (
        "channel",
        "reveals",
        "policy",
        "bytes up",
        "messages",
        "epsilon (server)",
    ):
        channels.add_column(column)
    for row in run.channels:
        sent = (_bytes(row.bytes_up), str(row.messages))
        channels.add_row(row.name, row.reveal, row.policy, *sent, _of_unit(row))
    beyond = [
        Text(f"Channel `{row.name}` shows more than it declares: {'; '.join(row.excess)}.")
        for row in run.channels
        if row.excess
    ]
    notes = Text(f"{run.data.source}, sha256 {run.data.digest[:18]}; {run.evaluation.note}", style="dim")
    if not run.federated:
        notes.append("; not federated: this baseline pools all data", style="bold")
    exact = Text(
        "These values of result.json come from the data and no epsilon covers them: "
        + "; ".join(one.split(":")[0] for one in run.released_exactly)
        + ".",
        style="dim",
    )
    return [head, privacy, *_plan(run), channels, *beyond, exact, notes]


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
    table = Table(title=f"noise, {how}, for epsilon {run.budget.epsilon:g} of one {run.budget.unit}")
    for column in ("channel", "noise for one", "multiplier", "uses", "epsilon alone"):
        table.add_column(column)
    for row in run.plan:
        noise = "" if row.multiplier is None else f"{row.multiplier:.4g}"
        table.add_row(row.channel, row.unit, noise, str(row.uses), str(row.epsilon))
    return [table]


def audit_tables(result: dict[str, Any]) -> list[Any]:
    """The outcome of every cell, and the accuracy behind it."""
    algorithms = list(dict.fromkeys(cell.get("algorithm") for cell in result["cells"]))
    outcomes: list[Any] = []
    for algorithm in algorithms:
        mine = [cell for cell in result["cells"] if cell.get("algorithm") == algorithm]
        outcomes.append(_outcomes(mine, f"{algorithm}: " * (len(algorithms) > 1)))
    reasons = dict.fromkeys(f"{c['policy']}: {c['reason']}" for c in result["cells"] if c["reason"])
    runs = Table(title="accuracy of the runs that were attacked")
    for column in ("policy", "setting", "seed", "global", "local", "bytes up", "seconds"):
        runs.add_column(column)
    for row in result["runs"]:
        one = row["result"]
        label = f"{row['algorithm']}, " if len(algorithms) > 1 else ""
        runs.add_row(
            label + row["policy"],
            row["variant"],
            str(one["seed"]),
            _score(one["accuracy"].get("global")),
            _score(one["accuracy"].get("local")),
            _bytes(one["bytes"]["up"]),
            f"{one['seconds']:.1f}",
        )
    notes = Text("\n".join(reasons), style="dim")
    more = [
        *_conformance(result.get("conformance") or []),
        *_empirical(result.get("empirical") or []),
        *_not_run(result.get("not_run") or []),
    ]
    broken = [Text(f"Broken claim: {text}", style="bold red") for text in result.get("broken") or []]
    verdict = Text(result["verdict"], style="bold")
    forms = _forms(result["cells"])
    return [*forms, *outcomes, notes, *_stops(result["cells"]), runs, *more, *broken, verdict]


def _outcomes(cells: list[dict[str, Any]], head: str) -> Table:
    policies = list(dict.fromkeys(cell["policy"] for cell in cells))
    table = Table(title=f"{head}what leaks (1 is exact; in brackets the best trivial guess)")
    for column in ("attack", "adversary", "setting", "about", *policies):
        table.add_column(column)
    rows: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for cell in cells:
        about = "each owner" if cell["settings"]["aim"] == "each owner" else "all together"
        key: tuple[str, ...] = (cell["attack"], cell["adversary"], _setting(cell), about)
        rows.setdefault(key, {}).setdefault(cell["policy"], cell)
    above: tuple[str, ...] = ()
    groups = list(dict.fromkeys(key[:2] for key in rows))
    # an attacker's rows stand together; its settings keep the order in which they ran
    for key, by_policy in sorted(rows.items(), key=lambda row: groups.index(row[0][:2])):
        shown = ["" if above[: i + 1] == key[: i + 1] else name for i, name in enumerate(key)]
        table.add_row(*shown, *(_outcome(by_policy.get(policy)) for policy in policies))
        above = key
    return table


def _empirical(rows: list[dict[str, Any]]) -> list[Any]:
    """One row a noise: its claim, what worst cases show, and what they could have shown."""
    if not rows:
        return []
    table = Table(title="epsilon, measured on worst-case neighbours")
    for column in ("policy", "noise", "of", "claimed", "at least", "power", "trials", "verdict"):
        table.add_column(column)
    several = len({row.get("algorithm") for row in rows}) > 1
    for row in rows:
        label = f"{row['algorithm']}, {row['policy']}" if several else row["policy"]
        figures = [f"{row[key]:.3g}" if key in row else "" for key in ("claim", "lower", "ceiling")]
        style = "bold red" if row["outcome"] == "broken" else ""
        table.add_row(
            label,
            row["noise"],
            row["of"],
            *figures,
            str(row.get("trials", "")),
            Text(row["outcome"], style=style),
        )
    return [table]


def _conformance(rows: list[dict[str, Any]]) -> list[Any]:
    """One row a check: how many runs pass it, and what is wrong with the others."""
    if not rows:
        return []
    table = Table(title="conformance, with no attack")
    for column in ("check", "passed", "leak", "failed", "what it found"):
        table.add_column(column)
    for check in dict.fromkeys(row["check"] for row in rows):
        mine = [row for row in rows if row["check"] == check]
        counts = [sum(row["outcome"] == outcome for row in mine) for outcome in ("passed", "leak", "failed")]
        texts = ((row["policy"], f) for row in mine for f in row["findings"] or [row.get("reason")] if f)
        findings = dict.fromkeys(f"{policy}: {text}" for policy, text in texts)
        style = "red" if counts[2] else ""
        table.add_row(check, *(str(n or "") for n in counts), "; ".join(list(findings)[:2]), style=style)
    return [table]


def _not_run(cells: list[dict[str, Any]]) -> list[Any]:
    if not cells:
        return []
    table = Table(title=f"not run: {len(cells)} cells")
    for column in ("algorithm", "policy", "setting", "attacks", "why"):
        table.add_column(column)
    rows: dict[tuple[str, ...], dict[str, None]] = {}
    for cell in cells:
        key = tuple(str(cell[name]) for name in ("algorithm", "policy", "variant", "reason"))
        rows.setdefault(key, {})[cell["attack"].split("-")[0]] = None
    for (algorithm, policy, variant, reason), attacks in rows.items():
        table.add_row(algorithm, policy, variant, ", ".join(attacks), reason)
    return [table]


def _setting(cell: dict[str, Any]) -> str:
    """The variant; with the configured one the settings that decide the attack's reach."""
    extra = {k: v for k, v in cell["settings"].items() if k not in ("aim", "variant") and v is not None}
    if cell["settings"]["variant"] != "as configured" or not extra:
        return str(cell["settings"]["variant"])
    settings = ", ".join(f"{key.split('.')[-1].replace('_', ' ')} {value}" for key, value in extra.items())
    return f"as configured: {settings}"


def _stops(cells: list[dict[str, Any]]) -> list[Text]:
    """What would stop what leaks, once for the attacks and policies that share the answer."""
    by_remedy: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell["leaks"] and cell.get("stops"):
            names = by_remedy.setdefault((cell["adversary"], cell["stops"]), [])
            if cell["attack"] not in names:
                names.append(cell["attack"])
    return [
        Text(f"What would stop {', '.join(names)} in the hands of the {adversary}: {stops}.", style="red")
        for (adversary, stops), names in by_remedy.items()
    ]


def _outcome(cell: dict[str, Any] | None) -> Text:
    if cell is None:
        return Text("refused", style="dim")
    if cell["outcome"] != "score":
        return Text(cell["outcome"], style="green" if cell["outcome"] == "blind" else "dim")
    text = f"{cell['score']:.3f} ({cell['baseline']:.3f})"
    details = cell.get("details") or {}
    if "distinct_nodes" in details:
        text += f", {details['exact_rows']:.0f} of {details['asked_for']:.0f} rows,"
        text += f" {details['distinct_nodes']:.0f} nodes"
    return Text(text, style="red" if cell["leaks"] else "")


def compare_tables(result: dict[str, Any]) -> list[Any]:
    """Every point: accuracy with its interval, what was spent, what leaks, bytes and seconds."""
    config, best = result["config"], set(result["pareto"])
    unit = config["unit"]
    leaks = list(dict.fromkeys(attack for row in result["points"] for attack in row.get("leak") or {}))
    table = Table(title=f"{config['data']}, {config['clients']} clients, {len(result['seeds'])} seeds")
    table.add_column("point", no_wrap=True)  # two lines: it is read whole on a terminal of 80 columns
    for column in (f"epsilon ({unit})", "spent", "accuracy", "local", "bytes up", "s"):
        table.add_column(column)
    for row in result["points"]:
        usual = row["kind"] in ("budget", "as configured")
        point = Text(f"{row['algorithm']}\n{row['policy'] if usual else row['kind']}")
        label = "inf" if row["epsilon"] == "inf" else f"{row['epsilon']:g}"
        if row["outcome"] != "ran":
            style = "bold red" if row["outcome"] == "failed" else ""
            label = "" if row.get("budget", row["epsilon"]) is None else label
            table.add_row(
                point, label, Text(row["outcome"], style=style), Text(row["reason"], overflow="fold")
            )
            continue
        scores, spread = row["accuracy"], row["std"]
        shown = next(k for k in ("global", "auc", "mae", "local") if k in scores)
        table.add_row(
            point,
            label + (" *" if row["name"] in best else ""),
            str(row["spent"]),
            f"{scores[shown]:.4f} ± {spread[shown]:.4f}",
            _score(scores.get("local")),
            _bytes(row["bytes"]),
            f"{row['seconds']:.0f}",
        )
    notes = Text("* no other point that spends as little has a better score", style="dim")
    return [table, notes, *_forms(result["points"]), *_leaks(result["points"], leaks)]


def _forms(rows: Iterable[Mapping[str, Any]]) -> list[Text]:
    """The forms that policies made algorithms take, once each."""
    sentences: dict[str, None] = {}
    for row in rows:
        if row.get("form"):
            settings = " ".join(f"training.{k}={str(v).lower()}" for k, v in row["form"].items())
            sentences[f"{row['algorithm']} under {row['policy']} takes the form {settings}."] = None
    return [Text(text) for text in sentences]


def _leaks(points: list[dict[str, Any]], attacks: list[str]) -> list[Any]:
    """What attacks made of each point; in a word whether that beats the best trivial guess."""
    failed = [
        Text(f"Attacks on {row['name']} failed: {row['leak_failed']}", style="bold red")
        for row in points
        if "leak_failed" in row
    ]
    if not attacks:
        return failed
    table = Table(title="what attacks make of single owners, on the first seed (1 is exact)")
    for column in ("point", "attack", "score", "best trivial guess", ""):
        table.add_column(column)
    for row in points:
        for attack, value in (row.get("leak") or {}).items():
            leak = row.get("leaks", {}).get(attack)
            score = f"{value:.3f}" if isinstance(value, float) else str(value)
            guess = "" if leak is None else f"{leak['baseline']:.3f}"
            leaks = leak is not None and leak["leaks"]
            table.add_row(row["name"], attack, score, guess, Text("leaks" if leaks else "", style="red"))
    return [table, *failed]


def listing_table(what: str, rows: list[dict[str, Any]]) -> Table:
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


def _listed(value: Any) -> str:
    return visible(", ".join(map(str, value)) if isinstance(value, list | dict) else str(value))


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _bytes(count: int) -> str:
    """Decimal units, as networks count.

    >>> _bytes(1234567)
    '1.2 MB'
    """
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"
