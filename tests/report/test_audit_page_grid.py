"""The page of a grid over algorithms: heat map, what was not run, conformance, broken claims, the ledger."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import result_parts
from test_report_page import Tags, build

from secure_fedgraph.report.grouping import above, anchor
from secure_fedgraph.report.outcomes import leak_table
from secure_fedgraph.report.sections import trained
from secure_fedgraph.report.sections.audit_page import conformance_section, left_out
from secure_fedgraph.report.sections.learning import accuracy

EACH, LEFT = "each owner", "what the defence leaves"


def cell(
    algorithm: str, policy: str, attack: str, outcome: str, aim: str = EACH, **changes: Any
) -> dict[str, Any]:
    value = {
        "algorithm": algorithm, "policy": policy, "attack": attack, "adversary": "server",
        "behaviour": "honest-but-curious", "channel": "update", "outcome": outcome, "metric": None,
        "score": None, "low": None, "high": None, "baseline": None, "baselines": {}, "ceiling": None,
        "claim": None, "leaks": False, "verdict": outcome, "reason": "", "seed": 0,
        "settings": {"aim": aim, "variant": "as configured"},
    }  # fmt: skip
    return {**value, **changes}


def scored(
    algorithm: str, policy: str, attack: str, score: float, base: float, **changes: Any
) -> dict[str, Any]:
    more = {"metric": "f1", "score": score, "low": score - 0.02, "high": score, "baseline": base,
            "baselines": {"trivial": base}, "leaks": score - 0.02 > base, "verdict": "leak"}  # fmt: skip
    return cell(algorithm, policy, attack, "score", **{**more, **changes})


A1, D2 = "a1-vocabulary-support", "d2-subtracted-rows"
CLAIM = {"unit": "client", "epsilon": 1.0, "delta": 1e-5, "against": "server", "units": 1}
CELLS = [
    scored("fedsage", "plaintext", A1, 1.0, 0.5),
    scored("fedsage", "plaintext", A1, 0.8, 0.5, settings={"aim": EACH, "variant": "a control"}),
    cell("fedsage", "masked", A1, "blind"),
    scored("fedsage", "masked", A1, 0.4, 0.5, settings={"aim": LEFT, "variant": "as configured"}),
    scored("fedsage", "local_dp", A1, 0.9, 0.5, ceiling=0.7, claim=CLAIM),
    cell("fedsage", "central_dp", A1, "refused", reason="no norm"),
    scored("glasu", "plaintext", D2, 0.7, 0.1),
]
NOT_RUN = {"algorithm": "glasu", "attack": D2, "adversary": "client", "variant": "as configured", "seed": 0,
           "reason": "about 300 s are estimated <b>", "failed": False}  # fmt: skip
LOST = [{**NOT_RUN, "policy": policy} for policy in ("masked", "local_dp")]
POLICIES = ["plaintext", "masked", "local_dp", "central_dp"]


def places(table: dict[str, Any]) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    return {
        (group["algorithm"], attack["attack"], row["aim"], policy): place
        for group in table["groups"]
        for attack in group["attacks"]
        for row in attack["rows"]
        for policy, place in zip(table["policies"], row["places"], strict=True)
    }


def test_the_table_shows_the_worst_of_each_attack():
    found = places(leak_table(result_parts.cells(CELLS), result_parts.not_run(LOST), POLICIES))
    at = {(p, aim): found["FedSage", A1, aim, p] for p in POLICIES for aim in ("each owner", "all together")}
    assert (at["plaintext", "each owner"]["text"], at["plaintext", "each owner"]["state"]) == (
        "1.000",
        "leak",
    )
    assert at["masked", "each owner"]["state"] == "blind"
    assert (at["masked", "all together"]["state"], at["masked", "all together"]["heat"]) == ("scored", 0)
    assert at["local_dp", "each owner"]["state"] == "broken"
    assert at["central_dp", "each owner"]["state"] == at["central_dp", "all together"]["state"] == "refused"
    assert at["plaintext", "each owner"]["heat"] > at["local_dp", "each owner"]["heat"] > 0
    assert found["GLASU", D2, "each owner", "masked"]["text"] == "not run"
    assert found["GLASU", D2, "each owner", "central_dp"]["text"] == "–"


def test_what_is_above_a_ceiling():
    one = result_parts.cell
    assert above(one(CELLS[4])) and not above(one(CELLS[0]))
    assert not above(one({**CELLS[4], "ceiling": 0.95}))


def test_runs_that_share_a_reason_share_a_row():
    assert left_out(result_parts.not_run(LOST)) == [
        ["GLASU", "masked, local_dp", "as configured", "0", "D2", "about 300 s are estimated <b>"]
    ]


def row(policy: str, check: str, outcome: str, *findings: str) -> dict[str, Any]:
    return {"algorithm": "fedsage", "policy": policy, "seed": 0, "variant": "as configured", "check": check,
            "says": f"what {check} holds", "outcome": outcome, "count": len(findings),
            "findings": list(findings)}  # fmt: skip


CHECKED = [
    row("plaintext", "data", "leak", "update: a message holds a row"),
    row("masked", "data", "passed"),
    row("plaintext", "ledger", "passed"),
    row("masked", "ledger", "failed", "update: nobody paid"),
]


def test_conformance_tells_a_leak_from_a_failure():
    found = conformance_section(result_parts.conformance(CHECKED), several=False)
    assert found is not None
    states = {r["label"]: [p["state"] for p in r["places"]] for r in found["rows"]}
    assert states == {"plaintext": ["leak", "passed"], "masked": ["passed", "failed"]}
    assert found["sentence"].startswith("2 checks of 2 runs: 1 fail; 1 time a client's data")
    assert [f["leak"] for f in found["findings"]] == [True, False]
    assert conformance_section([], several=False) is None


def grid_json(**changes: Any) -> dict[str, Any]:
    value = {
        "schema": "secure-fedgraph/audit/1", "command": "secure-fedgraph audit", "policies": POLICIES,
        "config": {"algorithm": "fedsage", "data": "cora", "clients": 3, "partition": "louvain"},
        "configs": [{"data": "cora"}, {"data": "cora"}], "seed": [0], "seconds": 60.0, "versions": {},
        "cells": CELLS, "not_run": LOST, "conformance": CHECKED, "runs": [], "reconstructions": [],
        "estimate": {"sentence": "2 runs, about 5 min on 2 processes"},
        "broken": ["a1 by the server scored 0.9"],
    }  # fmt: skip
    return {**value, **changes}


def test_the_page_of_several_algorithms(tmp_path: Path):
    page = build(tmp_path, grid_json())
    ids, links = (Tags(page).every(key) for key in ("id", "href"))
    assert len(ids) == len(set(ids)) and {one[1:] for one in links} <= set(ids)
    assert anchor("fedsage", A1) in ids and "#" + anchor("glasu", D2) in links
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert (
        "FedSage and GLASU on Cora: what leaks" in words or "FedSage and GLASU on cora: what leaks" in words
    )
    assert "A claim is broken" in words and "a1 by the server scored 0.9" in words
    assert "about 300 s" in words
    assert "Estimate before the start: 2 runs, about 5 min on 2 processes." in words
    assert "about 300 s are estimated &lt;b&gt;" in page and "<b>" not in page
    assert "ceiling of any attack" in words and "ε = 1 for a whole owner" in words
    assert "update: nobody paid" in words


def test_an_audit_without_any_of_it_is_still_a_page(tmp_path: Path):
    gone = ("not_run", "conformance", "broken", "estimate", "configs")
    page = build(tmp_path, grid_json(cells=CELLS[:1], **dict.fromkeys(gone)))
    assert 'id="left-out"' not in page and 'id="conformance"' not in page and "broken</span>" not in page


def test_what_algorithms_of_a_grid_share_and_what_not():
    graphs, nodes = {"clients": 10, "partition": "random"}, {"clients": 3, "partition": "louvain"}
    configs = [{**nodes, "algorithm": "fedsage"}, {**nodes, "algorithm": "fedsage+"}]
    assert trained.owners(configs) == "3 owners, split by louvain"
    told = trained.owners([*configs, {**graphs, "algorithm": "fairgraphfl"}])
    assert told == (
        "FedSage and FedSage+: 3 owners, split by louvain; FairGraphFL: 10 owners, split by random"
    )
    cut = {"name": "random", "graphs": 5, "sizes": [2, 3]}
    run = result_parts.trained("plaintext", [{"seed": 0, "data": {"data": "proteins", "partition": cut}}])
    again = result_parts.trained("masked", [{"seed": 0, "data": {"data": "proteins", "partition": cut}}])
    ((seed, found),) = trained.partition([run, again])
    assert (seed, found.data, found.partition.sizes) == (0, "proteins", [2, 3])


def test_a_loss_that_nobody_has_is_not_drawn():
    history = [{"round": i, "accuracy": {"global": 0.5}, "loss": None} for i in (1, 2)]
    found = accuracy([result_parts.trained("plaintext", [{"accuracy": {"global": 0.5}}], [history])])
    assert found is not None and [picture.name for picture in found.pictures] == ["accuracy-by-round"]
    history[1]["loss"] = 0.25
    found = accuracy([result_parts.trained("plaintext", [{"accuracy": {"global": 0.5}}], [history])])
    assert found is not None and len(found.pictures) == 2
