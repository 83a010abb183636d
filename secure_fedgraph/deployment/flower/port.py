"""The server's port: what of a SuperLink may be asked there, by whom, and how much."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn

from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.deployment.flower.private import ARRIVALS, BEAT, FLEET, PULL, Link

LARGEST = 2**31
"""Bytes of a request that is read."""
HOLD = 0.5
"""Seconds that a question for messages is kept while there are none: asked again and again, such questions
would be a fifth of the server's work."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Admits = Callable[[Mapping[bytes, bytes]], bytes | None]


class Bell:
    """Lets questions for messages wait until somebody sent one."""

    def __init__(self) -> None:
        self._rung = 0
        self._heard: dict[bytes, int] = {}
        self._next = asyncio.Event()

    def ring(self) -> None:
        """Says that a message was sent."""
        self._rung += 1
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, caller: bytes) -> None:
        """Returns at once where a message was sent since this caller asked last, else after ``HOLD``."""
        if self._heard.get(caller) == self._rung:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._next.wait(), HOLD)
        self._heard[caller] = self._rung


class Only:
    """An application that answers the Fleet requests of known callers, and nothing else.

    Guarantees:
        - a request of somebody else is answered 401 before a byte of its body is read: Flower itself reads
          the whole body first;
        - every other path is 404;
        - no request of more than ``LARGEST`` bytes is kept;
        - a question for messages is answered when there is one, or after ``HOLD``.

    Args:
        app: Flower's application.
        admits: the key of the federation's node that signed these headers, if one did.
        sent: what questions for messages wait for.
        came: called when a part of an answer came.
    """

    def __init__(self, app: Application, admits: Admits, sent: Bell, came: Callable[[], None]) -> None:
        self._app, self._admits, self._sent, self._came = app, admits, sent, came

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        caller = self._admits(dict(scope["headers"])) if path.startswith(FLEET) else None
        if caller is None:
            await _refuse(send, 401 if path.startswith(FLEET) else 404)
            return
        if path == PULL:
            await self._sent.wait(caller)
        await self._app(scope, _at_most(receive, LARGEST), send)
        if path in ARRIVALS:
            self._came()


def _at_most(receive: Receive, most: int) -> Receive:
    """Reads a body of at most so many bytes; a longer one ends as if its caller had gone."""
    read = 0

    async def receive_some() -> MutableMapping[str, Any]:
        nonlocal read
        part = await receive()
        read += len(part.get("body", b""))
        return part if read <= most else {"type": "http.disconnect"}

    return receive_some


async def _refuse(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


class Port:
    """A SuperLink on a port with TLS, answered by a thread of this process until :meth:`close`.

    Args:
        link: the SuperLink.
        host, port: where it listens.
        certificate, key: the server's, as PEM files.
        log: a file for what Flower says.

    Raises:
        BadInput: where the port is taken.
    """

    def __init__(self, link: Link, host: str, port: int, certificate: Path, key: Path, log: Path) -> None:
        self._link, self._bell, self._came = link, Bell(), threading.Event()
        config = uvicorn.Config(
            Only(link.app, link.signer, self._bell, self._came.set),
            ssl_certfile=certificate,
            ssl_keyfile=key,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=3,
        )
        config.load()
        self._server, self._bound = uvicorn.Server(config), _bound(host, port)
        self._log = logging.FileHandler(log)
        _say_to(self._log)
        self._runner = asyncio.Runner(loop_factory=config.get_loop_factory())
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def ring(self) -> None:
        """Says that a message was sent.

        Raises:
            SecureFedGraphError: where nobody answers on the port any more.
        """
        if not self._thread.is_alive():
            raise SecureFedGraphError("the SuperLink ended; superlink.log says why: start the server again")
        self._loop.call_soon_threadsafe(self._bell.ring)

    def wait(self) -> None:
        """Returns once a part of an answer came since the last call, or after ``HOLD``."""
        self._came.wait(HOLD)
        self._came.clear()

    def close(self) -> None:
        """Ends it."""
        self._server.should_exit = True
        self._thread.join(10)
        _say_to(logging.NullHandler())
        self._log.close()

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._serve())

    async def _serve(self) -> None:
        beats = asyncio.ensure_future(self._beats())
        await self._server.serve([self._bound])
        beats.cancel()

    async def _beats(self) -> None:
        while True:
            self._link.beat()
            await asyncio.sleep(BEAT)


def _say_to(handler: logging.Handler) -> None:
    """Sends Flower's errors there, and nothing of it to this process' output."""
    for name in ("flwr", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.ERROR)


def _bound(host: str, port: int) -> socket.socket:
    # without the protocol's name asyncio leaves Nagle's delay on, and a request takes 40 ms
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, proto=socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen()  # who connects before the thread runs waits, and is not refused
    except OSError as error:
        bound.close()
        place, why = f"{host}:{port}", error.strerror or str(error)
        raise BadInput(
            f"the SuperLink does not start on {place} ({why}): free that port, or give another"
        ) from None
    return bound
