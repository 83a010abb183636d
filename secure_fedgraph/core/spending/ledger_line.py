"""One line of ``ledger.jsonl``: what one upload costs one client's data."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class EventOnDisk(BaseModel):
    """One event of the accountant: its kind, and the numbers of that kind."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, bool | int | float | str] = Field(init=False)

    kind: str

    def body(self) -> dict[str, bool | int | float | str]:
        """Kind and numbers, as :func:`~secure_fedgraph.core.accounting.events.event` reads them."""
        return {"kind": self.kind, **self.__pydantic_extra__}


class LedgerLine(BaseModel):
    """One charge. No key may be added by hand: a ledger is evidence."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_serialization_defaults_required=True
    )

    client: str
    """Whose budget pays."""
    run: str
    round: int
    exchange: int
    channel: str
    unit: str
    """The unit of privacy that the noise was scaled to."""
    relation: str
    """The neighbouring relation of that sensitivity."""
    releases: dict[str, list[EventOnDisk]]
    """Reader -> the events that it was shown; a reader that is not named saw the upload without noise."""
    steps: dict[str, list[EventOnDisk]]
    """Unit -> the noisy training steps that the upload is made of."""
    computational: bool = False
    """Whether the noise's whole amount rests on secure aggregation."""
    one_holder: bool = False
    """Whether a node that several clients hold is in one client's uploads alone."""
    data: str = ""
    """A digest of the client's own data, under a key that the owner keeps."""
