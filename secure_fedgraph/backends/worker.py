"""A client in a process of its own, on two pipes: ``python -m secure_fedgraph.backends.worker 3,6 4,7``.

The first process imports what clients need, holds no client's data, and forks once for each pair of pipes.
Each fork closes the other pipes and gets its own graph, public facts and names, once. From then on it gets
messages, orders to keep or restore its own memory, and nothing else. It ends when its input ends, so it ends
with the operator.

With ``--anew`` in front of the pairs, each fork starts as a program of its own (``--alone 3,6``): imports may
wake the driver of a GPU, and a fork cannot use the GPU after that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
import traceback
import warnings
from pathlib import Path
from typing import IO, Any, NoReturn

from torch_geometric.data import Data

from secure_fedgraph.backends import frames
from secure_fedgraph.backends.enlistment import algorithm_of, policy_of
from secure_fedgraph.backends.failures import failure_body, may_leave
from secure_fedgraph.backends.memory import keep_freed_memory
from secure_fedgraph.client import Client
from secure_fedgraph.core import wire
from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection.party import Party
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.graph.data.store import digest_of_data
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.privacy.policy import PlaintextWarning
from secure_fedgraph.protocol import nested
from secure_fedgraph.storage.party_store import PartyStore

_PARENT_DEATH, _DUMPABLE = 1, 4  # prctl's PR_SET_PDEATHSIG and PR_SET_DUMPABLE

ANEW, ALONE = "--anew", "--alone"

_SERVED = (frames.ASK, frames.SAVE, frames.LOAD)
LABEL = re.compile(r"[0-9]{5}-[0-9a-f]{8}")


def main(arguments: list[str]) -> None:
    """Forks a client for each pair of pipes; prints ``pid`` at each start, ``pid status`` at each end."""
    _end_with(os.getppid())
    if arguments[0] == ALONE:
        _serve_alone(*_ends(arguments[1]))
    keep_freed_memory()
    anew = arguments[0] == ANEW
    pairs = arguments[anew:]
    every = {end for pair in pairs for end in _ends(pair)}
    nursery = os.getpid()
    for pair in pairs:
        pid = os.fork()
        if not pid:
            _end_with(nursery)
            for end in every - {*_ends(pair)}:
                os.close(end)
            os.dup2(2, 1)  # what an algorithm prints goes where errors go
            if anew:
                program = [sys.executable, "-P", "-m", "secure_fedgraph.backends.worker", ALONE, pair]
                os.execv(program[0], program)
            _serve_alone(*_ends(pair))
        print(pid, flush=True)
    for end in every:
        os.close(end)
    with contextlib.suppress(ChildProcessError, BrokenPipeError, KeyboardInterrupt):
        while True:
            pid, ended = os.wait()
            print(pid, os.waitstatus_to_exitcode(ended), flush=True)


def _ends(pair: str) -> tuple[int, int]:
    orders, answers = pair.split(",")
    return int(orders), int(answers)


def _serve_alone(orders: int, answers: int) -> NoReturn:
    """Serves one client, and ends the process."""
    _keep_to_itself()
    status = 1
    try:
        serve(os.fdopen(orders, "rb"), os.fdopen(answers, "wb"))
        status = 0
    finally:
        os._exit(status)


def serve(orders: IO[bytes], answers: IO[bytes]) -> None:
    """Serves one client until the input ends.

    Guarantees:
        - it gets its settings and the roster, once and in this order, and its memory is restored before its
          first answer: nobody who holds the pipe later can turn it into another client.
    """
    parent = os.getppid()
    warnings.simplefilter("ignore", PlaintextWarning)  # the operator was warned
    client: Client | None = None
    settings: dict[str, Any] = {}
    identity = Identity.generate()
    try:
        while True:
            kind, body = frames.read(orders)
            if os.getppid() != parent:
                return
            try:
                answer = b""
                if kind == frames.TOLD and not settings:
                    settings, answer = nested.unpack(body), identity.public
                elif kind == frames.ROSTER and settings and client is None:
                    client = _client(settings, identity, nested.unpack(body))
                elif kind in _SERVED and client is not None:
                    answer = _serve(client, kind, body)
                else:
                    raise HostileMessage(
                        f"a client's process was sent an order of kind {kind!r} out of turn: it gets its "
                        "settings, then the roster, each once, and requests after that"
                    )
            except Exception as error:
                _fail(answers, error)
            else:
                frames.write(answers, frames.DONE, answer)
    except (frames.Ended, KeyboardInterrupt):
        return


def _serve(client: Client, kind: bytes, body: bytes) -> bytes:
    if kind == frames.ASK:
        return client.handle(body)
    order = wire.decode(body)
    if kind == frames.SAVE:
        client.save(_label(order, "label"), _label(order, "committed"))
    else:
        client.load(_label(order, "label"))
    return b""


def _label(order: wire.Tree, key: str) -> str:
    value = order.get(key)
    if not isinstance(value, str) or (value and not LABEL.fullmatch(value)):
        raise HostileMessage(f"an order to a client's process: {str(value)[:40]!r} is no label of a round")
    return value


def _client(settings: dict[str, Any], identity: Identity, roster: dict[str, bytes]) -> Client:
    name, schema = settings["name"], Schema(**settings["schema"])
    algorithm = algorithm_of(settings["algorithm"]).for_data(schema)
    if roster.get(name) != identity.public:
        raise HostileMessage(f"{name} was handed a roster in which its own identity is another's")
    # those in use come last: settings decide parts of a declaration
    every = (*algorithm.channels, *algorithm.in_use, *algorithm.examiners())
    declared = {channel.name: channel for channel in every}
    scores = algorithm.scores_channel(schema, settings["scores_by_item"])
    declared[scores.name] = scores
    channels, graph = [declared[channel] for channel in settings["channels"]], Data(**settings["graph"])
    return Client(
        party=Party(name, identity, roster),
        graph=graph,
        schema=schema,
        algorithm=algorithm,
        policy=policy_of(settings["policy"]).bind(channels, tuple(roster)),
        run=settings["run"],
        ledger=Ledger(Path(settings["ledger"]), Budget(**settings["budget"]) if settings["budget"] else None),
        seed=settings["seed"],
        store=_party_store(Path(settings["shelf"]), name) if settings["shelf"] else None,
        after=settings["after"],
        data=digest_of_data(graph),
    )


def _party_store(folder: Path, name: str) -> PartyStore:
    return PartyStore(
        folder, name, folder.parents[2]
    )  # the root is the folder of the run, which the user named


def _fail(answers: IO[bytes], error: Exception) -> None:
    if not may_leave(error):
        traceback.print_exception(error)
    frames.write(answers, frames.FAILED, failure_body(error))


def _keep_to_itself() -> None:
    """No core file; and, on Linux, no other process of this user reads its memory or its pipes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DUMPABLE, 0)


def _end_with(parent: int) -> None:
    """Where the system can, this process is killed with its parent, even in the middle of an answer."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
