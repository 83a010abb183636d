"""Breaks the core on purpose, one line at a time, and names the test that notices.

    pip install coverage
    python benchmarks/core_breaks.py --trace           # which test runs which line of core/, once
    python benchmarks/core_breaks.py --breaks 300      # resumable: what was tried is kept

A break turns a comparison, drops a refusal or a statement, or moves a number, in a copy of the checkout. The
tests that run the line are tried, those that run fewest lines first, until one fails. ``core_breaks.json``
keeps a row a break: where, what, and the test that failed; none where all passed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = Path("secure_fedgraph/core")
TESTS = ("tests/core", "tests/top", "tests/adversary", "tests/privacy", "tests/vectors", "tests/running")
KEPT = ROOT / "benchmarks" / "results" / "core_breaks.json"
TRACE = ROOT / ".coverage.core"
AT_ONCE, SECONDS = 40, 240
"""Tests that one break is tried on, and seconds that they may take."""
TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def broken(node: ast.AST) -> tuple[str, ast.AST] | None:
    """What a node becomes, and in which words; None where it stays."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in TURNED:
        ops = [TURNED[type(node.ops[0])](), *node.ops[1:]]
        return "another comparison", ast.Compare(node.left, ops, node.comparators)
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return "and for or", ast.BoolOp(other, node.values)
    if isinstance(node, ast.If):
        return "the other branch", ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return "no such statement", ast.Pass()
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        other_op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return "minus for plus", ast.BinOp(node.left, other_op, node.right)
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 < node.value < 2**20:
        return "a number more", ast.Constant(node.value + 1)
    return None


def breaks(path: Path) -> Iterator[tuple[int, int, str]]:
    """Line, number among the file's nodes and words of every break of a file."""
    for number, node in enumerate(ast.walk(ast.parse((ROOT / path).read_text("utf-8")))):
        if hasattr(node, "lineno") and (made := broken(node)) is not None:
            yield node.lineno, number, made[0]


def with_break(path: Path, number: int) -> str:
    """The file's code with that break."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    wanted = list(ast.walk(tree))[number]

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            made = broken(node) if node is wanted else None
            return ast.copy_location(made[1], node) if made else self.generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Swap().visit(tree)))


def trace() -> None:
    """Runs the tests under coverage, which notes the test that ran each line."""
    settings = Path(tempfile.mkdtemp()) / "coveragerc"
    settings.write_text(f"[run]\ndynamic_context = test_function\nsource = {CORE}\ndata_file = {TRACE}\n")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q"]
    subprocess.run([*command, "-p", "no:cacheprovider", "-m", "not slow", *TESTS], cwd=ROOT, check=False)


def tests_by_line() -> dict[tuple[str, int], list[str]]:
    """File and line -> ``test_module.test_function`` that run it, the most special first."""
    from coverage import CoverageData  # not a package of this project: only this command needs it

    data, found = CoverageData(str(TRACE)), defaultdict(list)
    data.read()
    for name in data.measured_files():
        for line, contexts in data.contexts_by_lineno(name).items():
            found[str(Path(name).relative_to(ROOT)), line] = [one for one in contexts if one]
    runs: dict[str, int] = defaultdict(int)
    for contexts in found.values():
        for one in contexts:
            runs[one] += 1
    return {place: sorted(contexts, key=runs.__getitem__) for place, contexts in found.items()}


def noticed(folder: Path, tests: list[str]) -> str:
    """The test that fails in a folder, of those that are named; empty where all pass."""
    modules = {path.stem: path.relative_to(ROOT) for top in TESTS for path in (ROOT / top).rglob("test_*.py")}
    functions = defaultdict(set)
    for one in tests[:AT_ONCE]:
        module, *rest = one.removeprefix("tests.").split(".")
        if module in modules:
            functions[modules[module]].add(rest[-1])
    chosen = [f"{path}" for path in functions]
    words = " or ".join(sorted({name for names in functions.values() for name in names}))
    if not chosen:
        return ""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *chosen, "-k"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            [*command, words], cwd=folder, env=environment, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "it does not end"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" ")[1] if failed else ("" if done.returncode == 0 else "it does not start")


def main() -> None:
    """Traces, or breaks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trace", action="store_true")
    options.add_argument("--breaks", type=int, default=300)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    if given.trace:
        trace()
        return
    by_line = tests_by_line()
    files = sorted(path.relative_to(ROOT) for path in (ROOT / CORE).rglob("*.py"))
    every = [(path, *one) for path in files for one in breaks(path)]
    chosen = random.Random(given.seed).sample(every, given.breaks)
    rows = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else []
    done = {(row["file"], row["node"]) for row in rows}
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "checkout"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
        for path, line, number, words in chosen:
            if (str(path), number) in done:
                continue
            (copy / path).write_text(with_break(path, number), "utf-8")
            test = noticed(copy, by_line.get((str(path), line), []))
            shutil.copy(ROOT / path, copy / path)
            rows.append({"file": str(path), "line": line, "node": number, "break": words, "test": test})
            KEPT.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
            print(f"{path.name}:{line} {words}: {test or 'NOTHING'}", flush=True)
    print(f"{len(rows)} breaks, {sum(not row['test'] for row in rows)} that nothing catches")


if __name__ == "__main__":
    main()
