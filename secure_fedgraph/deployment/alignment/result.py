"""What an owner keeps of an alignment: its own rows that all owners have, in the common order."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.alignment.rows import RowNames, digest_of_rows, row_names

SCHEMA = "secure-fedgraph/alignment/1"
MOST_BYTES = 2**33
"""Of a file that is read."""


@dataclass(frozen=True)
class Alignment:
    """The rows that all owners have, as one of them holds them.

    Guarantees:
        - owners with the same :attr:`digest` hold the same rows in the same order;
        - the digest can be shown to anybody: who lacks the salt cannot try names against it.

    Needs:
        - to be kept like the table: it names the owner's rows, and says which of them the others have too.

    Args:
        owner: whose copy it is.
        owners: all owners, the hub first.
        federation, alignment, terms: which federation's file, which alignment, and the digest of its terms.
        salt: 32 secret bytes that all owners have, hexadecimal.
        digest: of the rows in their order, hexadecimal.
        rows: the names, in the common order.
    """

    owner: str
    owners: tuple[str, ...]
    federation: str
    alignment: str
    terms: str
    salt: str = field(repr=False)
    digest: str
    rows: tuple[str, ...] = field(repr=False)

    def places(self, rows: RowNames) -> list[int]:
        """Where the aligned rows stand in this owner's table: ``table[places]`` is in the common order.

        Args:
            rows: the names of the table's rows, as the alignment was given them.

        Raises:
            BadInput: where the table lacks a row that it had, or cannot be used.
        """
        place = {name: number for number, name in enumerate(row_names(rows, self.owner))}
        absent = next((name for name in self.rows if name not in place), None)
        if absent is not None:
            raise BadInput(
                f"{self.owner}: the table lacks row {absent[:60]!a}, which it had when rows were aligned: "
                "put it back, or align again"
            )
        return [place[name] for name in self.rows]

    def save(self, path: Path) -> None:
        """Writes it to a file that only its owner can read, whole or not at all.

        Raises:
            OSError: where the system refuses.
        """
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1)
        files.write(path, [text.encode()], private=True, settle=True)

    @classmethod
    def load(cls, path: Path) -> Alignment:
        """The inverse.

        Raises:
            BadInput: for a file that is missing, another one, or damaged.
        """
        try:
            kept = json.loads(files.read(path, most=MOST_BYTES))
        except OSError as error:
            raise BadInput(f"{path} cannot be read ({error.strerror}): align the rows first") from None
        except (ValueError, RecursionError):
            raise _damaged(path, "it is cut off or no JSON") from None
        if not isinstance(kept, dict) or kept.pop("schema", None) != SCHEMA:
            raise _damaged(path, f"it is no {SCHEMA}")
        lists = {key: kept.pop(key, None) for key in ("owners", "rows")}
        if kept.keys() | lists.keys() != {one.name for one in fields(cls)}:
            raise _damaged(path, "its fields are others")
        words = [*kept.values()]
        for value in lists.values():
            words += value if isinstance(value, list) else [None]
        if not all(isinstance(word, str) for word in words):
            raise _damaged(path, "a value in it is no word")
        found = cls(**kept, owners=tuple(lists["owners"]), rows=tuple(lists["rows"]))
        try:
            terms, salt = bytes.fromhex(found.terms), bytes.fromhex(found.salt)
            digest = digest_of_rows(terms, salt, found.rows).hex()
        except ValueError:
            raise _damaged(path, "its terms, its salt or a row cannot be read") from None
        if digest != found.digest:
            raise _damaged(path, "its rows have another digest")
        return found


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is damaged ({why}): put a copy back, or align the rows again")
