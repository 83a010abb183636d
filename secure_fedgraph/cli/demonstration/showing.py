"""The work of ``demo``: scenes in turn, ``demo.json``, the page, and one sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from secure_fedgraph.cli.demonstration import scenes
from secure_fedgraph.cli.options import command_line
from secure_fedgraph.cli.screen import Screen, plain_warnings
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.results import fresh_folder, make_federation, write_json
from secure_fedgraph.experiment.schema import DemoResult, as_read
from secure_fedgraph.federation import Federation
from secure_fedgraph.report.page import write_report
from secure_fedgraph.report.sections.demo_page import sentence

STEPS = 6
FACTS = ("source", "digest", "nodes", "features", "classes")


def demo(out: Path, data: str, seed: int, overwrite: bool, **flags: Any) -> None:
    """Attacks training in the open and under a budget, and shows what was read and what the budget costs."""
    screen, started = Screen(flags), time.perf_counter()
    fresh_folder(out, overwrite)
    with screen.bar("reading the data", STEPS) as advance, plain_warnings():
        result = shown(data, seed, screen.note, advance)
    result |= {"command": command_line(), "seconds": round(time.perf_counter() - started, 1)}
    write_json(out / "demo.json", result)
    page = write_report(out)
    screen.say(f"{sentence(as_read(DemoResult, result))}\nReport: {page}", result)


def shown(data: str, seed: int, note: Callable[[str], None], advance: Callable[..., None]) -> dict[str, Any]:
    """The result, without the command and its seconds.

    Args:
        note: takes a line before each part.
        advance: counts a part that is done.
    """
    values = {"data": data, "seed": seed}
    federation = make_federation(load(None, {**values, "algorithm": "fedsage", "clients": 3}, ()))
    facts = federation.facts
    advance("attacks in the open")
    note(f"{facts['data']}: {facts['nodes']:,} nodes, three owners. The server attacks training in the open.")
    in_the_open = scene({**values, "policy": "plaintext"}, federation)
    advance("the same attacks under masks")
    note("The same attacks where the server sees sums only.")
    masked = scene({**values, "policy": "masked"}, federation)
    advance("the same attacks under a budget")
    note("The same attacks where these sums carry noise, for a node's epsilon of 2.")
    protected = scene({**values, **scenes.BUDGET}, federation)
    advance("what the budget costs")
    note("What a model scores under that budget, beside owners alone and beside no privacy.")
    prices = scenes.prices(values, federation)
    advance("the page")
    return {
        "schema": "secure-fedgraph/demo/1",
        "seed": seed,
        "data": {"name": facts["data"], **{key: facts[key] for key in FACTS}},
        "owners": list(federation.names),
        "open": in_the_open,
        "masked": masked,
        "protected": protected,
        "prices": prices,
    }


def scene(values: dict[str, Any], federation: Federation) -> dict[str, Any]:
    """Both attacks under one policy."""
    labels, first = scenes.labels_scene(values, federation)
    nodes, second = scenes.nodes_scene(values, federation)
    noised = "epsilon" in values
    return {
        "policy": values["policy"],
        "epsilon": first["epsilon"] if noised else "inf",
        "labels": labels,
        **nodes,
        "uploads": first["uploads"] + second["uploads"],
        "readable": first["readable"] + second["readable"],
        "reasons": [reason for reason in (first["reason"], second["reason"]) if reason],
    }
