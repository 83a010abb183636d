"""Silos over Flower on this machine: seconds an exchange, and kills.

    python benchmarks/silos.py speed                 # seconds a round in one process and over Flower
    python benchmarks/silos.py kills --times 60      # kill -9 of a silo or the server

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
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from click.testing import CliRunner
from torch_geometric.data import Data
from written_pages import options, show

import secure_fedgraph as sfg
from secure_fedgraph.cli.main import main as main_command
from secure_fedgraph.core.spending.ledger import read_ledger
from secure_fedgraph.deployment.federation_file import Approved, read_federation
from secure_fedgraph.deployment.silo_folder import SiloFolder
from secure_fedgraph.experiment.results import weights
from secure_fedgraph.graph.silos.given import OwnData

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TYPED = [sys.executable, "-m", "secure_fedgraph"]
VICTIMS = ("silo", "server")
NEVER_BELOW = "never below"


@dataclass
class Deployment:
    """A federation on this machine: folders, files, and the processes of its silos.

    Args:
        root: everything is below it.
        data: each silo's.
    """

    root: Path
    data: Mapping[str, OwnData]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def place(self, name: str) -> str:
        return str(self.root / "data" / f"{name}.pt")

    def make(self, *options: str) -> None:
        """Writes data, keys and the federation's file, and has every silo approve it."""
        (self.root / "data").mkdir(parents=True)
        for name, one in self.data.items():
            torch.save(one.to_dict() if isinstance(one, Data) else one, self.place(name))
            typed("silo", "keygen", str(self.root / name), "--name", name, "--data", self.place(name))
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

    def start(self, name: str) -> None:
        """Starts one silo's process."""
        with (self.root / f"{name}.log").open("ab") as log:
            words = [*TYPED, "silo", "start", str(self.root / name), "--data", self.place(name)]
            self.processes[name] = subprocess.Popen(words, stdout=log, stderr=log, env=environment())

    def serve(self) -> subprocess.Popen[bytes]:
        """Starts the server."""
        with (self.root / "server.log").open("ab") as log:
            words = [*TYPED, "server", "start", str(self.root / "federation.toml"), "--wait", "120"]
            out = ["--out", str(self.root / "out")]
            return subprocess.Popen([*words, *out], stdout=log, stderr=log, env=environment())

    def folder(self, name: str) -> SiloFolder:
        return SiloFolder(self.root / name)

    @property
    def approved(self) -> Approved:
        return read_federation(self.root / "federation.toml")

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.root / "out" / "result.json").read_text())
        return found

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@contextmanager
def deployment(data: Mapping[str, OwnData], *options: str) -> Iterator[Deployment]:
    """A deployment whose silos are running, in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        made = Deployment(Path(folder), data)
        try:
            made.make(*options)
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


def speed(given: argparse.Namespace) -> list[dict[str, Any]]:
    data, rounds = sfg.federate("cora", clients=3).owners, 6
    settings = {"policy": "masked", "rounds": rounds}
    started = time.monotonic()
    run = sfg.train(sfg.FedSage(), sfg.federate(data), **settings, checkpoint_every=0)
    seconds = time.monotonic() - started
    exchanges = len({one.exchange for one in run.transcript.sent})
    rows = [_timed("one process", seconds / rounds, seconds / exchanges)]
    with deployment(data, "--algorithm", "fedsage", "--policy", "masked", "--rounds", str(rounds)) as running:
        server = running.serve()
        if server.wait(1800):
            raise SystemExit((running.root / "server.log").read_text())
        stamps = _stamps((running.root / f"{next(iter(data))}.log").read_text())
        steps = [later - sooner for sooner, later in pairwise(stamps)]
        rows.append(_timed("over Flower", sum(steps) / rounds, statistics.median(steps)))
    return rows


def _timed(way: str, a_round: float, an_exchange: float) -> dict[str, Any]:
    return {"way": way, "seconds a round": round(a_round, 2), "seconds an exchange": round(an_exchange, 3)}


def _stamps(log: str) -> list[float]:
    """When a silo answered each message of a round."""
    lines = [
        line for line in log.splitlines() if ": " in line and "bytes in" in line and "round 0" not in line
    ]
    times = [line.split()[1].replace(",", ".").split(":") for line in lines]
    return [3600 * int(h) + 60 * int(m) + float(s) for h, m, s in times]


def kills(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Kills processes at random instants, several in a run, until as many were killed as asked."""
    runs: list[dict[str, Any]] = []
    while (left := given.times - sum(len(run["kills"]) for run in runs)) > 0:
        policy = ("masked", "plaintext")[len(runs) % 2]
        runs.append(killed_run(policy, min(left, 6), random.Random(f"{given.seed}/{len(runs)}")))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    return _by_policy(runs)


def killed_run(policy: str, times: int, draw: random.Random) -> dict[str, Any]:
    """One run to its end, in which so many processes are killed: silos and servers in turn."""
    data, rounds = small_silos(3), 16  # from four on one process trains them at once, with other roundings
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


def main() -> None:
    asked = options(__doc__)
    asked.add_argument("what", choices=("speed", "kills"))
    asked.add_argument("--times", type=int, default=60)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    os.environ.update(ONE_THREAD)
    torch.set_num_threads(1)
    show({"speed": speed, "kills": kills}[given.what](given), given.json)


if __name__ == "__main__":
    main()
