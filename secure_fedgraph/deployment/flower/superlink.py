"""The SuperLink in a process of its own: ``python -m secure_fedgraph.deployment.flower.superlink``.

It reads its settings from its input as one line of JSON, says on its output what the server needs to know,
and ends with its parent. What it keeps is in memory: a restarted one knows the same node keys again, and the
run goes on from its checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import sys
import threading
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

from secure_fedgraph.deployment.flower.pinned import check_flower

FLEET, RUNTIME = "/v1/fleet/", "/v1/runtime/"
"""Paths of Flower's interfaces: for silos, and for the server of this federation."""
PULL, PUSH = "pull-messages", "push-messages"
LARGEST = 2**31
"""Bytes of a request that is read: a body is at most :data:`LARGEST`."""
HOLD = 0.5
"""Seconds that a question for messages is kept while there are none: asked again and again, such questions
would be a fifth of the SuperLink's work."""
_BEAT = 10.0
_PARENT_DEATH = 1  # prctl's PR_SET_PDEATHSIG

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
    """An application that answers requests under one path, of known callers, and nothing else.

    Guarantees:
        - silos reach the Fleet interface alone: Flower's control interface, which starts runs and registers
          nodes without a login, is on no port;
        - with a check of callers, a request of somebody else is answered 401 before a byte of its body is
          read: Flower itself reads the whole body first;
        - no request of more than ``LARGEST`` bytes is kept;
        - a question for messages is answered when there is one, or after ``HOLD``.

    Args:
        app: Flower's application.
        path: where its requests begin.
        starts: whether it starts the application and ends it.
        sent: rung when a message was sent on this path.
        came: what questions for messages on this path wait for.
        admits: the key of the federation's node that signed these headers, if one did.
    """

    def __init__(
        self, app: Application, path: str, starts: bool, sent: Bell, came: Bell, admits: Admits | None = None
    ) -> None:
        self._app, self._path, self._starts, self._admits = app, path, starts, admits
        self._sent, self._came = sent, came

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            if self._starts:
                await self._app(scope, receive, send)
        elif scope["type"] == "http":
            if not scope["path"].startswith(self._path):
                await _refuse(send, 404)
                return
            caller = self._admits(dict(scope["headers"])) if self._admits is not None else b""
            if caller is None:
                await _refuse(send, 401)
            else:
                asks = scope["path"][len(self._path) :]
                if asks == PULL:
                    await self._came.wait(caller)
                await self._app(scope, _at_most(receive, LARGEST), send)
                if asks == PUSH:
                    self._sent.ring()


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


def nodes_only(keys: Collection[bytes]) -> Admits:
    """Admits requests whose time is signed with one of these keys; how old they may be is Flower's to check.

    Args:
        keys: public keys of the federation's nodes, as Flower's headers carry them.
    """
    from flwr.common.constant import TIMESTAMP_HEADER
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    known = {key: bytes_to_public_key(key) for key in keys}
    names = [
        name.lower().encode()
        for name in (FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER, TIMESTAMP_HEADER)
    ]

    def admits(headers: Mapping[bytes, bytes]) -> bytes | None:
        text, signed, timestamp = (headers.get(name, b"") for name in names)
        try:
            key = b64decode(text, validate=True)
            node = known.get(key)
            signature = b64decode(signed, validate=True)
        except ValueError:
            return None
        return key if node is not None and verify_signature(node, timestamp, signature) else None

    return admits


def main() -> None:
    """Serves until its parent ends."""
    _end_with_parent()
    settings = json.loads(sys.stdin.readline())
    check_flower()
    import uvicorn
    from flwr.common.constant import NOOP_ACCOUNT_NAME, NOOP_FLWR_AID
    from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, TaskType
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig, load_control_authn_plugin
    from flwr.superlink.main import create_app

    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = SuperLinkLifespanConfig(
        control_address="",
        health_server_address=None,
        host=settings["host"],
        port=settings["port"],
        insecure=False,
        certificates=None,
        superexec_auth_secret=None,
        authn_plugin=load_control_authn_plugin(),
        event_log_plugin=None,
        fleet_event_log_plugin=None,
        enable_event_log=False,
        artifact_provider=None,
        enable_supernode_auth=True,
        fleet_api_type="grpc-rere",
        fleet_api_address=None,
        simulation=False,
        ssl_ca_certfile=None,
        ssl_certfile=settings["certificate"],
        ssl_keyfile=settings["key"],
        database=FLWR_IN_MEMORY_DB_NAME,
        isolation="process",
        runtime_dependency_install=False,
    )
    app = create_app(config, SuperLinkLifespan)
    # what they guard is on no port, and each costs every request a task and two streams
    app.user_middleware = [one for one in app.user_middleware if not _guards_control(one.cls)]
    state = app.state.linkstate_factory.state()
    keys = {name: bytes.fromhex(key) for name, key in settings["nodes"].items()}
    nodes = {name: state.create_node(NOOP_FLWR_AID, NOOP_ACCOUNT_NAME, key, 0) for name, key in keys.items()}
    run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
    (task,) = state.get_tasks(run_ids=[run])
    token = state.claim_task(task.task_id)
    state.activate_task(task.task_id)

    # without the protocol's name asyncio leaves Nagle's delay on, and a request takes 40 ms
    private = socket.socket(proto=socket.IPPROTO_TCP)
    private.bind(("127.0.0.1", 0))
    private.listen()  # who connects before the loop runs waits, and is not refused
    public = _bound(settings["host"], settings["port"])
    quiet: dict[str, Any] = {"log_level": "error", "access_log": False, "timeout_keep_alive": 75}
    for_silos, for_server = Bell(), Bell()
    inner = uvicorn.Server(
        uvicorn.Config(Only(app, RUNTIME, False, sent=for_silos, came=for_server), lifespan="off", **quiet)
    )
    outer = uvicorn.Server(
        uvicorn.Config(
            Only(app, FLEET, True, sent=for_server, came=for_silos, admits=nodes_only(keys.values())),
            ssl_certfile=settings["certificate"],
            ssl_keyfile=settings["key"],
            **quiet,
        )
    )

    async def serve() -> None:
        # two threads with a loop each would take turns, and every request would wait for its turn
        await asyncio.gather(inner.serve([private]), outer.serve([public]))

    def beat() -> None:
        while True:
            state.acknowledge_task_heartbeat(task.task_id)
            threading.Event().wait(_BEAT)

    threading.Thread(target=beat, daemon=True).start()
    known = {"run": run, "token": token, "port": private.getsockname()[1], "nodes": nodes}
    print(json.dumps(known), flush=True)
    with asyncio.Runner(loop_factory=outer.config.get_loop_factory()) as runner:
        runner.run(serve())


def _guards_control(middleware: object) -> bool:
    """Whether a layer of Flower's application concerns the control interface alone."""
    from flwr.superlink.routers.control import middlewares

    return getattr(middleware, "__module__", "") == middlewares.__name__


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, proto=socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        print(json.dumps({"error": error.strerror or str(error)}), flush=True)
        sys.exit(1)
    return bound


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit(0)


if __name__ == "__main__":
    main()
