"""Writes the papers' tables into ``docs/reproducing.md``, from the files of finished tables.

    python benchmarks/reproduced.py [--keep runs/reproduce/fedsage-2.json] [--check]
                                    [--pack runs/reproduce] [--unpack runs/reproduce]

``--keep`` copies a finished table's file to ``benchmarks/results/reproduce/`` first. ``--check`` changes
nothing and ends with status 1 where the page is not what the files make it. Tables take days: ``--pack``
leaves what a table needs of every finished run in ``benchmarks/results/reproduce/runs.jsonl``, and
``--unpack`` lays these runs out where ``reproduce`` goes on from them, on another machine too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from written_pages import options, with_part, write_or_check

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "reproduce", ROOT / "docs" / "reproducing.md"
RUNS = KEPT / "runs.jsonl"
NEEDED = ("schema", "config", "seed", "versions", "metric", "accuracy", "commonest_class", "privacy", "bytes")
"""What a table, or the check that a run is whole, reads of a result; of its rounds the last."""
BEGIN = "<!-- written by benchmarks/reproduced.py -->"
SIGNS = {"reached": "", "better": " +", "missed": " (**missed**)", "beside": "", "to run": ""}
SHOWN = 0.02
"""The least standard error that a cell shows."""
BY_ROUND = {"apflgate": "algorithms/apflgate.md#accuracy", "fedego": "algorithms/fedego.md#accuracy"}
"""Papers whose figures ``by_round.py`` writes into pages of their own."""
ROUNDS = {
    "last": "last round",
    "best_by_validation": "best round by validation",
    "best_on_test": "best round on test",
}


def keep(path: Path) -> None:
    """Copies a whole table's file.

    Raises:
        SystemExit: for a part of a table.
    """
    table = json.loads(path.read_text())
    if table["part"]:
        sys.exit(f"{path} is a part of a table: keep whole tables only")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{table['table']}.json").write_text(json.dumps(table, indent=1) + "\n")


def pack(out: Path) -> None:
    """Adds every finished run of a folder to the packed ones, each as one line."""
    runs = {line["run"]: line for line in _packed()}
    for path in sorted((out / "runs").glob("*/seed-*/result.json")):
        result = json.loads(path.read_text())
        kept = {key: result[key] for key in (*NEEDED, "seconds") if key in result}
        runs[str(path.parent.relative_to(out))] = {
            "run": str(path.parent.relative_to(out)),
            "key": json.loads((path.parent / "key.json").read_text()),
            "code": json.loads((path.parent / "code.json").read_text()),
            "result": {**kept, "rounds": result["rounds"][-1:]},
        }
    KEPT.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(runs[name], separators=(",", ":")) + "\n" for name in sorted(runs))
    RUNS.write_text("".join(lines))


def unpack(out: Path) -> None:
    """Lays the packed runs out in a folder. Runs that are there stay as they are."""
    for line in _packed():
        folder = out / line["run"]
        if not (folder / "result.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("code", "key", "result"):
                (folder / f"{name}.json").write_text(json.dumps(line[name]))


def _packed() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RUNS.read_text().splitlines()] if RUNS.is_file() else []


def page() -> str:
    """The page as the files make it."""
    text = PAGE.read_text(encoding="utf-8")
    all_kept = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*.json"))]
    kept = [table for table in all_kept if any(cell["paper"] is not None for cell in table["cells"])]
    papers = ["", *(table["paper"] for table in kept)]
    tables = [line for before, table in zip(papers, kept, strict=False) for line in lines(table, before)]
    return with_part(text, BEGIN, tables) if tables else text


def lines(table: dict[str, Any], cited: str = "") -> Iterator[str]:
    """One table as Markdown: ours, the paper's in brackets. The paper ``cited`` last is not cited again."""
    waiting = {cell["column"] for cell in table["cells"]} - {c["column"] for c in table["cells"] if c["ours"]}
    columns = list(dict.fromkeys(c["column"] for c in table["cells"] if c["column"] not in waiting))
    rows = list(dict.fromkeys(cell["row"] for cell in table["cells"]))
    by_place = {(cell["row"], cell["column"]): cell for cell in table["cells"]}
    share = table["share_reached"]
    by_last = any(cell["measure"] == "fairness" for cell in table["cells"])
    fairness = " (fairness by the last round)" if by_last else ""
    yield f"\n### {table['table']}: {table['title']}\n"
    within = "" if share is None else f", {share:.0%} within tolerance"
    chosen = ROUNDS[table["selection"]].capitalize()
    paper = "" if table["paper"] == cited else f"{table['paper']}. "
    yield f"{paper}{chosen}{fairness}, up to {len(table['seeds'])} seeds{within}.\n"
    if elsewhere := BY_ROUND.get(table["table"].partition("-")[0]):
        yield f"[Ours and the paper's, by which round]({elsewhere})."
    else:
        yield f"| | {' | '.join(columns)} |"
        yield f"|---|{'---|' * len(columns)}"
        for row in rows:
            yield f"| {row} | {' | '.join(_cell(by_place.get((row, column)), table) for column in columns)} |"
    to_run = [
        column
        for column in dict.fromkeys(c["column"] for c in table["cells"] if _possible(c))
        if column in waiting
    ]
    reasons = dict.fromkeys(
        f"{cell['column']}: {cell['reason']}" for cell in table["cells"] if cell["mark"] == "not possible"
    )
    for said, what in (("To run", to_run), ("Not possible", reasons)):
        if what:
            yield f"\n{said}: {'; '.join(what)}."


def _possible(cell: dict[str, Any]) -> bool:
    return bool(cell["mark"] != "not possible")


def _cell(cell: dict[str, Any] | None, table: dict[str, Any]) -> str:
    if cell is None or not _possible(cell):
        return ""
    score = cell["ours"].get(table["selection"]) or cell["ours"].get("last")
    paper = "" if cell["paper"] is None else f" [{cell['paper']:.3f}]"
    if score is None:
        return f"{cell['mark']}{paper}"
    error = score["standard_error"]
    spread = "¹" if error is None else f" ± {error:.3f}" if error >= SHOWN else ""
    return f"{score['mean']:.3f}{spread}{paper}{SIGNS.get(cell['mark'], '')}"


def main() -> None:
    """The command line."""
    asked = options(__doc__, rows=False, page=True)
    asked.add_argument("--keep", type=Path, action="append", default=[])
    asked.add_argument("--pack", type=Path)
    asked.add_argument("--unpack", type=Path)
    given = asked.parse_args()
    if given.pack:
        pack(given.pack)
    if given.unpack:
        unpack(given.unpack)
    for path in given.keep:
        keep(path)
    write_or_check(PAGE, page(), given.check)


if __name__ == "__main__":
    main()
