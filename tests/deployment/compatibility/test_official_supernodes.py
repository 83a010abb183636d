"""Official processes of Flower carry a federation to the weights of one process, bit for bit.

A SuperLink with TLS and node authentication, SuperNodes that run the app in processes of their own, silos
behind sockets, and ``flwr run``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from bank_folders import in_one_process, made

from secure_fedgraph.cli.federating import CERTIFICATES
from secure_fedgraph.deployment.certificates import AUTHORITY, CERTIFICATE, KEY

pytest.importorskip("flwr", exc_type=ImportError)

ROOT = Path(__file__).resolve().parents[3]
BESIDE = Path(sys.executable).parent
"""Where Flower's commands are installed."""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    """A process with all that it starts, until the end of the block."""
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, stdout=written, stderr=written, env=environment, start_new_session=True
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until_there(sign: Path, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not sign.exists():
        assert time.monotonic() < until, f"{sign} did not come"
        time.sleep(0.2)


def until_open(port: int, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while True:
        with socket.socket() as asked:
            if asked.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < until, f"nobody listens on {port}"
        time.sleep(0.2)


def test_flwr_run_trains_the_weights_of_one_process(tmp_path: Path) -> None:
    port = free_port()
    banks = made(tmp_path, 3, port)
    certificates, home, out = tmp_path / CERTIFICATES, tmp_path / "flower", tmp_path / "out"
    environment = {
        **os.environ,
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{BESIDE}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    home.mkdir()
    authority = certificates / AUTHORITY
    (home / "config.toml").write_text(
        f'[superlink.tls]\naddress = "127.0.0.1:{port}"\nroot-certificates = "{authority}"\n'
    )

    def told(*command: str, seconds: float = 60) -> str:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    told(
        sys.executable,
        "-m",
        "secure_fedgraph",
        "server",
        "flower-app",
        str(banks.file),
        "--out",
        str(tmp_path / "app"),
    )
    with ExitStack() as stack:
        # fmt: off
        superlink = [
            "flower-superlink", "--ssl-ca-certfile", str(authority),
            "--ssl-certfile", str(certificates / CERTIFICATE), "--ssl-keyfile", str(certificates / KEY),
            "--enable-supernode-auth", "--disable-runtime-dependency-installation",
            "--host", "127.0.0.1", "--port", str(port),
        ]
        # fmt: on
        stack.enter_context(running(superlink, tmp_path / "superlink.log", environment))
        until_open(port)
        for name in banks.names:
            door = tmp_path / f"door-{name}" / "s"
            silo = [sys.executable, "-m", "secure_fedgraph", "silo", "start", str(tmp_path / name)]
            silo += ["--data", banks.place(name), "--socket", str(door)]
            stack.enter_context(running(silo, tmp_path / f"{name}.log", environment))
            until_there(door)
            key = tmp_path / f"node-{name}"
            told("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key))
            told("flwr", "supernode", "register", f"{key}.pub", "tls")
            # fmt: off
            supernode = [
                "flower-supernode", "--root-certificates", str(authority), "--superlink", f"127.0.0.1:{port}",
                "--port", str(free_port()), "--auth-supernode-private-key", str(key),
                "--isolation", "subprocess", "--node-config", f'socket="{door}"',
            ]
            # fmt: on
            stack.enter_context(running(supernode, tmp_path / f"node-{name}.log", environment))
        run = told(
            "flwr",
            "run",
            str(tmp_path / "app"),
            "tls",
            "--stream",
            "--run-config",
            f'out="{out}"',
            seconds=900,
        )
        assert "3 of 3 silos are here" in run and "round 2" in run, run
    result = json.loads((out / "result.json").read_text())
    assert result["weights"] == in_one_process(banks)
    assert sorted(path.stem for path in (out / "charges").iterdir()) == sorted(banks.names)
    logs = "".join(path.read_text(errors="replace") for path in tmp_path.glob("bank-*.log"))
    assert "refused" not in logs, logs
