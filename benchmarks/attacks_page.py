"""Writes the tables of ``docs/attacks/all.md`` from what ``attack_table.py`` left.

    python benchmarks/attacks_page.py [--runs runs/attacks] [--seeds 3] [--check]

Every attack of the catalogue has its row. It measures nothing. The figures go to
``benchmarks/results/attacks.json`` first, and the page has them from that file alone; ``--check`` reads no
run, and ends with status 1 where the page has other figures than the file. What defences cost is kept there
as it was measured: each row is two commands, which the page says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import attack_table
from written_pages import markdown, options, with_part, write_or_check

from secure_fedgraph.attacks import ATTACKS, Attack
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.protocol.transcript import SERVER

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "attacks.json", ROOT / "docs" / "attacks" / "all.md"
PARTS = ("attacks", "defences", "costs")
Row = Mapping[str, Any]


def begin(part: str) -> str:
    """The mark in front of a table."""
    return f"<!-- {part}, written by benchmarks/attacks_page.py -->"


def gathered(runs: Path, seeds: int) -> dict[str, Any]:
    """All rows of finished runs, and what defences cost as it is kept.

    Raises:
        SystemExit: where an attack has none, or fewer seeds than were asked for.
    """
    found: dict[str, Any] = {"attacks": [], "defences": []}
    for case in attack_table.CASES:
        rows = _read(runs / f"{case.name}.json")
        for asked, row in zip(case.asked, rows, strict=True):
            about = {key: case.config[key] for key in ("algorithm", "data", "rounds", "policy")}
            found["attacks"].append({**about, "changes": list(case.changes), "aim": asked.aim, **row})
    for defence in attack_table.DEFENCES:
        found["defences"] += _read(runs / f"{defence.name}.json")
    short = [row["attack"] for row in found["attacks"] if len(row["score"]) != seeds]
    if short:
        raise SystemExit(f"not of {seeds} seeds each: {', '.join(short)}")
    kept = json.loads(KEPT.read_text())
    return {**found, "costs": kept["costs"], "seeds": {**kept["seeds"], "attacks": seeds}}


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise SystemExit(f"{path} is not there: run the case first")
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def told(values: Sequence[float | None]) -> str:
    """A mean, and its deviation over seeds where that is 0.01 or more."""
    mean: str = attack_table.told(values)
    return re.sub(r" ± 0\.00\d$", "", mean)


def attack_lines(rows: Sequence[Row]) -> list[str]:
    """Every attack of this package that reads something, with its first case where nothing protects."""
    first = {row["attack"]: row for row in rows[::-1]}
    heads = ("attack", "who", "reads", "learns", "score (trivial guess)", "what stops it")
    reading = (kind for kind in ATTACKS.own.values() if not kind.harms)
    return markdown(heads, (_attack(kind, first.get(kind.id)) for kind in reading))


def _attack(kind: type[Attack], row: Row | None) -> tuple[str, ...]:
    deviates = "" if kind.behaviour == "honest-but-curious" else f" ({kind.behaviour})"
    return (
        f"`{kind.id}`",
        ", ".join(kind.adversaries) + deviates,
        ", ".join(f"`{name}`" for name in kind.reads()),
        kind.summary,
        "" if row is None else _scored(row),
        _stops(kind),
    )


def _scored(row: Row) -> str:
    data = "" if row["data"] == "cora" else f", {row['data']}"
    score = told(row["score"])
    by_default = told(row["defaults"]) if any(row["defaults"]) else "†"
    otherwise = {score: "", "†": "†"}.get(by_default, f"; by default {by_default}")
    guess = told(row["trivial"]).partition(" ")[0]
    said = f"{score} {_cell(row['figure'])} ({guess}){_short_of(row)}"
    return f"`{row['algorithm']}`{data}: {said}{otherwise}"


def _stops(kind: type[Attack]) -> str:
    """What stops an attack, each sentence once, with whom it stops where readers differ."""
    if isinstance(kind.stops, str):
        return kind.stops or "-"
    return "; ".join(f"*{who}:* {what}" for who, what in kind.stops.items())


def _short_of(row: Row) -> str:
    if row["reached"]:
        return ""
    beyond = sum(low > trivial for (low, _), trivial in zip(row["interval"], row["trivial"], strict=False))
    seeds = len(row["score"])
    if row["asked"] is None:
        return f" (**at {beyond} of {seeds} seeds**)"
    return f" (**{row['asked']:g} not reached**)"


def defence_lines(rows: Sequence[Row]) -> list[str]:
    """What attacks reach against a defence: single owners, and what is left, side by side.

    A row of fewer seeds than most have says how many. Those that read nothing share a line at the end.
    """
    seeds = max(len(row["score"]) for row in rows)
    told_rows = [_defended(one, left, seeds) for one, left in _pairs(rows)]
    closed = [row for row in told_rows if not any("**" in cell or "run" in cell for cell in row[2:])]
    heads = ("defence", "attack", "on single owners", "on what is left")
    lines = markdown(heads, (row for row in told_rows if row not in closed))
    said = "; ".join(f"{attack} ({defence})" for defence, attack, *_ in closed)
    return [*lines, *(["", f"Blind, or no better than the guess, on both: {said}."] if closed else [])]


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    for one, left in zip(rows[::2], rows[1::2], strict=True):
        assert (one["aim"], left["aim"]) == (SINGLE_OWNERS, RESIDUAL)
        yield one, left


def _defended(one: Row, left: Row, seeds: int) -> tuple[str, ...]:
    by = "" if one["adversary"] == SERVER else f", {one['adversary']}"
    return one["defence"], f"`{one['attack']}`{by}", _reaches(one, seeds), _reaches(left, seeds)


def _reaches(row: Row, most: int) -> str:
    if not row["score"]:
        return "not run" if any(why.startswith("run") for why in row["otherwise"]) else "blind"
    beyond, seeds = sum(row["leaks"]), len(row["leaks"])
    how = f" ({beyond} of {seeds})" if 0 < beyond < seeds else ""
    of = "" if seeds == most else f" ({seeds} seeds)"
    mark = "**" if beyond else ""
    return f"{mark}{told(row['score'])}{mark}{of}{how}"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def cost_lines(rows: Sequence[Row]) -> list[str]:
    """What defences cost; those with the same two runs share a line."""
    heads = ("defence", "run", "accuracy", "without", "× bytes", "× seconds", "epsilon")
    together: dict[str, list[Row]] = {}
    for row in rows:
        kept = {key: value for key, value in row.items() if key != "defence"}
        together.setdefault(json.dumps(kept, sort_keys=True), []).append(row)
    free = [of for of in together.values() if _is_free(of[0])]
    costly = (of for of in together.values() if of not in free)
    lines = markdown(heads, (_cost([row["defence"] for row in of], of[0]) for of in costly))
    if free:
        seconds = [fmean(of[0]["cpu_ratio"]) for of in free]
        names = ", ".join(row["defence"] for of in free for row in of)
        lines += ["", f"Cost seconds alone, × {min(seconds):.2f} to × {max(seconds):.2f}: {names}."]
    costed = {row["defence"] for row in rows}
    missing = [one.name for one in attack_table.DEFENCES if one.name not in costed]
    return [*lines, *(["", f"Not measured: {', '.join(missing)}."] if missing else [])]


def told_epsilons(found: Mapping[str, float | str]) -> str:
    """``client 6.57, node 15.5``; ``infinite`` where no unit has another."""
    if all(value == "inf" for value in found.values()):
        return "infinite" if found else "-"
    return ", ".join(f"{unit} {float(value):.3g}" for unit, value in found.items())


def _is_free(row: Row) -> bool:
    """Whether a defence leaves accuracy within 0.005 and bytes within 5 %, and claims no epsilon."""
    if not row["seeds"] or told_epsilons(row["epsilon"]) != "infinite":
        return False
    lost = fmean(row["accuracy_without"]) - fmean(row["accuracy"])
    return abs(lost) < 0.005 and abs(fmean(row["bytes_ratio"]) - 1) < 0.05


def _cost(names: Sequence[str], row: Row) -> tuple[str, ...]:
    about = (
        ", ".join(names),
        f"`{row['algorithm']}`, `{' '.join((row['settings'], row['shared'])).strip()}`"
        + ("" if row["without"] == "plaintext" else f" against `{row['without']}`"),
    )
    if not row["seeds"]:
        return (*about, "refused", "", "", "", "")
    measured = ("accuracy", "accuracy_without", "bytes_ratio", "cpu_ratio")
    return (*about, *(told(row[key]) for key in measured), told_epsilons(row["epsilon"]))


def page(kept: Mapping[str, Any]) -> str:
    """The page with the three tables of what is kept."""
    text = PAGE.read_text(encoding="utf-8")
    for part, lines in zip(PARTS, (attack_lines, defence_lines, cost_lines), strict=True):
        text = with_part(text, begin(part), ["", *lines(kept[part]), ""])
    return text


def main() -> None:
    """Gathers the rows, and writes the file and the page."""
    parser = options(__doc__, rows=False, page=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/attacks"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kept", action="store_true", help="write the page from the kept file alone")
    given = parser.parse_args()
    if not (given.check or given.kept):
        kept = gathered(given.runs, given.seeds)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    write_or_check(PAGE, page(json.loads(KEPT.read_text())), given.check)


if __name__ == "__main__":
    main()
