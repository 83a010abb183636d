"""Who may import whom, and what no package may do; ``docs/architecture.md`` says why."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("secure_fedgraph", "attacks", "audits")
CORE = "secure_fedgraph"


@dataclass(frozen=True)
class Rule:
    """What one room may know. ``outside=None``: any library; ``types``: rooms named in annotations only."""

    may: tuple[str, ...] = ()
    outside: tuple[str, ...] | None = None
    types: tuple[str, ...] = ()


# Rooms are folders, or modules of the package itself, written without the package's name. A room
# may always import itself, `core.errors`, `arguments` and `loading`. A module without a line
# here fails the test. "=core" is that room without the rooms inside it.
SPEECH = ("=core", "core.guarantee", "core.text")
"""What everybody may know of the core: channels, uploads, and their one encoding."""
RULES: dict[str, Rule] = {
    "errors":      Rule(may=("core.errors",), outside=()),
    # what a caller meant
    "arguments":   Rule(outside=()),
    # what has a name, here and in other packages
    "registry":    Rule(may=("core.text",), outside=()),
    # how heavy libraries are loaded
    "loading":     Rule(outside=()),
    # what keeps a promise: nothing of ours
    "core":        Rule(may=("core",), outside=("torch", "numpy", "blake3")),
    "core.crypto": Rule(outside=("cryptography", "numpy")),
    "core.accounting": Rule(may=("core.guarantee",), outside=("numpy", "scipy", "dp_accounting")),
    "core.spending":   Rule(may=("core",), outside=()),
    "core.protection": Rule(may=("core",), outside=("torch", "numpy")),
    "core.carriers":   Rule(may=("core",), outside=("torch", "numpy", "cryptography", "tenseal")),
    "core.errors": Rule(outside=()),
    # opening what is private, for its owner alone, and following no links
    "core.files":  Rule(outside=("filelock",)),
    # the words of a guarantee: light, so that figures and schemas may use them without torch
    "core.guarantee": Rule(outside=()),
    # other people's sentences, before they are printed
    "core.text":   Rule(outside=()),
    "core.spending.ledger_line": Rule(outside=("pydantic",)),
    # the transport and the record
    "protocol":    Rule(may=("core",), outside=("torch", "numpy", "blake3", "pydantic", "greenlet")),
    # computing on one party's graph: no federation
    "graph":       Rule(may=("registry", "core.files")),
    "models":      Rule(may=("graph",)),
    # what a model is worth: cells of test items, and figures from them
    "metrics":     Rule(may=("graph", "models")),
    # what a reader can learn; never an algorithm
    "privacy":     Rule(may=("core", "registry")),
    "privacy.encrypted_values":   Rule(may=("privacy", "core"), outside=("numpy", "tenseal", "native")),
    "privacy.input_dp":   Rule(may=("privacy", "core")),
    # the two wings meet only in Channel: never privacy, crypto, backends
    "seams":       Rule(may=(*SPEECH, "protocol", "graph"), outside=("torch", "torch_geometric")),
    "algorithm":   Rule(may=("seams", *SPEECH, "protocol", "graph", "models", "metrics")),
    "algorithms":  Rule(may=("registry", "algorithm", "seams", *SPEECH, "protocol", "graph", "models")),
    # the two doors
    "round":       Rule(may=("core", "protocol", "privacy")),
    "client":      Rule(may=("core", "protocol", "privacy"),
                        types=("algorithm", "seams", "graph", "storage")),
    # what is kept between rounds: a party's own memory, and the run's
    "storage":     Rule(may=(*SPEECH, "protocol", "core.files", "core.crypto"), outside=("filelock",)),
    # the referee, handing a graph out to owners, and the one loop
    "evaluation":  Rule(may=(*SPEECH, "protocol", "algorithm", "graph", "models", "metrics"),
                        types=("round", "client")),
    # the record that a dispute needs, and what an auditor makes of it
    "disputes":    Rule(may=("core", "privacy"), outside=("torch", "numpy", "pydantic")),
    "federation":  Rule(may=("client", "disputes", "privacy", "core", "protocol", "evaluation", "algorithm",
                             "graph", "storage", "backends")),
    "forms":       Rule(may=("algorithm", "privacy", "core", "protocol"), outside=()),
    "running":     Rule(may=("federation", "disputes", "round", "client", "privacy", "core", "protocol",
                             "evaluation", "algorithm", "graph", "models", "metrics", "backends", "storage",
                             "forms")),
    "backends":    Rule(may=("client", *SPEECH, "protocol")),
    "policies":    Rule(may=("privacy",)),                 # the recipes under their public name
    # an experiment as files know it
    "experiment":  Rule(may=("registry", "algorithms", "algorithm", "privacy", "core", "protocol",
                             "graph", "metrics", "models", "forms", "federation", "running", "round",
                             "evaluation", "storage")),
    "experiment.pool": Rule(may=("registry", "running", "backends"), outside=("torch",)),
    "comparison":  Rule(may=("experiment",)),              # compare(), which gives it processes
    "experiment.code_digest": Rule(outside=()),
    # what files hold, light enough for a command that prints it
    "experiment.schema":      Rule(may=("core.guarantee", "core.text",
                                        "core.spending.ledger_line"), outside=("pydantic",)),
    "experiment.compare":     Rule(may=("experiment", "algorithms", "core.files", "core.guarantee")),
    # owners on machines of their own; what knows Flower is in one folder
    "deployment":           Rule(may=("experiment", "running", "federation", "client", "round", "evaluation",
                                      "algorithms", "algorithm", "graph", "privacy", "core",
                                      "protocol", "backends", "storage")),
    "deployment.silo_messages":   Rule(outside=()),
    "deployment.flower":    Rule(may=("deployment", "core", "privacy")),
    "deployment.alignment": Rule(may=("deployment", "core", "protocol", "storage")),
    # the outside
    "report":      Rule(may=("core.files", "core.guarantee", "core.text", "experiment.schema")),
    "":            Rule(may=("*", "attacks", "audits")),  # the public names
    "cli":         Rule(may=("*", "attacks", "audits")),
    "__main__":    Rule(may=("cli",)),
    # guessing, and judging
    "attacks":         Rule(may=("registry", *SPEECH, "protocol", "models", "graph")),
    "attacks.active":  Rule(may=("attacks", *SPEECH, "protocol", "models", "graph", "algorithm", "seams")),
    "audits":          Rule(may=("*", "attacks")),
}  # fmt: skip
# "*" is every room but these: nobody but the command line imports audits and attacks.
NOT_IN_STAR = ("cli", "__main__", "attacks", "audits")
MODULES = 15
"""That a folder holds at most, besides its ``__init__``."""

UNTRUSTED_BYTES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = re.compile(
    r"(random\.(?!Random$|SystemRandom$)\w+"
    r"|numpy\.random\.(?!default_rng$|Generator$|SeedSequence$|PCG64|Philox$|SFC64$|MT19937$)\w+"
    r"|torch\.(random\.)?manual_seed|torch\.(random\.)?seed|torch\.cuda\.(manual_)?seed(_all)?"
    r"|torch_geometric\.(seed\.)?seed_everything|torch\.load|torch\.serialization\.load)"
)
# PyG's own processed files, and an owner's own file: tensors alone (weights_only).
EXCUSED_CALLS = {
    ("graph.data.datasets", "torch.load"),
    ("graph.silos.reading", "torch.load"),
    # two copies of a process share every generator, this one too
    *(("audits.conformance.twins", f"random.{name}") for name in ("getstate", "setstate")),
    # a user's model may draw by them: each record's draws follow from no other's
    *(("models.per_record", f"numpy.random.{name}") for name in ("get_state", "seed", "set_state")),
    *(("models.per_record", f"random.{name}") for name in ("getstate", "seed", "setstate")),
}
FORBIDDEN_WORDS = re.compile(r"(^|_)(managers?|handlers?|processors?|helpers?|utils?)(_|$)")


@dataclass(frozen=True)
class Imported:
    """One import as written: the absolute dotted name, the line, and whether only annotations see it."""

    name: str
    line: int
    for_types: bool


def dotted(path: Path, root: Path) -> str:
    """The module's name: ``attacks/attack.py`` is ``secure_fedgraph.attacks.attack``."""
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts if parts[0] == CORE else (CORE, *parts)  # two folders beside it install inside it
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def strip_core(module: str) -> str:
    """A module's name as the table writes it."""
    return module.removeprefix(CORE).removeprefix(".")


def room_of(module: str) -> str | None:
    """The longest line of the table that the module stands under; None where it has no room."""
    name = strip_core(module)
    rooms = [room for room in RULES if name == room or (room and name.startswith(room + "."))]
    return max(rooms, key=len, default=None)


@cache
def walked(path: Path) -> Sequence[ast.AST]:
    """Every node of a module."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


def name_of(node: ast.expr) -> str:
    """A name with its attributes, dotted; empty where something else is in it."""
    rest: list[str] = []
    while isinstance(node, ast.Attribute):
        rest.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(rest)]) if isinstance(node, ast.Name) else ""


def imports(nodes: Sequence[ast.AST], module: str, is_package: bool, known: set[str]) -> Iterator[Imported]:
    """Every import of a module, relative ones resolved, also those inside functions and by literal name."""
    type_lines = {
        line
        for node in nodes
        if isinstance(node, ast.If) and name_of(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for body in node.body
        for line in range(body.lineno, (body.end_lineno or body.lineno) + 1)
    }
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from package import module` names the module; `from module import Name` the module before it.
            names = [f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names]
        elif isinstance(node, ast.Call) and name_of(node.func).endswith(("import_module", "__import__")):
            names = [
                a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
        for name in names:
            yield Imported(name, node.lineno, node.lineno in type_lines)


def allowed(room: str, wanted: Imported) -> bool:
    """Whether the table lets a room import that name."""
    rule = RULES[room]
    top = wanted.name.split(".")[0]
    if top != CORE:
        return top not in PACKAGES and (
            top in sys.stdlib_module_names or rule.outside is None or top in rule.outside
        )
    target = room_of(wanted.name)
    if target in (room, "core.errors", "arguments", "loading") or (
        room and target and target.startswith(room + ".")
    ):
        return True
    if target is None or target == "":
        return "*" in rule.may and target == ""  # the package itself imports everything
    granted = rule.may + (rule.types if wanted.for_types else ())
    if f"={target}" in granted:  # that room without those inside it
        return True
    above = {".".join(target.split(".")[:i]) for i in range(1, target.count(".") + 2)}
    return bool(above & set(granted)) or ("*" in granted and not above & set(NOT_IN_STAR))


def called_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """The absolute dotted name of everything used as an attribute or imported, aliases followed."""
    alias: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for a in node.names:
                alias[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for a in node.names:
                alias[a.asname or a.name] = f"{node.module}.{a.name}"
                yield f"{node.module}.{a.name}", node.lineno
    for node in nodes:
        if isinstance(node, ast.Attribute):
            head, _, rest = name_of(node).partition(".")
            if head in alias:
                yield f"{alias[head]}.{rest}", node.lineno


def defined_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int]]:
    """Classes and functions in snake case."""
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.name).lower(), node.lineno


def complaints(root: Path) -> list[str]:
    """Everything under ``root`` that breaks a rule, one sentence each."""
    files = {dotted(path, root): path for name in PACKAGES for path in sorted((root / name).rglob("*.py"))}
    known = set(files) | {".".join(m.split(".")[:i]) for m in files for i in range(1, m.count(".") + 1)}
    found: list[str] = []
    for module, path in files.items():
        where = path.relative_to(root).as_posix()
        nodes = walked(path)
        room = room_of(module)
        if room is None:
            found.append(
                f"{where}: {module} has no room; give it a line in RULES and in docs/architecture.md"
            )
            continue
        if any(FORBIDDEN_WORDS.search(part) for part in module.split(".")):
            found.append(f"{where}: {module} is named after no subject; say what it is about")
        for name, line in defined_names(nodes):
            if FORBIDDEN_WORDS.search(name):
                found.append(f"{where}:{line}: {name} is named after no subject; say what it is about")
        for wanted in imports(nodes, module, path.name == "__init__.py", known):
            if wanted.name.split(".")[0] in UNTRUSTED_BYTES:
                found.append(
                    f"{where}:{wanted.line}: {wanted.name} runs what it reads; use protocol's format"
                )
            elif not allowed(room, wanted):
                found.append(f"{where}:{wanted.line}: {room or CORE} may not import {wanted.name}")
        for name, line in called_names(nodes):
            if FORBIDDEN_CALLS.fullmatch(name) and (strip_core(module), name) not in EXCUSED_CALLS:
                found.append(f"{where}:{line}: {name} is global state or runs what it reads")
    return found


def circles(root: Path) -> list[set[str]]:
    """Modules and folders beside each other that import each other in a circle, as of when they run."""
    files = {dotted(path, root): path for name in PACKAGES for path in sorted((root / name).rglob("*.py"))}
    beside: dict[str, nx.DiGraph] = defaultdict(nx.DiGraph)
    for module, path in files.items():
        is_package = path.name == "__init__.py"
        nodes = walked(path)
        for wanted in imports(nodes, module, is_package, set(files)):
            if wanted.name not in files or wanted.for_types or CORE in (module, wanted.name):
                continue
            here = [*module.split("."), *(["__init__"] if is_package else [])]
            there = [
                *wanted.name.split("."),
                *(["__init__"] if files[wanted.name].name == "__init__.py" else []),
            ]
            common = next(n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b)
            parent = ".".join(here[:common])
            beside[parent].add_edge(f"{parent}.{here[common]}", f"{parent}.{there[common]}")
    return [c for graph in beside.values() for c in nx.strongly_connected_components(graph) if len(c) > 1]


def test_every_import_keeps_to_the_table() -> None:
    found = complaints(ROOT)
    assert not found, "\n".join(found)


def test_no_circle() -> None:
    assert circles(ROOT) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    for name, text in {
        "low/a.py": "from secure_fedgraph.high import b",
        "high/b.py": "def late():\n    from secure_fedgraph.low import c",
        "low/c.py": "",
    }.items():
        path = tmp_path / CORE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert circles(tmp_path) == [{"secure_fedgraph.low", "secure_fedgraph.high"}]


@pytest.mark.parametrize("top", [*PACKAGES, "tests"])
def test_no_folder_holds_more_than_fifteen_modules(top: str) -> None:
    modules = Counter(p.parent for p in (ROOT / top).rglob("*.py") if p.name != "__init__.py")
    crowded = {str(folder.relative_to(ROOT)): count for folder, count in modules.items() if count > MODULES}
    assert crowded == {}


@pytest.mark.parametrize("top", PACKAGES)
def test_three_modules_with_one_prefix_are_a_folder(top: str) -> None:
    prefixes = Counter((p.parent, p.stem.split("_")[0]) for p in (ROOT / top).rglob("[a-z]*.py"))
    assert {
        f"{folder.relative_to(ROOT)}/{name}_*" for (folder, name), n in prefixes.items() if n > 2
    } == set()


def test_every_package_is_there_to_be_walked() -> None:
    # An empty walk would pass the test above.
    for name in PACKAGES:
        assert list((ROOT / name).rglob("*.py")), f"{name}/ holds no module"


def written(tmp_path: Path, module: str, source: str) -> list[str]:
    """The complaints about one synthetic module, among packages that are otherwise empty and legal."""
    for room in ("protocol", "privacy", "algorithms", "graph", "models", "backends"):
        (tmp_path / CORE / room).mkdir(parents=True)
        (tmp_path / CORE / room / "__init__.py").write_text("")
    (tmp_path / CORE / "privacy" / "masking.py").write_text("")
    path = tmp_path / (re.sub(r"^secure_fedgraph\.(attacks|audits)", r"\1", module).replace(".", "/") + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return complaints(tmp_path)


@pytest.mark.parametrize(
    ("module", "source", "named"),
    [
        ("secure_fedgraph.algorithms.bad", "from secure_fedgraph.privacy import masking", "privacy.masking"),
        ("secure_fedgraph.algorithms.bad", "from secure_fedgraph.core.crypto import agree", "crypto"),
        ("secure_fedgraph.algorithms.bad", "from ..privacy.masking import SecAgg", "privacy.masking"),
        ("secure_fedgraph.algorithms.bad", "from .. import privacy", "secure_fedgraph.privacy"),
        ("secure_fedgraph.algorithms.bad", "import secure_fedgraph as sfg", "may not import secure_fedgraph"),
        ("secure_fedgraph.algorithms.bad", "def f():\n    import secure_fedgraph.backends", "backends"),
        ("secure_fedgraph.algorithms.bad", "from secure_fedgraph.round import Round", "round"),
        ("secure_fedgraph.algorithms.bad", "import importlib\n"
         "importlib.import_module('secure_fedgraph.privacy')",
         "privacy"),
        ("secure_fedgraph.privacy.bad", "from secure_fedgraph.algorithms import fedavg", "algorithms"),
        ("secure_fedgraph.privacy.bad", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
         "    from secure_fedgraph.client import Client", "client"),
        ("secure_fedgraph.protocol.bad", "import torch_geometric", "torch_geometric"),
        ("secure_fedgraph.protocol.bad", "from secure_fedgraph.graph import client_graph", "graph"),
        ("secure_fedgraph.core.crypto", "import torch", "torch"),
        ("secure_fedgraph.graph.bad", "from secure_fedgraph.protocol import channel", "protocol"),
        ("secure_fedgraph.models.bad", "from secure_fedgraph import train", "secure_fedgraph"),
        ("secure_fedgraph.backends.bad", "from secure_fedgraph.privacy import masking", "privacy"),
        ("secure_fedgraph.round", "from secure_fedgraph.algorithms import fedavg", "algorithms"),
        ("secure_fedgraph.running.loop", "from secure_fedgraph.audits import grid", "audits"),
        ("secure_fedgraph.audits.bad", "from attacks import attack", "attacks"),
        ("secure_fedgraph.running.loop", "from secure_fedgraph.cli.main import main", "cli"),
        ("secure_fedgraph.attacks.bad", "from secure_fedgraph.privacy import masking", "privacy"),
        ("secure_fedgraph.attacks.bad", "from secure_fedgraph.round import Round", "round"),
        ("secure_fedgraph.attacks.bad", "from secure_fedgraph.algorithm import Algorithm", "algorithm"),
        ("secure_fedgraph.attacks.bad", "from secure_fedgraph.audits import scoring", "audits"),
        ("secure_fedgraph.attacks.active.bad", "from secure_fedgraph.client import Client", "client"),
        ("secure_fedgraph.audits.bad", "from secure_fedgraph.cli.main import main", "cli"),
        ("secure_fedgraph.nowhere", "", "has no room"),
        ("secure_fedgraph.privacy.noise_utils", "", "named after no subject"),
        ("secure_fedgraph.core.protection.gaussian", "class KeyManager: ...", "key_manager"),
        ("secure_fedgraph.audits.bad", "import pickle", "pickle"),
        ("secure_fedgraph.graph.data.datasets", "import pickle", "pickle"),
        ("secure_fedgraph.backends.bad", "import torch\ntorch.load('x')", "torch.load"),
        ("secure_fedgraph.models.bad", "import torch as t\nt.manual_seed(0)", "torch.manual_seed"),
        ("secure_fedgraph.models.bad", "from torch import manual_seed", "torch.manual_seed"),
        ("secure_fedgraph.graph.bad", "import numpy as np\nnp.random.seed(0)", "numpy.random.seed"),
        ("secure_fedgraph.graph.bad", "import numpy as np\nnp.random.rand(3)", "numpy.random.rand"),
        ("secure_fedgraph.audits.bad", "import random\nrandom.seed(0)", "random.seed"),
        ("secure_fedgraph.audits.bad", "from random import shuffle", "random.shuffle"),
    ],
)  # fmt: skip
def test_a_forbidden_line_is_found(tmp_path: Path, module: str, source: str, named: str) -> None:
    found = written(tmp_path, module, source)
    assert len(found) >= 1
    assert all(named in line for line in found), found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("secure_fedgraph.algorithms.good", "import torch_geometric\n"
         "from secure_fedgraph.protocol import channel"),
        ("secure_fedgraph.client", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
         "    from secure_fedgraph.algorithm import Algorithm"),
        ("secure_fedgraph.algorithms.good", "from secure_fedgraph.core.errors import BadInput"),
        ("secure_fedgraph.privacy.good", "from .masking import SecAgg\n"
         "from secure_fedgraph.core.crypto import agree"),
        ("secure_fedgraph.protocol.good", "import struct\nimport numpy as np\nimport torch"),
        ("secure_fedgraph.graph.data.datasets", "import torch\ntorch.load('x', weights_only=True)"),
        ("secure_fedgraph.graph.good", "import numpy as np, random\n"
         "r = np.random.default_rng(0)\ng: np.random.Generator\nq = random.Random(0)"),
        ("secure_fedgraph.cli.main", "from secure_fedgraph.audits import grid\n"
         "from secure_fedgraph.attacks import attack\nimport secure_fedgraph"),
        ("secure_fedgraph.client", "def handle(): ..."),
        ("secure_fedgraph.attacks.active.good", "from secure_fedgraph.algorithm import Algorithm\n"
         "from secure_fedgraph.attacks.attack import Blind"),
        ("secure_fedgraph.audits.good", "import secure_fedgraph as sfg\n"
         "from secure_fedgraph.attacks import attack"),
    ],
)  # fmt: skip
def test_a_legal_line_passes(tmp_path: Path, module: str, source: str) -> None:
    assert written(tmp_path, module, source) == []
