"""What a release carries: a source archive that builds the same wheel, its citation, its containers."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import click
import pytest
import yaml

from secure_fedgraph import __version__
from secure_fedgraph.cli.main import main

ROOT = Path(__file__).resolve().parent.parent


def build(kind: str, source: Path, out: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "build",
        f"--{kind}",
        "--no-isolation",
        "--outdir",
        str(out),
        str(source),
    ]
    subprocess.run(command, check=True, capture_output=True, cwd=out)
    (built,) = (path for path in out.iterdir() if path.is_file())
    return built


@pytest.mark.slow
def test_the_source_archive_builds_the_wheel_of_the_checkout(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the test extra brings hatchling")
    for name in ("archive", "wheel", "again", "source"):
        (tmp_path / name).mkdir()
    archive = build("sdist", ROOT, tmp_path / "archive")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
        packed.extractall(tmp_path / "source", filter="data")
    assert {"SECURITY.md", "CITATION.cff", "CHANGELOG.md", "LICENSE", "constraints.txt"} <= names
    (source,) = (tmp_path / "source").iterdir()
    first, second = build("wheel", ROOT, tmp_path / "wheel"), build("wheel", source, tmp_path / "again")
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        record = re.compile(r"\.dist-info/")
        content = [{n: z.read(n) for n in z.namelist() if not record.search(n)} for z in (one, other)]
    assert content[0] == content[1]


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert project["version"] == cited["version"] == __version__
    assert cited["license"] == project["license"] and cited["title"] == project["name"]
    assert {"cff-version", "message", "authors"} <= cited.keys()


def test_a_release_has_hashes_and_a_bill_of_materials() -> None:
    command = ["make", "--dry-run", "release", f"VENV={Path(sys.prefix)}"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for word in ("-m build", "sha256sum", "SHA256SUMS", "cyclonedx-py environment", "sbom.json", "doctor"):
        assert word in printed


def found(words: list[str]) -> click.Command:
    """The command that these words call; it takes the options among them."""
    command: click.Command = main
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    options = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("--")} <= options
    return command


def test_the_containers_call_commands_that_there_are() -> None:
    services = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]
    assert {name: found(list(one["command"])).name for name, one in services.items()} == {
        "silo": "start",
        "server": "start",
    }
    for one in services.values():
        assert one["read_only"] and one["cap_drop"] == ["ALL"]
        assert (ROOT / "docker" / one["build"]["context"] / one["build"]["dockerfile"]).is_file()
    (data,) = (place for place in services["silo"]["volumes"] if ":/data" in place)
    assert data.endswith(":ro")


def test_the_image_is_made_of_what_there_is_and_runs_as_nobody() -> None:
    text = (ROOT / "docker/Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT", "CMD"}
    assert {step for step, _ in steps} <= known
    copied = [rest.split()[:-1] for step, rest in steps if step == "COPY" and "--from" not in rest]
    assert all((ROOT / name).exists() for names in copied for name in names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[([\w,]+)\]'", text)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    last = text.rsplit("FROM ", 1)[1]
    assert last.index("USER silo") < last.index("ENTRYPOINT")
    assert next(rest for step, rest in steps if step == "CMD") == '["doctor"]' and "doctor" in main.commands
