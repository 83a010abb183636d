"""The page in headless Chromium: no word on the console, no request, nothing wider than a phone."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_audit_page_grid import build

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
HEADS = "document.querySelectorAll('h1').length"
SHOW = f"JSON.stringify([document.documentElement.scrollWidth, innerWidth, {HEADS}])"


async def visit(page: Path, folder: Path, width: int) -> tuple[list[int], list[str]]:
    """What the page says of its width, and what the browser noted meanwhile."""
    import aiohttp

    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [str(CHROMIUM), *options, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = folder / "DevToolsActivePort"
        for _ in range(300):
            if told.is_file() and told.read_text().count("\n"):
                break
            await asyncio.sleep(0.1)
        port = told.read_text().splitlines()[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [tab for tab in await answer.json() if tab["type"] == "page"]
            async with session.ws_connect(tabs[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                numbers, noted = itertools.count(1), []

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
                await call(
                    "Emulation.setDeviceMetricsOverride",
                    width=width,
                    height=800,
                    deviceScaleFactor=1,
                    mobile=True,
                )
                await call("Page.navigate", url=page.resolve().as_uri())
                await asyncio.sleep(1.0)
                said = await call("Runtime.evaluate", expression=SHOW, returnByValue=True)
    finally:
        process.terminate()
        process.wait()
    wrong = [
        json.dumps(m)[:200]
        for m in noted
        if m["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
    ]
    asked = [m["params"]["request"]["url"] for m in noted if m["method"] == "Network.requestWillBeSent"]
    wrong += [url for url in asked if not url.startswith((page.resolve().as_uri(), "data:"))]
    return json.loads(said["result"]["value"]), wrong


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_an_audit_on_a_phone(tmp_path: Path):
    build(tmp_path)
    size, wrong = asyncio.run(visit(tmp_path / "report.html", tmp_path / "profile", 390))
    assert wrong == []
    assert size == [390, 390, 1]
