"""The server's end of the way: it starts the SuperLink, and sends letters through its Runtime interface."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.flower.fleet import LATER, SOON, letter_in, record_of
from secure_fedgraph.deployment.flower.pinned import check_flower
from secure_fedgraph.deployment.letters import ANSWERS, Letter

PATIENCE = 60.0
"""Seconds that a SuperLink has to start."""


@dataclass(frozen=True)
class Address:
    """Where the SuperLink listens.

    Args:
        host, port: of the interface for silos.
        certificate: the server's, as a PEM file.
        key: its private key, as a PEM file.
    """

    host: str
    port: int
    certificate: Path
    key: Path


class Grid:
    """A :class:`~secure_fedgraph.deployment.letters.Post` over Flower.

    Guarantees:
        - a SuperLink that ended is started again at the next call, with the same node keys; letters that it
          had are lost, and their tickets never come back;
        - bodies are deleted as soon as they were delivered.

    Args:
        address: where the SuperLink listens.
        nodes: silo -> its public node key, in OpenSSH's form.
        log: where the SuperLink's own output goes.
        keep: seconds after which an unanswered letter is dropped.

    Raises:
        BadInput: where the port is taken or the certificate cannot be used.
    """

    def __init__(self, address: Address, nodes: Mapping[str, str], log: IO[bytes], keep: float) -> None:
        check_flower()
        self._address, self._nodes, self._log, self._keep = address, dict(nodes), log, keep
        self._process: subprocess.Popen[bytes] | None = None
        self._grid: Any = None
        self._ids: dict[str, int] = {}
        self.restarts = -1
        self._start()

    @property
    def pid(self) -> int:
        """The SuperLink's process."""
        assert self._process is not None
        return self._process.pid

    def node_of(self, silo: str) -> int:
        """A silo's node id."""
        return self._ids[silo]

    def send(self, letters: Mapping[str, Letter]) -> dict[str, str]:
        """As :meth:`~secure_fedgraph.deployment.letters.Post.send`."""
        self._revive()
        with self._broken_way():
            tickets = self._grid.push_messages([self._message(silo, one) for silo, one in letters.items()])
        # none for a silo that is not signed in
        return {silo: ticket or "" for silo, ticket in zip(letters, tickets, strict=True)}

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | None]:
        """As :meth:`~secure_fedgraph.deployment.letters.Post.collect`."""
        wanted = [ticket for ticket in tickets if ticket]
        if not wanted:
            return {}
        with self._broken_way():
            replies = list(self._grid.pull_messages(wanted))
        answers: dict[str, Letter | None] = {}
        for reply in replies:
            ticket = reply.metadata.reply_to_message_id
            if reply.has_error():
                answers[ticket] = None
                continue
            try:
                answers[ticket] = letter_in(reply, ANSWERS)
            except HostileMessage:
                answers[ticket] = None
        return answers

    def close(self) -> None:
        """Ends the SuperLink."""
        if self._grid is not None:
            self._grid.close()
        self._end_process()

    def _end_process(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _message(self, silo: str, letter: Letter) -> Any:
        from flwr.app.message.message import make_message
        from flwr.app.metadata import Metadata
        from flwr.common.constant import SUPERLINK_NODE_ID

        metadata = Metadata(
            run_id=self._run,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=self._ids[silo],
            reply_to_message_id="",
            group_id=secrets.token_hex(8),  # equal letters are told apart by it
            created_at=time.time(),
            ttl=self._keep,
            message_type="train",
        )
        return make_message(metadata, record_of(letter))

    def _revive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._start()

    def _start(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_ssh_public_key
        from flwr.supercore.inflatable.inflatable_utils import pull_objects
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes
        from flwr.supercore.run import Run
        from flwr.superlink.grid import http_grid

        keys = {}
        for silo, text in self._nodes.items():
            key = load_ssh_public_key(text.encode())
            assert isinstance(key, ec.EllipticCurvePublicKey)
            keys[silo] = public_key_to_bytes(key).hex()
        if self._grid is not None:
            self._grid.close()
        self._end_process()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "secure_fedgraph.deployment.flower.superlink"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        settings = {
            "host": self._address.host,
            "port": self._address.port,
            "certificate": str(self._address.certificate),
            "key": str(self._address.key),
            "nodes": keys,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(settings).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        known: dict[str, Any] = json.loads(line) if line else {"error": "it ended at once; its log says why"}
        if "error" in known:
            self._end_process()
            place = f"{self._address.host}:{self._address.port}"
            raise BadInput(
                f"the SuperLink does not start on {place} ({known['error']}): free that port, or give another"
            )
        self._ids = {silo: int(node) for silo, node in known["nodes"].items()}
        self._run = int(known["run"])
        # its own waits a second for a part that is not there yet, and so would every exchange
        vars(http_grid)["pull_objects"] = partial(pull_objects, initial_backoff=SOON, backoff_cap=LATER)
        self._grid = http_grid.HttpGrid(f"127.0.0.1:{known['port']}", insecure=True, token=known["token"])
        self._grid._retry_invoker = None  # Flower's tries for ever, and ends this process on some answers
        self._grid.set_run(Run.create_empty(self._run))
        self.restarts += 1

    @contextmanager
    def _broken_way(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except (httpx.HTTPError, RuntimeError) as error:
            raise ConnectionError(f"the SuperLink does not answer ({type(error).__name__})") from None
