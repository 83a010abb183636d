"""Scripts of the repository: the modules of ``benchmarks/``, which is no package, examples and tutorials."""

from __future__ import annotations

import importlib.util
import runpy
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import pytest

from secure_fedgraph.forms import FormWarning

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"


def script(name: str) -> ModuleType:
    """One of them, which finds those that it imports."""
    path = _found(name)
    spec = importlib.util.spec_from_file_location(f"script_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def status_of(name: str, *options: str) -> int:
    """Runs one of them as typed, in this process: each would load torch again in one of its own."""
    path = _found(name)
    with patch.object(sys, "argv", [str(path), *options]):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as ended:
            return int(ended.code or 0)
    return 0


def _found(name: str) -> Path:
    if str(BENCHMARKS) not in sys.path:
        sys.path.append(str(BENCHMARKS))
    return BENCHMARKS / f"{name}.py"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own as the home, and no way out of this machine."""
    nowhere = "http://127.0.0.1:9"
    own = {name: str(tmp_path) for name in ("HOME", "TMPDIR")}
    proxies = {"http_proxy": nowhere, "https_proxy": nowhere, "no_proxy": "127.0.0.1"}
    for name, value in {**own, **proxies, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def printed(path: Path, apart: bool, capfd: pytest.CaptureFixture[str]) -> str:
    """What a script prints, and nothing as an error: in this process, or in one of its own."""
    if apart:
        words = [sys.executable, "-W", "error::UserWarning:__main__", str(path)]
        subprocess.run(words, stdin=subprocess.DEVNULL, check=True)
    else:
        with patch.object(sys, "argv", [str(path)]), warnings.catch_warnings():
            warnings.simplefilter("default", FormWarning)  # a run may say which form it takes
            runpy.run_path(str(path), run_name="__main__")
    said = capfd.readouterr()
    assert said.err == ""
    return said.out
