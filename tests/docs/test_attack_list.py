"""The page of all attacks lists every one that is registered, as the code declares it."""

from __future__ import annotations

from pathlib import Path

from secure_fedgraph.attacks import ATTACKS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "attacks" / "all.md"


def test_every_attack_has_a_page_that_says_how_it_works() -> None:
    folders = ("attacks", "algorithms")
    paths = [path for folder in folders for path in (ROOT / "docs" / folder).glob("*.md")]
    pages = [path.read_text(encoding="utf-8") for path in paths]
    explained = "\n".join(text for text in pages if not text.startswith("# Every attack"))
    assert [name for name in ATTACKS.own if name not in explained] == []


def test_every_attack_says_who_reads_what_and_what_stops_it() -> None:
    listed = PAGE.read_text(encoding="utf-8").split("<!-- attacks, ")[1].split("<!-- end -->")[0]
    rows = {line.split("`")[1]: line for line in listed.splitlines() if line.startswith("| `")}
    reading = {name: kind for name, kind in ATTACKS.own.items() if not kind.harms}
    assert list(rows) == list(reading)
    for name, kind in reading.items():
        assert all(who in rows[name] for who in kind.adversaries)
        assert all(f"`{channel}`" in rows[name] for channel in kind.reads())
        assert all(what in rows[name] for what in kind.stopped_by().values())
        assert kind.stops, name
