"""The wheel as a stranger gets it: what is in it, what is not, and that its command works from anywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "secure_fedgraph", "attacks", "audits")
# What a careless run leaves in a package folder. None of it may travel.
PLANTED = {
    "secure_fedgraph/identity.pem": b"-----BEGIN PRIVATE KEY-----\n",
    "secure_fedgraph/privacy/client.key": b"\x00" * 32,
    "secure_fedgraph/privacy/secret_context.bin": b"\x00" * 32,
    "secure_fedgraph/report/templates/secret.key": b"\x00" * 32,
    "secure_fedgraph/ledger.jsonl": b"{}\n",
    "attacks/view.pkl": b"\x80\x04N.",
    "audits/.env": b"TOKEN=1\n",
}
CARRIED = re.compile(
    r"secure_fedgraph/(.+/)?[^/]+\.py"
    r"|secure_fedgraph/py\.typed"
    r"|secure_fedgraph/experiment/reproduce/[a-z]+\.toml"
    r"|secure_fedgraph/report/templates/[^/]+\.(html|j2|css|js|svg)"
    r"|secure_fedgraph-[^/]+\.dist-info/(licenses/LICENSE|METADATA|WHEEL|RECORD|entry_points\.txt)"
)

pytestmark = pytest.mark.timeout(1800)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command that has to succeed; its error stream is in the failure."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, with files planted that must stay at home."""
    pytest.importorskip("hatchling", reason="the test extra brings hatchling")
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy(ROOT / name, source / name)
    for name, content in PLANTED.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone in an empty folder; its dependencies come from this environment."""
    target = tmp_path_factory.mktemp("installed") / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    run(*pip, "--target", target, wheel, cwd=wheel.parent)
    return target


def test_the_wheel_carries_the_three_packages_and_the_page(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in ("secure_fedgraph", "attacks", "audits"):
        tracked = {
            ("" if package == "secure_fedgraph" else "secure_fedgraph/") + path.relative_to(ROOT).as_posix()
            for path in (ROOT / package).rglob("*.py")
            if "__pycache__" not in path.parts
        }
        assert tracked
        assert tracked <= names, f"left out: {sorted(tracked - names)}"
    assert "secure_fedgraph/py.typed" in names
    assert any(name.startswith("secure_fedgraph/report/templates/") for name in names)


def test_the_wheel_carries_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        strange = [name for name in archive.namelist() if not CARRIED.fullmatch(name)]
        keys = [
            name for name in archive.namelist() if re.search(rb"-----BEGIN [A-Z ]*KEY", archive.read(name))
        ]
    assert strange == []
    assert keys == []


def test_the_wheel_names_its_licence_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        (commands,) = (n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt"))
        assert "License-Expression: Apache-2.0" in archive.read(metadata).decode()
        assert "secure-fedgraph = secure_fedgraph.cli.main:main" in archive.read(commands).decode()


def test_the_installed_command_works_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    command = installed / "bin" / "secure-fedgraph"
    assert command.is_file()
    search = {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    # This environment may hold the checkout as an editable install: be sure that the wheel answers.
    origins = run(
        sys.executable,
        "-c",
        "import secure_fedgraph as s; from secure_fedgraph import attacks, audits; "
        "print(*(m.__file__ for m in (s, attacks, audits)))",
        cwd=tmp_path,
        **search,
    ).split()
    assert all(Path(origin).is_relative_to(installed) for origin in origins), origins
    assert "audit" in run(sys.executable, command, "--help", cwd=tmp_path, **search)
    listed = json.loads(run(sys.executable, command, "list", "policies", "--json", cwd=tmp_path, **search))
    for policy in ("plaintext", "masked", "homomorphic"):
        assert policy in json.dumps(listed)
    assert list(tmp_path.iterdir()) == []


def test_files_of_a_users_own_break_nothing(installed: Path, tmp_path: Path) -> None:
    for name in ("attacks", "audits"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('a file of the user')")
    search = {"PYTHONPATH": str(installed)}
    command = (sys.executable, "-m", "secure_fedgraph.cli.main")
    for arguments, word in (
        (("--help",), "attack"),
        (("list", "attacks"), "a1-"),
        (("audit", "--help"), "attack"),
    ):
        assert word in run(*command, *arguments, cwd=tmp_path, **search)
