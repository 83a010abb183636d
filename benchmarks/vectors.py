"""Writes the public test vectors of the wire format, or says which file is out of date.

    python benchmarks/vectors.py [--check]

They stand in ``tests/vectors/*.json``; ``docs/wire_format.md`` says what they are. With ``--check`` nothing
is written, and the status is 1 where a file is not what the code makes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VECTORS = ROOT / "tests" / "vectors"
sys.path[:0] = [str(ROOT), str(ROOT / "tests/federations"), str(VECTORS)]

from vector_files import MADE, written  # noqa: E402


def main(check: bool) -> int:
    """Writes each file that changed, or counts them."""
    changed = 0
    for name in MADE:
        path, text = VECTORS / f"{name}.json", written(name)
        if path.is_file() and path.read_text(encoding="ascii") == text:
            continue
        changed += 1
        print(f"{path.relative_to(ROOT)} {'is not what the code makes' if check else 'was written'}")
        if not check:
            path.write_text(text, encoding="ascii")
    return int(check and changed > 0)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--check", action="store_true", help="write nothing; status 1 where a file is old")
    sys.exit(main(asked.parse_args().check))
