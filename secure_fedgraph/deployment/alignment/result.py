"""What an owner keeps of an alignment: its own rows that all owners have, in the common order."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput

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

    def save(self, path: Path) -> None:
        """Writes it to a file that only its owner can read, whole or not at all.

        Raises:
            OSError: where the system refuses.
        """
        files.write(path, [json.dumps(asdict(self), indent=1).encode()], private=True, settle=True)

    @classmethod
    def load(cls, path: Path) -> Alignment:
        """The inverse.

        Raises:
            BadInput: for a file that is missing, another one, or damaged.
        """
        try:
            found: Alignment = TypeAdapter(cls).validate_json(files.read(path, most=MOST_BYTES))
        except OSError as error:
            raise BadInput(f"{path} cannot be read ({error.strerror}): align the rows first") from None
        except ValidationError:
            raise BadInput(f"{path} is damaged: put a copy back, or align the rows again") from None
        return found
