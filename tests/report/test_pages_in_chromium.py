"""The page in headless Chromium: no word on the console, no request, nothing wider than a phone; and whoever
reads it by keyboard, by ear or with weak sight finds everything."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from test_audit_page_grid import grid_json
from test_report_page import audit_json, build, cell, run_json, scored
from test_true_against_guessed import GRAPH, record

Call = Callable[..., Awaitable[Any]]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REVIEW = (Path(__file__).parent / "review_of_a_page.js").read_text(encoding="utf-8")
SHEET = {"width": 688, "height": 1000}  # A4 without its margins, in CSS pixels
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[tuple[Call, list[dict[str, Any]]]]:
    """A call into a headless browser's only tab, and what the browser noted meanwhile."""
    import aiohttp

    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [str(CHROMIUM), *options, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = folder / "DevToolsActivePort"
        for _ in range(600):
            if told.is_file() and told.read_text().count("\n"):
                break
            await asyncio.sleep(0.1)
        port = told.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
            async with session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                numbers, noted = itertools.count(1), list[dict[str, Any]]()

                async def call(method: str, **params: Any) -> Any:
                    number = next(numbers)
                    await socket.send_json({"id": number, "method": method, "params": params})
                    while True:
                        message = json.loads((await socket.receive()).data)
                        if message.get("id") == number:
                            return message["result"]
                        noted.append(message)

                for domain in ("Page", "Runtime", "Log", "Network"):
                    await call(f"{domain}.enable")
                yield call, noted
    finally:
        process.terminate()
        process.wait()


async def look(call: Call, expression: str) -> Any:
    said = await call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
    assert "exceptionDetails" not in said, said["exceptionDetails"]
    return said["result"].get("value")


async def open_page(call: Call, page: Path, width: int, theme: str = "light") -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    await call("Emulation.setDeviceMetricsOverride", **size)
    feature = {"name": "prefers-color-scheme", "value": theme}
    await call("Emulation.setEmulatedMedia", media="", features=[feature])
    await call("Page.navigate", url=page.resolve().as_uri())
    for _ in range(200):
        if await look(call, "document.readyState === 'complete' && location.protocol === 'file:'"):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{page} was not loaded")


async def tab_stops(call: Call) -> list[dict[str, Any]]:
    """What the tabulator key stops at, from the page's top to where it leaves the page."""
    found: list[dict[str, Any]] = []
    for _ in range(500):
        for kind in ("keyDown", "keyUp"):
            await call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
        stop = await look(call, "stopped()")
        if stop is None or (found and stop["at"] <= found[-1]["at"]):
            return found
        found.append(stop)
    raise AssertionError("more than 500 stops")


async def visit(page: Path, folder: Path) -> dict[str, Any]:
    """What is wrong with a page on a phone and on a desk, in light and dark, by eye and by keyboard."""
    found: dict[str, Any] = {"wrong": [], "unreached": [], "unseen": [], "wide": []}
    async with browser(folder) as (call, noted):
        for width, theme in ((390, "light"), (1280, "dark")):
            await open_page(call, page, width, theme)
            if await look(call, "document.documentElement.scrollWidth > innerWidth"):
                found["wide"].append(width)
            await look(call, REVIEW)
            found["wrong"] += [f"{theme}: {fault}" for fault in await look(call, "review()")]
        stops = await tab_stops(call)
        wanted = await look(call, "stops()")
        found["unreached"] = sorted(set(wanted) - {stop["at"] for stop in stops})
        found["unseen"] = [stop for stop in stops if not stop["outlined"]]
        found["first"] = stops[0]["text"]
        found["number"] = len(stops)
        await open_page(call, page, 1280)
        await look(call, REVIEW)
        found["screens"] = await look(call, "first_fold() / innerHeight")
        found["closed"] = await look(call, "folded()")
        dark = [{"name": "prefers-color-scheme", "value": "dark"}]
        await call("Emulation.setDeviceMetricsOverride", **{**SHEET, "mobile": False, "deviceScaleFactor": 1})
        await call("Emulation.setScrollbarsHidden", hidden=True)
        await call("Emulation.setEmulatedMedia", media="print", features=dark)
        found["unprinted"] = await look(call, "unprinted()")
        spoken = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        found["console"] = [json.dumps(m)[:200] for m in noted if m["method"] in spoken]
        asked = [m["params"]["request"]["url"] for m in noted if m["method"] == "Network.requestWillBeSent"]
        found["asked"] = [url for url in asked if not url.startswith((page.resolve().as_uri(), "data:"))]
    return found


def stolen_json() -> dict[str, Any]:
    """Three policies: one that leaks, one that leaves a sum, one that leaves nothing."""
    value, counts = audit_json(), {"owner": "owner-0", "true": [10.0, 4.0], "guess": [10.0, 4.0]}
    row = {"owner": "owner-0", "true": [[0, 1, 0, 1]], "guess": [[0, 1, 0, 1]]}
    labels = {"attack": "a4-label-counts", "subject": "numbers of training nodes by class"}
    nodes = {"attack": "a5-planted-units", "subject": "single nodes"}
    about = {"seed": 0, "variant": "as configured", "policy": "plaintext", "aim": "each owner"}
    value["policies"] = ["plaintext", "masked", "local_dp"]
    value["cells"] = [
        scored("plaintext", 1.0, True, **labels), scored("plaintext", 1.0, True, **nodes),
        cell("masked", "blind", **labels), scored("masked", 1.0, True, "what the defence leaves", **nodes),
        scored("local_dp", 0.2, False, **labels), cell("local_dp", "blind", **nodes),
    ]  # fmt: skip
    value["runs"] = [
        {"variant": "as configured", "policy": p, "result": run_json(p, epsilon=e)}
        for p, e in (("plaintext", "inf"), ("masked", "inf"), ("local_dp", 2.0))
    ]
    value["runs"][0]["result"]["data"]["feature_names"] = ["age", "debt", "income", "postcode"]
    value["reconstructions"] = [
        {**about, "attack": labels["attack"], "kind": "label shares", "targets": [counts]},
        {**about, "attack": nodes["attack"], "kind": "nodes found by an oracle", "targets": [row]},
        {**about, "attack": labels["attack"], "kind": "label shares", "policy": "local_dp",
         "targets": [{**counts, "guess": [0.0, 40.0]}]},
    ]  # fmt: skip
    return value


def point(kind: str, epsilon: Any, score: float) -> dict[str, Any]:
    return {
        "name": f"fedsage-{epsilon}", "kind": kind, "algorithm": "fedsage", "policy": "local_dp",
        "unit": "client", "epsilon": epsilon, "outcome": "ran", "spent": epsilon, "accountant": "pld",
        "computational": False, "measure": "accuracy", "accuracy": {"global": score, "local": score},
        "std": {"global": 0.01, "local": 0.01}, "interval": {"global": [score - 0.02, score + 0.02]},
        "seeds": 2, "bytes": 1000,
        "each": [{"seed": s, "accuracy": {"global": score + s / 50}} for s in (0, 1)],
        "worth": "Worth spending: above." if kind == "budget" else "", "commonest_class": 0.3,
        "without_graph": WITHOUT if kind == "budget" else None,
        "larger_units": ["One node's epsilon is larger: so."] if kind == "budget" else [],
        "seconds": 1.0, "leak": {"a1-vocabulary-support": "blind"},
    }  # fmt: skip


WITHOUT = {"name": "no-graph", "algorithm": "fedsage", "accuracy": {"global": 0.29}}


def compare_json() -> dict[str, Any]:
    return {
        "schema": "secure-fedgraph/compare/1", "command": "secure-fedgraph compare", "versions": {},
        "config": {"data": "cora", "clients": 3, "unit": "client"}, "seeds": [0, 1], "seconds": 9.0,
        "points": [point("no privacy", "inf", 0.8), point("budget", 2.0, 0.3), point("budget", 8.0, 0.6)],
        "pareto": ["fedsage-8.0"],
    }  # fmt: skip


def without_a_budget() -> dict[str, Any]:
    value = compare_json()
    return {**value, "points": [{**point, "kind": "policy"} for point in value["points"]]}


def links_json() -> dict[str, Any]:
    """Several algorithms, and guessed links."""
    target = {"owner": "owner-0", "true": [], "guess": [], "graph": GRAPH}
    return grid_json(reconstructions=[record("plaintext", target, algorithm="glasu")])


PAGES = {
    "a run": run_json,
    "an audit of several algorithms": links_json,
    "an audit of one algorithm": audit_json,
    "words and what masks leave": stolen_json,
    "a comparison": compare_json,
    "a comparison without a budget": without_a_budget,
}


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_wrong_with(page: str, tmp_path: Path) -> None:
    build(tmp_path, PAGES[page]())
    found = asyncio.run(visit(tmp_path / "report.html", tmp_path / "profile"))
    assert found["asked"] == [] and found["console"] == [] and found["wide"] == []
    assert found["wrong"] == [] and found["unprinted"] == []
    assert found["first"] == "Skip to the verdict" and found["number"] > 5
    assert found["unreached"] == [] and found["unseen"] == []
    assert 0 < found["screens"] <= 3
    assert found["closed"] == []


def test_the_review_sees_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><html><meta name=viewport content=width=device-width>"
        "<body style='background:#fff;color:#000'><h1>A</h1><h3>B</h3>"
        "<p style='color:#999'>pale</p><table><tr><th>head</th></tr></table>"
        "<svg class='plot'><text fill='#eee'>x</text></svg><div role='img'>y</div>"
        "<div style='width:300px'><table class='stack' style='width:400px'><tr><td>z</td></tr></table></div>"
        "<div style='height:3000px'></div><a href='#nowhere' style='outline:none'>link</a></body></html>"
    )
    found = asyncio.run(visit(page, tmp_path / "profile"))
    told = "\n".join(found["wrong"])
    for fault in ("no lang", "h3 after h1", "2.8:1", "table without a name", "th without scope",
                  "plot outside an image", "image without a label", "#nowhere", "no skip link",
                  "too wide for a phone (400)"):  # fmt: skip
        assert fault in told, fault
    assert found["unseen"] and found["screens"] > 3
    assert any("2.8:1" in fault for fault in found["unprinted"])
