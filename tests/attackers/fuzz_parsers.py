"""The parsers under atheris (libFuzzer for Python): mutations that look for branches not taken yet.

    pip install -e '.[fuzz]'
    python tests/attackers/fuzz_parsers.py [CORPUS] [-max_total_time=60] [-rss_limit_mb=2048] [-runs=100000]

The first byte chooses the parser. Anything but a value or a named error ends it with the input that did it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in (".", "tests/attackers", "tests/federations")]

import atheris  # noqa: E402

with atheris.instrument_imports(include=["secure_fedgraph.protocol"]):
    from hostile import BODIES, NAMED, PARSERS

NAMES = list(PARSERS)


def seeds(folder: Path) -> None:
    """Honest bodies, for mutations to start from."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(NAMES):
        for place, raw in enumerate(BODIES[name]):
            (folder / f"{number}-{place}").write_bytes(bytes([number]) + raw)


def one(data: bytes) -> None:
    """One input of one parser."""
    if data:
        try:
            PARSERS[NAMES[data[0] % len(NAMES)]](data[1:])
        except NAMED:
            return


if __name__ == "__main__":
    for corpus in (argument for argument in sys.argv[1:] if not argument.startswith("-")):
        seeds(Path(corpus))
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
