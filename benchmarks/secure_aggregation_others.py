"""Secure sums of other systems, measured as ``secure_aggregation.py`` measures ours.

Flower's SecAgg+ runs through its own client mod and its own server workflow, stage by stage; what stands for
the network hands messages over, at nobody's cost. TenSEAL runs its CKKS vectors with the parameters that two
systems use. The sum is what each gives back; neither knows of our fixed point, so theirs is part of the cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

Cost = dict[str, float]
Measured = Iterator[tuple[np.ndarray, Cost]]
"""For each repeat the opened sum, and what it cost, in seconds and bytes."""

TENSEAL = {
    "TenSEAL CKKS, N=8192 [60,40,40,60], public key": ((60, 40, 40, 60), "ASYMMETRIC"),
    "TenSEAL CKKS, N=8192 [60,40,40], symmetric": ((60, 40, 40), "SYMMETRIC"),
}


class Courier:
    """Flower's grid without a network: every message is handled at once, by its client's mod."""

    def __init__(self, vectors: list[np.ndarray], left: int) -> None:
        from flwr.app import Context, RecordDict
        from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
        from flwr.compat.common import recorddict_compat

        self.spent = dict.fromkeys(range(1, len(vectors) + 1), 0.0)
        self.up = dict.fromkeys(self.spent, 0)
        self.alive = set(list(self.spent)[: len(vectors) - left])
        self.states = {nid: Context(1, nid, {}, RecordDict(), {}) for nid in self.spent}
        # what training left behind: made before anything is measured
        self.trained = {
            nid: recorddict_compat.fitres_to_recorddict(
                FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vectors[nid - 1]]), 1000, {}), True
            )
            for nid in self.spent
        }

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Any]:
        """Replies of those that are there."""
        from flwr.app import Message
        from flwr.client.mod import secaggplus_mod
        from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage

        def app(message: Any, _: Any) -> Any:
            return Message(self.trained[message.metadata.dst_node_id], reply_to=message)

        replies = []
        for message in messages:
            nid = message.metadata.dst_node_id
            stage = message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]
            if nid not in self.alive and stage in (Stage.COLLECT_MASKED_VECTORS, Stage.UNMASK):
                continue
            # one dictionary may go to all, and a mod takes its stage out of it
            message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE] = stage
            before = time.process_time()
            reply = secaggplus_mod(message, self.states[nid], app)
            self.spent[nid] += time.process_time() - before
            message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE] = stage
            self.up[nid] += _bytes(reply.content.config_records[RECORD_KEY_CONFIGS])
            replies.append(reply)
        return replies


def flower(vectors: list[np.ndarray], left: int, repeats: int) -> Measured:
    """Flower's SecAgg+ with everybody as neighbour; the last few clients gone before they upload.

    Raises:
        ImportError: flwr is not there.
    """
    from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
    from flwr.common import FitIns, Parameters, parameters_to_ndarrays
    from flwr.server import LegacyContext
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
    from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
    from flwr.supercore.task_identity import TaskIdentity

    _silence()
    # a server's process is told these by the SuperLink that starts it
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 0, 1

    class Node:
        def __init__(self, node_id: int) -> None:
            self.node_id = node_id

    class Everybody:
        """A strategy that asks everybody and keeps what the workflow opened."""

        opened: Any = None

        def configure_fit(self, *_: Any) -> list[Any]:
            return [(Node(n), FitIns(Parameters([], ""), {})) for n in range(1, len(vectors) + 1)]

        def aggregate_fit(
            self, _: int, results: list[Any], failures: list[Any]
        ) -> tuple[Any, dict[str, Any]]:
            assert not failures
            self.opened = results[0][1].parameters
            return None, {}

    class Names:
        @staticmethod
        def num_available() -> int:
            return len(vectors)

    for _ in range(repeats):
        courier, strategy = Courier(vectors, left), Everybody()
        state = RecordDict(
            {MAIN_CONFIGS_RECORD: ConfigRecord({"current_round": 1}), MAIN_PARAMS_RECORD: ArrayRecord()}
        )
        context = LegacyContext(Context(1, 0, {}, state, {}), strategy=strategy, client_manager=Names())
        workflow, going = SecAggPlusWorkflow(1.0, 0.5), WorkflowState()
        started = time.process_time()
        for stage in (
            workflow.setup_stage,
            workflow.share_keys_stage,
            workflow.collect_masked_vectors_stage,
            workflow.unmask_stage,
        ):
            assert stage(courier, context, going), stage.__name__
        server = time.process_time() - started - sum(courier.spent.values())
        there = len(vectors) - left
        # the workflow opens too: its share of the server's time is not told apart
        yield (
            parameters_to_ndarrays(strategy.opened)[0] * there,
            {
                "client": median(courier.spent[n] for n in courier.alive),
                "server": server,
                "opening": 0.0,
                "up": median(courier.up[n] for n in courier.alive),
            },
        )


def tenseal(vectors: list[np.ndarray], name: str, repeats: int) -> Measured:
    """CKKS vectors of N/2 values: encrypted and serialised, added under a context without the key, opened."""
    import tenseal as ts

    sizes, kind = TENSEAL[name]
    key = ts.context(
        ts.SCHEME_TYPE.CKKS,
        8192,
        coeff_mod_bit_sizes=list(sizes),
        encryption_type=getattr(ts.ENCRYPTION_TYPE, kind),
        n_threads=1,
    )
    key.global_scale = 2.0**40
    public = ts.context_from(key.serialize(save_secret_key=False), n_threads=1)

    def encrypt(vector: np.ndarray) -> list[bytes]:
        chunks = (vector[start : start + 4096] for start in range(0, vector.size, 4096))
        return [ts.ckks_vector(key, chunk.tolist()).serialize() for chunk in chunks]

    def add(uploads: list[list[bytes]]) -> list[bytes]:
        sums = []
        for pieces in zip(*uploads, strict=True):
            total = ts.ckks_vector_from(public, pieces[0])
            for piece in pieces[1:]:
                total += ts.ckks_vector_from(public, piece)
            sums.append(total.serialize())
        return sums

    def opened(sums: list[bytes]) -> np.ndarray:
        return np.concatenate([np.array(ts.ckks_vector_from(key, piece).decrypt()) for piece in sums])

    uploads = [encrypt(vector) for vector in vectors]
    for _ in range(repeats):
        client, fresh = _timed(lambda: encrypt(vectors[0]))
        server, sums = _timed(lambda: add(uploads))
        opening, total = _timed(lambda sums=sums: opened(sums))
        up = float(sum(map(len, fresh)))
        yield total, {"client": client, "server": server, "opening": opening, "up": up}


def others(
    vectors: list[np.ndarray], repeats: int, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, int, Measured]]:
    """Name, drop-outs and measurements of each; a row that cannot be had is said and left out."""
    for left in (0, 2):
        name = f"Flower SecAgg+, complete, {left} drop-outs"
        if not wanted(name):
            continue
        try:
            import flwr
        except ImportError:
            print(f"{name}: left out, since flwr is not installed: pip install 'secure-fedgraph[benchmarks]'")
            continue
        yield f"{name} (flwr {flwr.__version__})", left, flower(vectors, left, repeats)
    for name in TENSEAL:
        if wanted(name):
            yield name, 0, tenseal(vectors, name, repeats)


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.process_time()
    found = work()
    return time.process_time() - started, found


def _bytes(record: Any) -> int:
    found = 0
    for value in record.values():
        for one in value if isinstance(value, list) else [value]:
            found += len(one) if isinstance(one, bytes | str) else 8
    return found


def _silence() -> None:
    import logging

    for name in ("flwr", "flower"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
