"""Silos over Flower on this machine: results beside in-process, seconds an exchange, kills, and a soak.

    python benchmarks/silos.py equal [--table]       # every family over TLS and node keys: the same weights?
    python benchmarks/silos.py speed [--table]       # seconds a round beside other modes; large bodies
    python benchmarks/silos.py kills --times 60 [--table]    # kill -9 of a silo or the server
    python benchmarks/silos.py soak --rounds 1000 [--table]  # memory, disk and files over many rounds

Each silo and the server are processes of the command line, as their owners would start them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from click.testing import CliRunner
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.cli.main import main as main_command
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.deployment.certificates import AUTHORITY, CERTIFICATE, KEY, make_certificates
from secure_fedgraph.deployment.federation_file import Approved, read_federation
from secure_fedgraph.deployment.flower.fleet import Fleet
from secure_fedgraph.deployment.flower.grid import Address, Grid
from secure_fedgraph.deployment.letters import ASK, DONE, HELLO, Letter
from secure_fedgraph.deployment.own_data import common_rows
from secure_fedgraph.deployment.silo_folder import SiloFolder
from secure_fedgraph.experiment.results import weights
from secure_fedgraph.graph.data.datasets import load
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.graph.silos.given import OwnData

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TYPED = [sys.executable, "-m", "secure_fedgraph"]
LARGE = 60 * 10**6
VICTIMS = ("silo", "server")
NEVER_BELOW = "never below"


@dataclass
class Deployment:
    """A federation on this machine: folders, files, and the processes of its silos.

    Args:
        root: everything is below it.
        data: each silo's.
        rows: the column of row names, for silos of columns.
    """

    root: Path
    data: Mapping[str, OwnData]
    rows: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def place(self, name: str) -> str:
        return str(self.root / "data" / f"{name}.pt")

    def make(self, *options: str) -> None:
        """Writes data, keys and the federation's file, and has every silo approve it."""
        (self.root / "data").mkdir(parents=True)
        for name, one in self.data.items():
            torch.save(one.to_dict() if isinstance(one, Data) else one, self.place(name))
            rows = ["--rows", self.rows] if self.rows else []
            typed("silo", "keygen", str(self.root / name), "--name", name, "--data", self.place(name), *rows)
        cards = [str(self.root / name / "card.toml") for name in self.data]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        file = str(self.root / "federation.toml")
        typed(
            "federation", "init", *cards, "--host", "127.0.0.1", "--port", str(port), "--out", file, *options
        )
        for name in self.data:
            typed("silo", "approve", str(self.root / name), file)

    def start(self, name: str, command: str = "start") -> None:
        """Starts one silo's process."""
        with (self.root / f"{name}.log").open("ab") as log:
            words = [*TYPED, "silo", command, str(self.root / name), "--data", self.place(name)]
            self.processes[name] = subprocess.Popen(words, stdout=log, stderr=log, env=environment())

    def serve(self, out: str = "out") -> subprocess.Popen[bytes]:
        """Starts the server."""
        with (self.root / "server.log").open("ab") as log:
            words = [
                *TYPED,
                "server",
                "start",
                str(self.root / "federation.toml"),
                "--out",
                str(self.root / out),
            ]
            return subprocess.Popen([*words, "--wait", "120"], stdout=log, stderr=log, env=environment())

    def align(self) -> None:
        """Has all silos align their rows."""
        for name in self.data:
            self.start(name, "align")
        words = [
            *TYPED,
            "server",
            "align",
            str(self.root / "federation.toml"),
            "--log",
            str(self.root / "align"),
        ]
        subprocess.run(words, env=environment(), check=True, capture_output=True)
        for name in self.data:
            self.processes[name].wait(60)

    def folder(self, name: str) -> SiloFolder:
        return SiloFolder(self.root / name)

    @property
    def approved(self) -> Approved:
        return read_federation(self.root / "federation.toml")

    def result(self, out: str = "out") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / out / "result.json").read_text())
        return found

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@contextmanager
def deployment(data: Mapping[str, OwnData], *options: str, rows: str = "") -> Iterator[Deployment]:
    """A deployment whose silos are running, in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        made = Deployment(Path(folder), data, rows)
        try:
            made.make(*options)
            if rows:
                made.align()
            for name in data:
                made.start(name)
            yield made
        finally:
            made.close()


def environment() -> dict[str, str]:
    return {**os.environ, **ONE_THREAD, "PYTHONWARNINGS": "ignore"}


def typed(*words: str) -> str:
    done = CliRunner().invoke(main_command, list(words))
    if done.exit_code:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def cora_silos() -> dict[str, OwnData]:
    """Cora by Louvain; the last silo has no label of two classes."""
    owners = sfg.federate("cora", clients=3).owners
    made: dict[str, OwnData] = {}
    for number, graph in enumerate(owners.values(), start=1):
        y = torch.where(torch.isin(graph.y, torch.tensor([5, 6])), -1, graph.y) if number == 3 else graph.y
        made[f"silo-{number}"] = Data(x=graph.x, y=y, edge_index=graph.edge_index)
    return made


def small_silos(count: int = 3, nodes: int = 60) -> dict[str, OwnData]:
    made: dict[str, OwnData] = {}
    for number in range(count):
        draw = torch.Generator().manual_seed(number)
        y = torch.randint(0, 2, (nodes,), generator=draw)
        ends = torch.randint(0, nodes, (2, 2 * nodes), generator=draw)
        links = torch.cat([ends, ends.flip(0)], dim=1).unique(dim=1)
        made[f"silo-{number + 1}"] = Data(
            x=torch.randn(nodes, 4, generator=draw) + y[:, None], y=y, edge_index=links
        )
    return made


def cora_columns() -> dict[str, OwnData]:
    graph = load("cora").graph
    width, made = graph.x.shape[1] // 3, {}
    for number in range(3):
        columns = slice(number * width, (number + 1) * width)
        part = Data(x=graph.x[:, columns], edge_index=graph.edge_index, id=torch.arange(graph.num_nodes))
        if number == 0:
            part.y = graph.y
        made[f"silo-{number + 1}"] = part
    return made


def graph_sets() -> dict[str, OwnData]:
    made: dict[str, OwnData] = {}
    for number in range(3):
        graphs = [one for one in small_silos(20, 8).values() if isinstance(one, Data)]
        for place, graph in enumerate(graphs):
            graph.x = graph.x + number
            graph.y = torch.tensor([place % 2])
        made[f"silo-{number + 1}"] = graphs
    return made


@dataclass(frozen=True)
class Case:
    """One run of the first show."""

    algorithm: str
    policy: str
    rounds: int
    data: str = "cora"
    options: tuple[str, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    noise: bool = False
    """Whether noise is drawn, so that no two runs are alike."""


CASES = (
    Case("fedsage", "masked", 3),
    Case("fedsage+", "strictest", 2, options=("--allow-plaintext",), training={"federated_epochs": 1}),
    Case("fedego", "plaintext", 3),
    Case("glasu-one-label-holder", "masked", 2, data="columns", training={"sampler": "public", "steps": 8}),
    Case("apflgate", "masked", 2),
    Case("fairgraphfl", "plaintext", 3, data="sets"),
    Case(
        "fedsage",
        "masked",
        3,
        options=("--epsilon", "8", "--unit", "node", "--set", "evaluation=at_home"),
        training={"fanout": [2], "hidden": [16]},
        noise=True,
    ),
)
DATA = {"cora": cora_silos, "columns": cora_columns, "sets": graph_sets}


def equal(given: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for case in (one for one in CASES if given.algorithm in (None, one.algorithm)):
        data = DATA[case.data]()
        sets = [f"training.{key}={json.dumps(value)}" for key, value in case.training.items()]
        words = [word for one in sets for word in ("--set", one)]
        asked = ["--algorithm", case.algorithm, "--policy", case.policy, "--rounds", str(case.rounds)]
        columns = "id" if case.data == "columns" else ""
        started = time.monotonic()
        with deployment(data, *asked, *words, *case.options, rows=columns) as running:
            server = running.serve()
            status = server.wait(1800)
            if status:
                raise SystemExit((running.root / "server.log").read_text())
            result = running.result()
            order = common_rows(running.folder("silo-1"), running.approved) if columns else ()
        row = {
            "algorithm": case.algorithm,
            "policy": case.policy,
            "score over Flower": _score(result["accuracy"]),
            "node epsilon": result["privacy"].get("node", {}).get("epsilon", ""),
            "seconds": round(time.monotonic() - started),
        }
        if not case.noise:
            here = in_the_order(data, order) if columns else data
            run = in_one_process(case, here, columns)
            row["score in one process"] = _score(run.accuracy)
            if (result["weights"], _rounds(result["rounds"])) == (weights(run), _rounds(run.history)):
                row["weights"] = "at home; every loss and score the same" if columns else "the same"
            elif weights(in_one_process(case, here, columns)) != weights(run):
                row["weights"] = "differ, as two runs in one process do"
            else:
                row["weights"] = "differ"
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def _rounds(rows: Sequence[Mapping[str, Any]]) -> str:
    """Loss and scores of every round, digit by digit."""
    return json.dumps([[row["loss"], row["accuracy"]] for row in rows], sort_keys=True)


def in_one_process(case: Case, data: Mapping[str, OwnData], columns: str) -> sfg.Run:
    return sfg.train(
        ALGORITHMS[case.algorithm](**case.training),
        sfg.federate(data, rows=columns or None),
        case.policy,
        rounds=case.rounds,
        allow_plaintext=True,
    )


def in_the_order(data: Mapping[str, OwnData], order: Sequence[str]) -> dict[str, OwnData]:
    """The same tables under other names of rows: in one process they come into the order of the silos.

    One process puts sorted names into an order that follows from the seed; names are chosen to undo that.
    """
    drawn = np.random.default_rng(sub_seed(0, "rows")).permutation(len(order))
    place = torch.empty(len(order), dtype=torch.long)
    place[torch.tensor([int(name) for name in order])] = torch.from_numpy(drawn)
    made: dict[str, OwnData] = {}
    for name, table in data.items():
        assert isinstance(table, Data)
        made[name] = table.clone()
        made[name].id = [f"{number:06d}" for number in place[table.id].tolist()]
    return made


def _score(accuracy: Mapping[str, Any]) -> str:
    figure = accuracy.get("global", accuracy.get("local"))
    return "at home" if figure is None else f"{figure:.4f}"


def speed(given: argparse.Namespace) -> list[dict[str, Any]]:
    data, rounds = cora_silos(), 6
    settings = {"policy": "masked", "rounds": rounds}
    rows = []
    for way in ("one process", "isolated"):
        started = time.monotonic()
        run = sfg.train(
            sfg.FedSage(), sfg.federate(data), **settings, isolated=way == "isolated", checkpoint_every=0
        )
        seconds = time.monotonic() - started
        exchanges = len({one.exchange for one in run.transcript.sent})
        rows.append(_timed(way, seconds / rounds, seconds / exchanges))
    with deployment(data, "--algorithm", "fedsage", "--policy", "masked", "--rounds", str(rounds)) as running:
        server = running.serve()
        if server.wait(1800):
            raise SystemExit((running.root / "server.log").read_text())
        stamps = _stamps((running.root / "silo-1.log").read_text())
        steps = [later - sooner for sooner, later in pairwise(stamps)]
        rows.append(_timed("over Flower", sum(steps) / rounds, statistics.median(steps)))
    base = rows[0]["seconds an exchange"]
    rows[2]["beyond the work"] = round(rows[2]["seconds an exchange"] - base, 3)
    return [*rows, large_bodies()]


def _timed(way: str, a_round: float, an_exchange: float) -> dict[str, Any]:
    return {"way": way, "seconds a round": round(a_round, 2), "seconds an exchange": round(an_exchange, 3)}


def _stamps(log: str) -> list[float]:
    """When a silo answered each message of a round."""
    lines = [
        line for line in log.splitlines() if ": " in line and "bytes in" in line and "round 0" not in line
    ]
    times = [line.split()[1].replace(",", ".").split(":") for line in lines]
    return [3600 * int(h) + 60 * int(m) + float(s) for h, m, s in times]


def large_bodies() -> dict[str, Any]:
    """Seconds to carry 60 MB to each of three silos, and back from each."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_certificates(root, "127.0.0.1")
        keys = {f"silo-{number}": SiloFolder(root / str(number)).make_keys() for number in range(3)}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = Address("127.0.0.1", port, root / CERTIFICATE, root / KEY)
        grid = Grid(address, {name: one.public_node for name, one in keys.items()}, root / "log", 600)
        ended = threading.Event()

        def silo(name: str) -> None:
            fleet = Fleet(f"127.0.0.1:{port}", (root / AUTHORITY).read_bytes(), keys[name].node)
            fleet.connect()
            while not ended.is_set():
                came = fleet.receive()
                if came is None:
                    time.sleep(0.02)
                elif isinstance(came[1], Letter):
                    fleet.answer(came[0], Letter(DONE, came[1].body))

        threads = [threading.Thread(target=silo, args=(name,), daemon=True) for name in keys]
        for thread in threads:
            thread.start()
        for size in (10, LARGE):  # first until all are signed in
            body, left = os.urandom(size), set(keys)
            while left:
                started = time.monotonic()
                kind = HELLO if size == 10 else ASK
                open_ = {
                    ticket: name
                    for name, ticket in grid.send(dict.fromkeys(left, Letter(kind, body))).items()
                }
                open_.pop("", None)
                while open_:
                    for ticket in grid.collect(open_):
                        left.discard(open_.pop(ticket))
                    time.sleep(0.02)
        seconds = time.monotonic() - started
        ended.set()
        grid.close()
    return {
        "way": "60 MB to each of three and back",
        "seconds an exchange": round(seconds, 1),
        "MB a second": round(2 * len(keys) * LARGE / 1e6 / seconds, 1),
    }


def kills(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Kills processes at random instants, several in a run, until as many were killed as asked."""
    runs: list[dict[str, Any]] = []
    if given.out and given.out.exists():
        runs = json.loads(given.out.read_text())
    while (left := given.times - sum(len(run["kills"]) for run in runs)) > 0:
        policy = ("masked", "plaintext")[len(runs) % 2]
        runs.append(killed_run(policy, min(left, 6), random.Random(f"{given.seed}/{len(runs)}")))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
        if given.out:
            given.out.write_text(json.dumps(runs, indent=1))
    return _by_policy(runs)


def killed_run(policy: str, times: int, draw: random.Random) -> dict[str, Any]:
    """One run to its end, in which so many processes are killed: silos and servers in turn."""
    data, rounds = small_silos(4), 16
    asked = ["--algorithm", "fedavg", "--policy", policy, "--rounds", str(rounds)]
    run: dict[str, Any] = {"policy": policy, "kills": []}
    with deployment(data, *asked, "--set", "training.hidden=[8,4]") as running:
        server, started = running.serve(), time.monotonic()
        for victim in draw.sample(VICTIMS * times, times):
            time.sleep(draw.uniform(2, 12))
            if server.poll() is not None:
                break  # the run is over, or failed
            run["kills"].append({"of": victim, "after": round(time.monotonic() - started, 1)})
            if victim == "silo":
                name = draw.choice(list(data))
                running.processes[name].kill()
                running.processes[name].wait()
                time.sleep(draw.uniform(0, 2))
                running.start(name)
            else:
                server.kill()
                server.wait()
                server = running.serve()
        try:
            run["status"] = server.wait(600)
        except subprocess.TimeoutExpired:
            server.kill()
            run["status"] = "hangs"
        run["seconds"] = round(time.monotonic() - started)
        run["right"] = False
        if run["status"] == 0:
            result = running.result()
            run["ledgers"] = _ledgers(running)
            run["right"] = len(result["rounds"]) == rounds
            if policy == "plaintext":
                alone = sfg.train(sfg.FedAvg(hidden=[8, 4]), sfg.federate(data), policy, rounds=rounds)
                run["the same weights"] = weights(alone) == result["weights"]
        else:
            run["log"] = (running.root / "server.log").read_text()[-600:]
    return run


def _ledgers(running: Deployment) -> str:
    """Whether each silo's ledger has a charge for every upload that its log says was sent."""
    for name in running.data:
        sent = (running.root / f"{name}.log").read_text().count(", answer:")
        (path,) = running.folder(name).ledgers().values()
        if len(read_ledger(path)) < sent:
            return f"{name} below"
    return NEVER_BELOW


def _by_policy(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for policy in ("masked", "plaintext"):
        of = [one for one in runs if one["policy"] == policy]
        killed = [kill["of"] for one in of for kill in one["kills"]]
        if of:
            row: dict[str, Any] = {"policy": policy, "runs": len(of)}
            row |= {f"kills of a {victim}": killed.count(victim) for victim in VICTIMS}
            row["runs that ended right"] = sum(one["right"] for one in of)
            same = sum(one.get("the same weights", False) for one in of)
            row["with the weights of one process"] = same if policy == "plaintext" else ""
            row["ledgers below what was sent"] = sum(one.get("ledgers") != NEVER_BELOW for one in of)
            row["median seconds"] = statistics.median(one["seconds"] for one in of)
            rows.append(row)
    return rows


def soak(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Memory, disk and files of every process, at the start and at the end of many rounds."""
    asked = ["--algorithm", "fedavg", "--policy", "plaintext", "--rounds", str(given.rounds)]
    rows: list[dict[str, Any]] = []
    with deployment(small_silos(), *asked, "--set", "training.hidden=[8,4]") as running:
        server, last = running.serve(), 0
        while server.poll() is None:
            time.sleep(2)
            log = (running.root / "server.log").read_text()
            number = log.count("\nround ")
            if number - last >= max(given.rounds // 10, 1):
                last = number
                rows.append(_sizes(number, server, running))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if server.returncode:
            raise SystemExit((running.root / "server.log").read_text()[-2000:])
    return rows


def _sizes(number: int, server: subprocess.Popen[bytes], running: Deployment) -> dict[str, Any]:
    process = psutil.Process(server.pid)
    silo = psutil.Process(running.processes["silo-1"].pid)
    out, own = running.root / "out", running.root / "silo-1"
    return {
        "round": number,
        "server MB": round(process.memory_info().rss / 1e6),
        "silo MB": round(silo.memory_info().rss / 1e6),
        "server's open files": process.num_fds(),
        "server's files": sum(1 for _ in out.rglob("*")),
        "server's disk kB": _disk(out),
        "silo's files": sum(1 for _ in own.rglob("*")),
        "silo's disk kB": _disk(own),
    }


def _disk(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) // 1000


def table(rows: list[dict[str, Any]]) -> str:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(str(row.get(head, "")) for head in heads) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("what", choices=("equal", "speed", "kills", "soak"))
    asked.add_argument("--algorithm", help="of 'equal', this one alone")
    asked.add_argument("--times", type=int, default=60)
    asked.add_argument("--rounds", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--out", type=Path, help="JSON of runs with kills; those in it count")
    asked.add_argument("--table", action="store_true", help="Markdown in place of JSON")
    given = asked.parse_args()
    os.environ.update(ONE_THREAD)
    torch.set_num_threads(1)
    rows = {"equal": equal, "speed": speed, "kills": kills, "soak": soak}[given.what](given)
    print(table(rows) if given.table else json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
