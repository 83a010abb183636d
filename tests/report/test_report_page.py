"""The report page: what it says, that it fetches nothing, and that hostile or missing values do no harm."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.report.page import write_report

HOSTILE = "<script>alert('x')</script>"


def run_json(
    policy: str = "local_dp", epsilon: Any = 1.9482, last: float = 0.84, **changes: Any
) -> dict[str, Any]:
    readers = {"server": epsilon, "peers": 1.9482, "outsider": 1.9482}
    claim = {
        "epsilon": epsilon,
        "delta": 1e-5,
        "against": "server",
        "relation": "zero-out",
        "accountant": "pld",
    }
    value = {
        "schema": "secure-fedgraph/run/1",
        "command": "secure-fedgraph run --policy local_dp",
        "config": {"algorithm": "fedsage", "data": "cora", "clients": 2, "policy": policy,
                   "partition": "louvain", "rounds": 2, "training": {"batch": 64}},
        "seed": 0,
        "versions": {"python": "3.11.7", "secure-fedgraph": "0.1.0"},
        "federated": True,
        "data": {"data": "cora", "source": "package", "digest": "d861d78c", "nodes": 8, "features": 6,
                 "classes": 2,
                 "partition": {"name": "louvain", "owners": 2, "nodes": 4.0, "links": 5.5, "missing_links": 3,
                               "sizes": [4, 4]}},
        "evaluation": {"mode": "referee", "note": "test data outside the guarantee"},
        "accuracy": {"global": last, "local": 0.83, "best_by_validation": {"round": 2, "global": last},
                     "best_on_test": {"global": last}},
        "privacy": {"client": {**claim, "readers": readers},
                    "node": {**claim, "epsilon": "inf", "readers": dict.fromkeys(readers, "inf"),
                             "reason": "no node-level accounting covers update yet"}},
        "bytes": {"up": 1000, "down": 2000, "evaluation": 0},
        "channels": [{"name": "update", "reveal": "sum", "unit": "client", "to": "server", "policy": policy,
                      "domain": "real", "excess": ["the server sees every single upload, not only the sum"],
                      "bytes_up": 900, "bytes_down": 2000, "messages": 8, "epsilon": epsilon}],
        "carriers": [{"name": "carrier/keys", "bytes": 100, "messages": 2}],
        "seconds": 1.5,
        "rounds": [{"round": n, "loss": 2.0 / n, "accuracy": {"global": last * n / 2, "local": 0.4}}
                   for n in (1, 2)],
    }  # fmt: skip
    return {**value, **changes}


def several_seeds() -> dict[str, Any]:
    one = run_json()
    seeds = [
        {"seed": s, "accuracy": {**one["accuracy"], "global": 0.8 + s / 100}, "data": one["data"]}
        for s in (0, 1)
    ]
    mean = {"global": 0.805, "local": 0.83, "std": {"global": 0.0071, "local": 0.0}}
    return {**one, "seed": [0, 1], "seeds": seeds, "accuracy": mean}


A4 = {"attack": "a4-label-counts", "subject": "numbers of training nodes by class"}


def cell(policy: str, outcome: str, aim: str = "each owner", **changes: Any) -> dict[str, Any]:
    value = {
        "algorithm": "fedsage", "policy": policy, "attack": "a1-vocabulary-support", "adversary": "server",
        "title": "which words each owner's nodes hold", "subject": "vocabulary",
        "behaviour": "honest-but-curious", "channel": "update", "outcome": outcome, "metric": None,
        "score": None, "low": None, "high": None, "baseline": None, "baselines": {}, "ceiling": None,
        "leaks": False,
        "verdict": outcome, "reason": "", "seed": 0, "settings": {"aim": aim, "variant": "as configured"},
    }  # fmt: skip
    return {**value, **changes}


def scored(policy: str, score: float, leaks: bool, aim: str = "each owner", **changes: Any) -> dict[str, Any]:
    verdict = "exact" if leaks else "no better than a trivial guess"
    return cell(policy, "score", aim, metric="f1", score=score, low=score - 0.01, high=score, baseline=0.6,
                baselines={"every word": 0.6}, leaks=leaks, verdict=verdict, **changes)  # fmt: skip


def audit_json() -> dict[str, Any]:
    words = [{"owner": f"owner-{i}", "true": [1, 0, 1, 1, 0, i], "guess": [1, 0, 1, 1, 0, i]} for i in (0, 1)]
    union = [{"owner": "all owners together", "true": [1, 0, 1, 1, 0, 1], "guess": [1, 0, 1, 1, 0, 1]}]
    labels = [{"owner": "owner-0", "true": [10.0, 4.0], "guess": [900.0, 0.0]}]
    about = {"seed": 0, "variant": "as configured", "attack": "a1-vocabulary-support", "kind": "vocabulary"}
    counts = {**about, "attack": "a4-label-counts", "kind": "label shares", "aim": "each owner"}
    left = "what the defence leaves"
    return {
        "schema": "secure-fedgraph/audit/1",
        "command": "secure-fedgraph audit --attack all",
        "config": {"algorithm": "fedsage", "data": "cora", "clients": 2, "partition": "louvain"},
        "policies": ["plaintext", "masked", "central_dp"],
        "seed": [0],
        "versions": {"secure-fedgraph": "0.1.0"},
        "seconds": 61.0,
        "cells": [
            scored("plaintext", 1.0, True),
            scored("plaintext", 0.2, False, attack="a4-label-counts"),
            cell("masked", "blind", reason=f"every upload is masked {HOSTILE}"),
            scored("masked", 1.0, True, left),
            cell("central_dp", "refused", reason="clip: give a norm"),
        ],
        "runs": [
            {"variant": "as configured", "policy": p, "result": run_json(p, epsilon="inf")}
            for p in ("plaintext", "masked")
        ],
        "reconstructions": [
            {**about, "policy": "plaintext", "aim": "each owner", "targets": words},
            {**about, "policy": "masked", "aim": left, "targets": union},
            {**counts, "policy": "plaintext", "targets": labels},
            {**counts, "policy": "plaintext", "variant": "positive control of a4-label-counts",
             "targets": [{**labels[0], "guess": [10.0, 4.0]}]},
        ],
    }  # fmt: skip


def neighgen_json() -> dict[str, Any]:
    """An audit of FedSage+ by two adversaries over exchange batches."""
    value = audit_json()
    left = "what the defence leaves"
    stops = "nothing built yet stops it: sealing and masks do not"

    def one(policy: str, adversary: str, aim: str, batch: int, score: float | None) -> dict[str, Any]:
        variant = "as configured" if batch == 64 else f"exchange batch {batch}"
        settings = {"aim": aim, "variant": variant, "training.exchange_batch": batch}
        more = {"attack": "c2-neighgen-batch", "adversary": adversary, "channel": "feedback"}
        more["subject"] = "raw node features"
        if score is None:
            return cell(policy, "blind", aim, **more, settings=settings, reason="every upload is sealed")
        leaks = score > 0.6
        return scored(policy, score, leaks, aim, **more, settings=settings, stops=stops if leaks else "")

    value["cells"] = [
        *(one("plaintext", "server", "each owner", batch, 1.0) for batch in (8, 64)),
        *(one("strictest", "server", "each owner", batch, None) for batch in (8, 64)),
        one("strictest", "client", left, 8, 1.0),
        one("strictest", "client", left, 64, 0.9),
    ]
    about = {"seed": 0, "attack": "c2-neighgen-batch", "kind": "node features", "variant": "as configured"}
    rows = [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1]]
    wrong = [{"owner": "owner-1", "true": rows, "guess": [[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 1]]}]
    right = [{"owner": "all owners together", "true": rows, "guess": rows}]
    value["policies"] = ["plaintext", "strictest"]
    value["reconstructions"] = [
        {**about, "policy": "plaintext", "adversary": "server", "aim": "each owner", "targets": wrong},
        {**about, "policy": "strictest", "adversary": "client", "aim": left, "targets": right},
    ]
    return value


def build(folder: Path, value: dict[str, Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    kind = value["schema"].split("/")[1]
    name = "result.json" if kind == "run" else f"{kind}.json"
    (folder / name).write_text(json.dumps(value))
    page = write_report(folder)
    assert page == folder / "report.html"
    return page.read_text(encoding="utf-8")


class Tags(HTMLParser):
    """All tags with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def every(self, attribute: str) -> list[str]:
        return [a[attribute] or "" for _, a in self.tags if attribute in a]


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@pytest.mark.parametrize(
    "value",
    [run_json(), several_seeds(), audit_json(), neighgen_json()],
    ids=["run", "seeds", "audit", "neighgen"],
)
def test_page_fetches_nothing_and_has_its_parts(tmp_path: Path, value: dict[str, Any]) -> None:
    page = build(tmp_path, value)
    tags = Tags(page)
    targets = tags.every("src") + tags.every("href") + tags.every("xlink:href") + tags.every("action")
    assert targets
    assert all(t.startswith(("#", "data:image/png;base64,")) for t in targets)
    assert not re.search(r"url\((?!#)|@import|<script|<link|<iframe", page)
    ids = tags.every("id")
    assert len(ids) == len(set(ids))
    assert {t[1:] for t in targets if t.startswith("#")} <= set(ids)
    assert all(a.get("scope") for tag, a in tags.tags if tag == "th")
    assert all(a.get("aria-label") for _, a in tags.tags if a.get("role") in ("img", "region"))
    for what in ("<title>", 'lang="en"', 'class="skip"', 'name="viewport"', "Content-Security-Policy"):
        assert what in page
    assert "{{" not in page and "{%" not in page and "Undefined" not in page


@pytest.mark.parametrize("value", [run_json(), several_seeds(), audit_json()], ids=["run", "seeds", "audit"])
def test_same_json_same_page_and_pictures(tmp_path: Path, value: dict[str, Any]) -> None:
    assert build(tmp_path / "a", value) == build(tmp_path / "b", value)
    first, second = (sorted((tmp_path / x / "plots").iterdir()) for x in "ab")
    assert [p.name for p in first] == [p.name for p in second]
    assert first and all(a.read_bytes() == b.read_bytes() for a, b in zip(first, second, strict=True))
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in first)
    assert not list(tmp_path.rglob("*.draft"))


def test_run_says_accuracy_and_guarantee(tmp_path: Path) -> None:
    text = text_of(build(tmp_path, run_json()))
    assert "84.0 %" in text
    assert "Against the server, a whole owner: ε = 1.95 at δ = 10⁻⁵." in text
    assert "Against the server, one node: no bound." in text
    assert "no node-level accounting covers update yet" in text
    assert "The server sees every single upload, not only the sum." in text
    assert "carrier/keys" in text and "d861d78c" in text and "secure-fedgraph run --policy local_dp" in text


def test_the_ledger_says_what_is_left(tmp_path: Path) -> None:
    value = run_json()
    readers = {"server": 3.0, "peers": 3.0, "outsider": "inf"}
    value["channels"][0] |= {"epsilon_unit": "client", "epsilon_by_reader": readers}
    value["channels"].append({"name": "silent", "reveal": "sum", "unit": "client", "epsilon_by_reader": {}})
    value["budget"] = {"epsilon": 4.0, "delta": 1e-5, "spent": 3.0, "unit": "client", "against": "server"}
    page = build(tmp_path / "noised", value)
    ledger = text_of(page[page.index('id="ledger"') : page.index('id="traffic"')])
    assert "update a whole owner 3 3 unbounded" in ledger and "silent" not in ledger
    assert "ε = 3 of 4 spent for a whole owner against the server, 1 left" in ledger
    assert "width:75.0%" in page
    assert 'id="ledger"' not in build(tmp_path / "bare", run_json())


def test_unbounded_against_the_server_is_said_in_words(tmp_path: Path) -> None:
    text = text_of(build(tmp_path, run_json("central_dp", epsilon="inf")))
    assert "No bound against the server" in text
    assert "Against the server, a whole owner: no bound (against the other owners ε = 1.95" in text
    assert "inf " not in text


def test_several_seeds_show_mean_spread_and_each(tmp_path: Path) -> None:
    text = text_of(build(tmp_path, several_seeds()))
    assert "mean of 2 seeds" in text
    assert "80.50 % ± 0.71 %" in text
    assert "80.00 %" in text and "81.00 %" in text
    assert "The rounds of seed 0" in text


def test_a_point_that_ran_has_its_figures(tmp_path: Path) -> None:
    point = {"name": "a", "kind": "budget", "algorithm": "fedsage", "policy": "masked", "unit": "client",
             "epsilon": 2.0, "outcome": "ran", "accuracy": {"global": 0.5}, "spent": 2.0, "seeds": 1,
             "bytes": 9}  # fmt: skip
    value = {"schema": "secure-fedgraph/compare/1", "config": {"data": "cora"}, "points": [point]}
    (tmp_path / "compare.json").write_text(json.dumps(value))
    with pytest.raises(BadInput, match=r"compare\.json: points\.0 is .*has no seconds"):
        write_report(tmp_path)
    point["seconds"] = 1.0
    (tmp_path / "compare.json").write_text(json.dumps(value))
    write_report(tmp_path)


def test_audit_verdicts_and_outcomes(tmp_path: Path) -> None:
    page = build(tmp_path, audit_json())
    text = text_of(page)
    assert "Attacks read single owners’ vocabulary." in text
    assert "Attacks read no single owner, only vocabulary of all owners together." in text
    assert "training was refused before round 1. Clip: give a norm." in text
    classes = [(a.get("class") or "").split() for tag, a in Tags(page).tags if tag == "td"]
    tiles = [one[-1] for one in classes if "tile" in one]
    assert tiles == ["leak", "blind", "refused", "absent", "leak", "refused", "scored", "absent", "absent"]
    assert "owner-0 900.0" not in text and "900" in text


def test_a_leak_under_the_best_settings_only_is_told_as_such(tmp_path: Path) -> None:
    value = audit_json()
    control = {"aim": "each owner", "variant": "positive control of a4-label-counts", "rounds": 1}
    value["cells"] = [
        scored("plaintext", 0.1, False, **A4),
        scored("plaintext", 1.0, True, **A4, settings=control),
    ]
    text = text_of(build(tmp_path, value))
    assert "read single owners’ numbers of training nodes by class (in settings that suit the attack)" in text
    assert "rounds = 1" in text


def test_recovered_features_adversaries_and_what_would_stop_them(tmp_path: Path) -> None:
    page = build(tmp_path, neighgen_json())
    text = text_of(page)
    assert "An owner (honest-but-curious), on channel feedback" in text
    assert "The server (honest-but-curious), on channel feedback" in text
    assert "only raw node features of all owners together" in text
    assert "What would stop it: nothing built yet stops it" in text
    assert "exchange batch 8" in text and "training.exchange_batch = 64" in text
    names = {p.name for p in (tmp_path / "plots").iterdir()}
    # a picture of what was recovered exactly, none of what was not
    assert "c2-strictest-client-union.png" in names and "c2-plaintext-server-each.png" not in names


def test_values_from_files_are_escaped(tmp_path: Path) -> None:
    value = audit_json()
    value["command"] = HOSTILE
    value["cells"][0] |= dict.fromkeys(("policy", "attack", "title", "subject", "verdict"), HOSTILE)
    value["runs"][0]["policy"] = HOSTILE
    value["reconstructions"][0] |= dict.fromkeys(("policy", "attack", "subject"), HOSTILE)
    value["reconstructions"][0]["targets"][0]["owner"] = HOSTILE
    value["runs"][0]["result"]["channels"][0]["name"] = f'"><img src=x onerror=y>{HOSTILE}'
    page = build(tmp_path, value)
    assert "<script" not in page and "<img" not in page
    assert "&lt;script&gt;" in page
    assert all(tag not in ("script", "img") for tag, _ in Tags(page).tags)
    assert {p.parent for p in tmp_path.rglob("*.png")} == {tmp_path / "plots"}


def test_missing_numbers_show_as_missing(tmp_path: Path) -> None:
    value = run_json(seconds=None, carriers=None)
    value["accuracy"] = {"global": None, "local": None}
    value["rounds"] = [
        {"round": 1, "loss": None, "accuracy": {"global": None}},
        {"round": 2, "loss": None, "accuracy": None},
    ]
    value["channels"][0] |= {"bytes_up": None, "messages": None, "excess": None}
    page = build(tmp_path / "run", value)
    assert "nan" not in text_of(page).lower().replace("finance", "")
    audit = audit_json()
    audit["cells"][0] |= {"score": None, "low": None, "high": None, "baseline": None}
    audit["reconstructions"][0]["targets"][0]["guess"][0] = None
    build(tmp_path / "audit", audit)


@pytest.mark.parametrize("kind", ["run", "audit"])
def test_nearly_empty_json_still_makes_a_page(tmp_path: Path, kind: str) -> None:
    page = build(tmp_path, {"schema": f"secure-fedgraph/{kind}/1", "config": {}, "cells": [], "accuracy": {}})
    assert "Configuration" in page and "None" not in page and ", seed" not in page


def test_an_audit_of_a_finished_run_shows_the_audit(tmp_path: Path) -> None:
    build(tmp_path, run_json())
    before = {p.name for p in (tmp_path / "plots").iterdir()}
    page = build(tmp_path, audit_json())
    assert "what leaks" in page
    after = {p.name for p in (tmp_path / "plots").iterdir()}
    assert before < after and "a1-masked-server-union.png" in after


def test_pictures_of_an_earlier_page_go_away(tmp_path: Path) -> None:
    build(tmp_path, run_json())
    (tmp_path / "plots" / "old.png").write_bytes(b"")
    write_report(tmp_path)
    assert not (tmp_path / "plots" / "old.png").exists()


def test_a_folder_without_results_is_refused_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput,
        match=r"compare\.json.*audit\.json.*result\.json",
    ):
        write_report(tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(BadInput, match="is not JSON"):
        write_report(tmp_path)
    (tmp_path / "result.json").write_text('{"schema": "secure-fedgraph/run/9"}')
    with pytest.raises(BadInput, match="run/9"):
        write_report(tmp_path)
