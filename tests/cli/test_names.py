"""Lists are kept in a file; misspelt names are refused from them, before torch is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import other_package
import pytest
from click.testing import CliRunner

from secure_fedgraph.cli import names, running
from secure_fedgraph.cli.main import main
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.policies import RECIPES
from secure_fedgraph.registry import PluginWarning

LISTED = names.listed
MISSPELT = """
import sys
from secure_fedgraph.cli import names
from secure_fedgraph.cli.main import main
names.listed = lambda kind: [{"name": "fedsage"}]
try:
    main(["run", "--algorithm", "fedsagee"])
except SystemExit as ended:
    assert ended.code == 2, ended.code
assert "torch" not in sys.modules
"""


@pytest.fixture(autouse=True)
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "listed", lambda kind: [{"name": "masked"}, {"name": "plaintext"}])


def test_a_misspelt_name_is_refused_without_torch() -> None:
    subprocess.run([sys.executable, "-c", MISSPELT], check=True, timeout=600)


@pytest.mark.parametrize("given", ["maskd", "masked,plain"])
def test_each_name_must_be_known(given: str) -> None:
    with pytest.raises(BadInput, match=given.rpartition(",")[2]):
        names.check_names("policies", given)


@pytest.mark.parametrize("given", ["masked", "plaintext, MASKED", "mine:Own", ""])
def test_known_names_and_own_classes_pass(given: str) -> None:
    names.check_names("policies", given)


def test_an_entry_point_is_left_to_the_registry_which_knows_why_it_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken: Any = [EntryPoint("wide", "nowhere:wide", "secure_fedgraph.policies")]
    monkeypatch.setattr(names, "points_of", lambda group: (broken, []))
    names.check_names("policies", "wide")


def test_a_misspelt_name_may_be_of_a_package_whose_list_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(other_package.install(tmp_path, "[secure_fedgraph.policies]\nwide\n"))
    with pytest.raises(BadInput, match=r"unknown policy 'wide'.*no plugin of somebody can be used"):
        names.check_names("policies", "wide")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the list of policies is kept."""
    monkeypatch.setattr(names.platformdirs, "user_cache_path", lambda _: tmp_path / "cache")
    return tmp_path / "cache" / "lists" / f"policies-{names._key('policies')}.json"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the list of policies is made as."""
    rows = [{"name": "wide", "summary": "masks", "settings": ["limit"], "package": "somebody"}]
    monkeypatch.setattr(
        "secure_fedgraph.cli.listing",
        SimpleNamespace(LISTS={"policies": lambda: rows}, left_out=lambda _: ()),
        raising=False,
    )
    return rows


def test_a_link_in_the_place_of_a_draft_is_not_written_through(
    kept: Path, made: list[dict[str, Any]], tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    kept.parent.mkdir(parents=True)
    for name in (kept.name, kept.with_suffix(f".{os.getpid()}").name):
        (kept.parent / name).symlink_to(precious)
    assert LISTED("policies") == made
    assert precious.read_text() == "mine" and kept.is_file()


def test_a_list_is_kept_and_made_again_when_a_plugin_is_another(
    made: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names.platformdirs, "user_cache_path", lambda _: tmp_path / "cache")
    monkeypatch.syspath_prepend(other_package.install(tmp_path / "site"))
    LISTED("policies")
    made.append({**made[0], "name": "narrow"})
    assert [row["name"] for row in LISTED("policies")] == ["wide"]
    with (tmp_path / "site" / "somebody" / "wide.py").open("a") as code:
        code.write("# mended")
    assert [row["name"] for row in LISTED("policies")] == ["wide", "narrow"]
    made.append({**made[0], "name": "deep"})
    metadata = tmp_path / "site" / "somebody-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 1.1"))
    assert [row["name"] for row in LISTED("policies")] == ["wide", "narrow", "deep"]


def test_no_list_is_kept_while_a_plugin_cannot_be_used(
    kept: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secure_fedgraph.cli.listing.left_out", lambda _: ("it needs a mend",))
    assert LISTED("policies") == made
    assert not kept.exists()


def test_a_list_says_in_one_line_what_is_left_out_and_a_run_does_not(
    kept: Path, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr("secure_fedgraph.cli.listing.left_out", lambda _: ("it needs a mend",))
    monkeypatch.setattr(names, "listed", LISTED)
    for _ in range(2):  # whether it was said before or not
        done = CliRunner().invoke(main, ["list", "policies"])
        assert (done.exit_code, done.stderr) == (0, "secure-fedgraph: warning: it needs a mend\n")
        assert "wide" in done.stdout
    monkeypatch.setattr(RECIPES, "_left_out", ["it needs a mend"])
    monkeypatch.setattr(RECIPES, "_said", 0)
    monkeypatch.setattr(running, "run", lambda *_, **__: print(*RECIPES))
    done = CliRunner().invoke(main, ["run", "--policy", "wide"])
    assert (done.exit_code, done.stderr) == (0, "") and "masked" in done.stdout
    assert not [one for one in recwarn if one.category is PluginWarning]


def odd_files(rows: list[dict[str, Any]]) -> dict[str, bytes]:
    return {
        "nothing": b"[]",
        "no rows": b"[1]",
        "deep": b"[" * 100_000,
        "no text": b"\xff",
        "large": json.dumps(rows).encode() + b" " * 2**22,
    }


ODD = tuple(odd_files([{}]))


@pytest.mark.parametrize("name", ODD)
def test_a_kept_file_that_is_odd_is_made_again(name: str, kept: Path, made: list[dict[str, Any]]) -> None:
    LISTED("policies")
    kept.write_bytes(odd_files(made)[name])
    assert LISTED("policies") == made
    assert json.loads(kept.read_bytes()) == made


@pytest.mark.parametrize("place", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_read(
    place: str, kept: Path, made: list[dict[str, Any]], tmp_path: Path
) -> None:
    kept.parent.mkdir(parents=True)
    if place == "link":
        other = tmp_path / "other.json"
        other.write_text(json.dumps([{**made[0], "name": "planted"}]))
        kept.symlink_to(other)
    elif place == "pipe":
        os.mkfifo(kept)
    else:
        kept.mkdir()
    assert LISTED("policies") == made
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]  # and no draft is left
