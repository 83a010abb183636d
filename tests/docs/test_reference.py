"""The pages of reference name everything that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import secure_fedgraph as sfg
from secure_fedgraph import seams
from secure_fedgraph.core.errors import SecureFedGraphError
from secure_fedgraph.protocol.transcript import SERVER

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<status>\d) \|", flags=re.MULTILINE)


def all_errors(top: type[SecureFedGraphError]) -> dict[str, int]:
    """The public classes of ``errors`` below one, with their exit statuses."""
    found = {top.__name__: top.exit_status} if hasattr(sfg.errors, top.__name__) else {}
    for kind in top.__subclasses__():
        found |= all_errors(kind)
    return found


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    page = (REFERENCE / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^::: secure_fedgraph\.(\w+)$", page, flags=re.MULTILINE))
    elsewhere = {"errors": "errors.md", "ClientContext": "seams.md", "RoundApi": "seams.md"}
    assert named | set(elsewhere) == set(sfg.__all__)
    for name, where in elsewhere.items():
        assert name in (REFERENCE / where).read_text(encoding="utf-8")


def test_every_seam_is_on_its_page() -> None:
    page = (REFERENCE / "seams.md").read_text(encoding="utf-8")
    own = {name for name, kind in vars(seams).items() if getattr(kind, "__module__", "") == seams.__name__}
    listed = re.search(r"members: \[(.*)\]", page)
    assert listed is not None
    assert set(listed[1].split(", ")) == own


def test_every_error_has_its_row_and_status() -> None:
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert {row["name"]: int(row["status"]) for row in ROW.finditer(page)} == all_errors(SecureFedGraphError)
    for name in all_errors(SecureFedGraphError):
        assert f"        - {name}\n" in page


def test_the_cheat_sheet_says_what_a_run_shows() -> None:
    page = (ROOT / "docs" / "cheat_sheet.md").read_text(encoding="utf-8")
    heads = [cell.strip(" `") for cell in page.split("| algorithm |", 1)[1].split("\n", 1)[0].split("|")]
    row = next(line for line in page.splitlines() if line.startswith("|") and "`fedsage`," in line)
    cells = dict(zip(heads, (cell.strip() for cell in row.split("|")[2:]), strict=False))
    federation = sfg.federate("synthetic-citation", clients=3, seed=0, nodes=60, features=16)
    for policy in ("plaintext", "masked", "homomorphic"):
        algorithm = sfg.FedSage(hidden=[4], fanout=[2])
        run = sfg.train(algorithm, federation, policy, rounds=1, keep=lambda channel, round: True)
        singles = len(run.transcript.view(SERVER).uploads("update"))
        assert (cells[policy], singles) in (("each", 3), ("sum", 0))


def test_every_example_and_tutorial_is_on_the_page_of_what_is_not_for_production() -> None:
    page = (ROOT / "docs" / "not_for_production.md").read_text(encoding="utf-8")
    for path in (*ROOT.glob("examples/*.py"), *ROOT.glob("docs/tutorials/*.py")):
        assert f"/{path.name})" in page
