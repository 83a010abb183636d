"""Writes the tables of ``docs/attacks/all.md`` from what ``attack_table.py`` and ``attack_defences.py`` left.

    python benchmarks/attacks_page.py [--table runs/attacks] [--defences runs/defences] [--seeds 3]
                                       [--cost-seeds 3] [--check]

It measures nothing. The rows go to ``benchmarks/results/attacks.json`` first, and the page is made from that
file alone; ``--check`` reads no run, and ends with status 1 where the page has other figures than the file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attack_defences
import attack_table
from defence_costs import rows as cost_rows
from defence_costs import told_epsilons
from written_pages import with_part, write_or_check

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid.choices import AS_CONFIGURED
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "attacks.json", ROOT / "docs" / "attacks" / "all.md"
PARTS = ("attacks", "defences", "costs")
Row = Mapping[str, Any]


def begin(part: str) -> str:
    """The mark in front of a table."""
    return f"<!-- {part}, written by benchmarks/attacks_page.py -->"


def gathered(table: Path, defences: Path, seeds: int, cost_seeds: int) -> dict[str, Any]:
    """All rows of finished runs.

    Raises:
        SystemExit: where an attack has none, or any has fewer seeds than were asked for.
    """
    found: dict[str, Any] = {"attacks": [], "defences": []}
    for case in attack_table.CASES:
        rows = _read(table / f"{case.name}.json")
        for asked, row in zip(case.asked, rows, strict=True):
            about = {key: case.config[key] for key in ("algorithm", "data", "rounds")}
            more = {"policy": case.policy, "changes": list(case.changes), "aim": asked.aim}
            found["attacks"].append({**about, **more, **row})
    for defence in attack_defences.DEFENCES:
        found["defences"] += _read(defences / f"{defence.name}.json")
    pairs = [one.pair for one in attack_defences.DEFENCES]
    found["costs"] = cost_rows(pairs, cost_seeds, defences / "costs")
    short = [row["attack"] for row in found["attacks"] if len(row["score"]) != seeds]
    short += [row["defence"] for row in found["costs"] if row["seeds"] and len(row["seeds"]) != cost_seeds]
    if short:
        raise SystemExit(f"not of {seeds} seeds each, costs {cost_seeds}: {', '.join(short)}")
    found["seeds"] = {"attacks": seeds, "costs": cost_seeds}
    return found


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise SystemExit(f"{path} is not there: run the case first")
    rows: list[dict[str, Any]] = json.loads(path.read_text())
    return rows


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows)]


def told(values: Sequence[float | None]) -> str:
    """A mean and its deviation over seeds, where it has one that shows."""
    return attack_table.told(values).removesuffix(" ± 0.000")


def attack_lines(rows: Sequence[Row]) -> list[str]:
    """What attacks reach where nothing protects."""
    heads = ("attack", "by", "on", "settings", "figure", "asked", "score", "trivial", "at the defaults")
    return _table(heads, (_attack(row) for row in rows))


def _attack(row: Row) -> tuple[str, ...]:
    masked = ", masked" if row["policy"] == "masked" else ""
    settings = row["settings"].partition(", ")[0] if " plays" in row["settings"] else row["settings"]
    if settings == AS_CONFIGURED:  # as the case is, which is what its run is
        changes = "".join(f", `{one}`" for one in row["changes"])
        settings = f"{row['rounds']} round{'s' * (row['rounds'] != 1)}{changes}"
    return (
        f"`{row['attack']}`" + (", what is left" if row["aim"] == RESIDUAL else ""),
        _who(row),
        f"`{row['algorithm']}`, {row['data']}{masked}",
        settings,
        _cell(row["figure"]),
        _asked(row),
        told(row["score"]),
        told(row["trivial"]),
        told(row["defaults"]) if row["defaults"] else "blind",
    )


def _who(row: Row) -> str:
    behaviour = ATTACKS[row["attack"]].behaviour
    return row["adversary"] + ("" if behaviour == "honest-but-curious" else f" ({behaviour})")


def _asked(row: Row) -> str:
    asked = "beyond trivial" if row["asked"] is None else f"{row['asked']:g}"
    if row["reached"]:
        return asked
    beyond = sum(low > trivial for (low, _), trivial in zip(row["interval"], row["trivial"], strict=False))
    seeds = len(row["score"])
    at_some = row["asked"] is None and 0 < beyond < seeds
    return f"{asked}: **{f'at {beyond} of {seeds} seeds' if at_some else 'not reached'}**"


def defence_lines(rows: Sequence[Row]) -> list[str]:
    """What attacks reach against a defence: single owners, and what is left, side by side.

    A row of fewer seeds than most have says how many.
    """
    return _table(
        ("defence", "attack", "by", "on single owners", "on what is left", "trivial"),
        (_defended(one, left, max(len(row["score"]) for row in rows)) for one, left in _pairs(rows)),
    )


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    for one, left in zip(rows[::2], rows[1::2], strict=True):
        assert (one["aim"], left["aim"]) == (SINGLE_OWNERS, RESIDUAL)
        yield one, left


def _defended(one: Row, left: Row, seeds: int) -> tuple[str, ...]:
    first = one if one["score"] else left
    return (
        one["defence"],
        f"`{one['attack']}`",
        one["adversary"],
        _reaches(one, seeds),
        _reaches(left, seeds),
        told(first["trivial"]),
    )


def _reaches(row: Row, most: int) -> str:
    if not row["score"]:
        return "not run" if any(why.startswith("run") for why in row["otherwise"]) else "blind"
    beyond, seeds = sum(row["leaks"]), len(row["leaks"])
    how = (
        "" if not beyond else ", **beyond trivial**" + ("" if beyond == seeds else f" at {beyond} of {seeds}")
    )
    of = "" if seeds == most else f" ({seeds} seeds)"
    return f"{told(row['score'])} {_cell(row['figure'])}{of}{how}"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def cost_lines(rows: Sequence[Row]) -> list[str]:
    """What defences cost; those with the same two runs share a line."""
    heads = ("defence", "of", "is", "beside", "accuracy", "without", "bytes", "processor seconds", "epsilon")
    together: dict[str, list[Row]] = {}
    for row in rows:
        kept = {key: value for key, value in row.items() if key != "defence"}
        together.setdefault(json.dumps(kept, sort_keys=True), []).append(row)
    lines = _table(heads, (_cost([row["defence"] for row in of], of[0]) for of in together.values()))
    costed = {row["defence"] for row in rows}
    missing = [one.name for one in attack_defences.DEFENCES if one.name not in costed]
    return [*lines, *(["", f"Not measured: {', '.join(missing)}."] if missing else [])]


def _cost(names: Sequence[str], row: Row) -> tuple[str, ...]:
    about = (
        ", ".join(names),
        f"`{row['algorithm']}`, {row['data']}" + (f", `{row['shared']}`" if row["shared"] else ""),
        f"`{row['settings']}`",
        f"`{row['without']}`",
    )
    if not row["seeds"]:
        return (*about, "refused", "", "", "", "")
    ratios = (" × ".join(("", told(row[key]))).strip() for key in ("bytes_ratio", "cpu_ratio"))
    return (
        *about,
        told(row["accuracy"]),
        told(row["accuracy_without"]),
        *ratios,
        told_epsilons(row["epsilon"]),
    )


def page(kept: Mapping[str, Any]) -> str:
    """The page with the three tables of what is kept."""
    text = PAGE.read_text(encoding="utf-8")
    for part, lines in zip(PARTS, (attack_lines, defence_lines, cost_lines), strict=True):
        text = with_part(text, begin(part), ["", *lines(kept[part]), ""])
    return text


def main() -> None:
    """Gathers the rows, and writes the file and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=Path("runs/attacks"))
    parser.add_argument("--defences", type=Path, default=Path("runs/defences"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cost-seeds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="compare the page with the file")
    given = parser.parse_args()
    if not given.check:
        kept = gathered(given.table, given.defences, given.seeds, given.cost_seeds)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    write_or_check(PAGE, page(json.loads(KEPT.read_text())), given.check)


if __name__ == "__main__":
    main()
