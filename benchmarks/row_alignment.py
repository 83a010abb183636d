"""What aligning the rows of owners of columns costs: processor seconds of each owner, and bytes.

    python benchmarks/row_alignment.py [--rows 10000 100000] [--owners 2] [--json]

Every owner has as many rows; half of them are common. All owners run in this process, one after the other, so
the seconds are those of one core, without any waiting for each other or for a network.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from secure_fedgraph.core.crypto import Identity
from secure_fedgraph.deployment.alignment import Hub, Letter, Member, Side, Terms, new_alignment, relay


def measured(rows: int, owners: int) -> dict[str, float]:
    """One alignment.

    Returns:
        Processor seconds of the hub and of one member, bytes that a member and the hub wrote, the largest
        letter, and the most memory that the process had so far in MB.
    """
    names = [f"owner-{number}" for number in range(owners)]
    identities = {name: Identity.generate() for name in names}
    public = {name: identity.public for name, identity in identities.items()}
    terms = Terms(bytes(32), new_alignment(), public, rows_at_most=2**20)
    tables = {
        name: [f"common-{row}" for row in range(rows // 2)]
        + [f"{name}-{row}" for row in range(rows - rows // 2)]
        for name in names
    }
    sides: dict[str, Side] = {
        name: Member(terms, identities[name], tables[name], name)
        if number
        else Hub(terms, identities[name], tables[name])
        for number, name in enumerate(names)
    }
    seconds: Counter[str] = Counter()
    written: Counter[str] = Counter()
    largest = 0

    def exchange(waiting: Mapping[str, Sequence[Letter]]) -> dict[str, list[Letter]]:
        nonlocal largest
        letters = {}
        for name, given in waiting.items():
            start = time.process_time()
            letters[name] = (
                [new for letter in given for new in sides[name].receive(letter)]
                if given
                else sides[name].start()
            )
            seconds[name] += time.process_time() - start
            sizes = [len(letter.body) for letter in letters[name]]
            written[name] += sum(sizes)
            largest = max([largest, *sizes])
        return letters

    relay(names, exchange)
    found = sides[names[0]].result
    if found is None or set(found.rows) != set(tables[names[0]][: rows // 2]):
        raise SystemExit("the rows that were aligned are not the common ones")
    return {
        "rows": rows,
        "owners": owners,
        "hub_seconds": round(seconds[names[0]], 1),
        "member_seconds": round(seconds[names[1]], 1),
        "hub_mb": round(written[names[0]] / 1e6, 2),
        "member_mb": round(written[names[1]] / 1e6, 2),
        "largest_letter_mb": round(largest / 1e6, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    """Prints a row a size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--owners", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for rows in asked.rows:
        row = measured(rows, asked.owners)
        print(
            json.dumps(row) if asked.json else "  ".join(f"{key}={value}" for key, value in row.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
