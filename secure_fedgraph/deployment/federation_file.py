"""``federation.toml``: what a federation does and who is in it. Every silo approves it by its digest."""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomlkit
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from secure_fedgraph.core import files
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.text import printable
from secure_fedgraph.graph.answers import NOT_SAID
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, Schema, Task
from secure_fedgraph.graph.silos.agreement import Declaration, agreed, check_names, class_names
from secure_fedgraph.graph.tables.schema import TableSchema, check_learnable, feature_names

SCHEMA = "secure-fedgraph/federation/1"
CARD_SCHEMA: Literal["secure-fedgraph/silo-card/1"] = "secure-fedgraph/silo-card/1"
NAME = "federation.toml"
LARGEST = 2**18
"""Bytes of a federation's file."""
NOT_IN_A_FILE = {
    **dict.fromkeys(
        ("data", "clients", "partition", "dataset", "split", "silos"), "each silo brings its own data"
    ),
    **dict.fromkeys(("classes", "rows"), "the table 'data' says that"),
    "tables": "the table 'tables' says that, from 'federation init --schema'",
    "checkpoint_every": "each party decides that for itself",
    "ledger": "each silo keeps a ledger of its own",
    "dropouts": "silos that do not answer are real ones",
    "device": "silos train on the CPU",
}
"""Keys of an experiment that hand out data, or that are one party's own affair -> why they are left out."""
_Kind = TypeVar("_Kind", Schema, Declaration)
_HEX = re.compile(r"[0-9a-f]{64}")


def check_belongs(experiment: Mapping[str, Any]) -> None:
    """Checks that no key of an experiment is one that a federation's file has no place for.

    Raises:
        BadInput: naming the key, the value and why.
    """
    for key in (one for one in NOT_IN_A_FILE if one in experiment):
        value = printable(repr(experiment[key]), 40)
        raise BadInput(
            f"{key} = {value} does not belong in a federation's file: {NOT_IN_A_FILE[key]}; leave it out"
        )


_Names = Annotated[tuple[str, ...], Field(strict=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _OfData(_Table):
    """What data are like, as :class:`~secure_fedgraph.graph.silos.agreement.Declaration` has it."""

    kind: Literal["node", "graph"] = "node"
    features: int = Field(ge=0, le=10_000_000)
    classes: int = Field(ge=0, le=1_000_000)
    feature_names: _Names = ()
    class_names: _Names = ()
    edge_weight: bool = False
    edge_attr: int = Field(default=NO_EDGE_ATTR, ge=NO_EDGE_ATTR, le=1_000_000)
    rows: str = ""
    task: Annotated[Task, Field(strict=False)] = Task.CLASSES
    positive: int = Field(default=1, ge=NOT_SAID)
    low: float = Field(default=0.0, allow_inf_nan=False)
    high: float = Field(default=0.0, allow_inf_nan=False)

    def _as(self, kind: type[_Kind]) -> _Kind:
        """The same as another class has it, by the names of its fields."""
        shared = {one.name for one in fields(kind)} & set(type(self).model_fields)
        return kind(**{name: getattr(self, name) for name in shared})


class Held(_OfData):
    """What every silo's data are like. Nothing here follows from a value in them.

    Args:
        kind: ``node`` for one graph each, ``graph`` for a set of graphs each.
        features: columns of ``x``; with ``rows`` of all silos together.
        classes: how many there are.
        feature_names, class_names: where the silos name them.
        edge_weight, edge_attr: what edges carry, as :class:`~secure_fedgraph.graph.schema.Schema` counts it.
        rows: of silos with columns of the same rows, the column that names the rows.
        labels: of such silos, whether ``one`` or ``all`` have them.
        rows_at_most: how many rows such a silo may have: so many names a lying silo can try when rows are
            aligned.
        holders: how many silos may hold the same node or graph.
        task, positive, low, high: what is learned, as :class:`~secure_fedgraph.graph.schema.Schema` has it.
    """

    features: int = Field(ge=1, le=10_000_000)
    classes: int = Field(ge=1, le=1_000_000)
    labels: Literal["one", "all"] = "all"
    rows_at_most: int = Field(default=1_000_000, ge=1, le=2**24)
    holders: int = Field(1, ge=1)
    positive: int = Field(default=1, ge=0)

    @property
    def schema_of_data(self) -> Schema:
        """The same as models read it."""
        return self._as(Schema)


class Member(_Table):
    """One silo.

    Args:
        name: its name.
        identity: its public Ed25519 key, 64 hexadecimal digits: it signs by this in the protocol.
        node: its public node key, in OpenSSH's form: it signs in at the server by this.
        columns: with ``rows``, how many columns it has.
    """

    name: str
    identity: str
    node: str = Field(max_length=1000)
    columns: int = Field(0, ge=0)

    @field_validator("identity")
    @classmethod
    def _is_a_key(cls, value: str) -> str:
        if not _HEX.fullmatch(value):
            raise ValueError("give 64 hexadecimal digits, as its card has them")
        return value

    @field_validator("node")
    @classmethod
    def _is_a_node_key(cls, value: str) -> str:
        try:
            key = load_ssh_public_key(value.encode())
        except Exception:  # the library names many
            raise ValueError("give a public key in OpenSSH's form, as its card has it") from None
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp384r1":
            raise ValueError("give a key of the curve P-384, as 'silo keygen' makes it")
        return value


class Place(_Table):
    """Where the server is.

    Args:
        host: a name or an address that the server's certificate is for.
        port: of the interface for silos.
        authority: the certificate that signed the server's, as PEM.
    """

    host: str = Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9.:_-]+$")
    port: int = Field(ge=1, le=65535)
    authority: str = Field(max_length=20_000)

    @field_validator("authority")
    @classmethod
    def _is_a_certificate(cls, value: str) -> str:
        try:
            x509.load_pem_x509_certificate(value.encode())
        except ValueError:
            raise ValueError("give a certificate in PEM") from None
        return value

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Federation(_Table):
    """What ``federation.toml`` holds.

    Args:
        schema_: the format.
        name: of the federation, for people.
        nonce: drawn when the file was made: two files of the same settings have different digests.
        experiment: algorithm, policy, budget and settings, as a configuration of ``run`` has them.
        cohort: how many silos a round asks; 0 for all.
        resumptions: how often a run may be taken up again after a kill before silos refuse.
        data: what every silo's data are like.
        server: where the server is.
        silos: the roster.
        tables: what the columns of every silo's tables mean, where data are in tables.
    """

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["secure-fedgraph/federation/1"] = Field(alias="schema")
    name: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")
    nonce: str = Field(pattern=r"^[0-9a-f]{32}$")
    experiment: dict[str, Any]
    cohort: int = Field(0, ge=0)
    resumptions: int = Field(100, ge=0, le=10_000)
    data: Held
    server: Place
    silos: tuple[Member, ...] = Field(min_length=1, max_length=10_000, strict=False)
    tables: TableSchema | None = None

    @field_validator("experiment")
    @classmethod
    def _has_no_data_of_its_own(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_belongs(value)
        return value

    @model_validator(mode="after")
    def _has_each_once(self) -> Federation:
        names = [one.name for one in self.silos]
        for key, values in (
            ("name", [name.lower() for name in names]),
            ("identity", [one.identity for one in self.silos]),
            ("node", [one.node.split()[1] for one in self.silos]),
        ):
            twice = next((names[n] for n, one in enumerate(values) if one in values[:n]), None)
            if twice is not None:
                raise ValueError(f"silos: {twice} has the {key} of another silo; give each its own")
        check_names(dict.fromkeys(names))
        if self.tables is not None:
            check_learnable(self.tables, "tables")
            if not self.data.rows and (said := _of_tables(self.tables, self.data.holders)) != self.data:
                key = next(key for key in Held.model_fields if getattr(said, key) != getattr(self.data, key))
                raise ValueError(
                    f"data.{key} = {str(getattr(self.data, key))[:60]!r} is not what the table 'tables' "
                    "makes: write the file with 'federation init --schema'"
                )
        if self.cohort > len(self.silos):
            raise ValueError(
                f"cohort = {self.cohort}: there are {len(self.silos)} silos; give at most that many"
            )
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The silos' names, sorted, as a federation in one process has them."""
        return tuple(sorted(one.name for one in self.silos))

    @property
    def roster(self) -> dict[str, bytes]:
        """Silo -> public identity key."""
        keys = {one.name: bytes.fromhex(one.identity) for one in self.silos}
        return {name: keys[name] for name in self.names}

    @property
    def nodes(self) -> dict[str, str]:
        """Silo -> public node key."""
        return {one.name: one.node for one in self.silos}


@dataclass(frozen=True)
class Approved:
    """A federation's file as it was read: what it says, and its bytes.

    Args:
        federation: what it says.
        content: its bytes.
        where: its place, for messages; empty of one that is not written yet.
    """

    federation: Federation
    content: bytes
    where: str = field(default="", compare=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes, in hexadecimal digits: a byte more or less is another file."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def run(self) -> str:
        """The name of its run, of which there is one: what silos answered in it, they do not answer again."""
        return self.digest[:16]


def read_federation(path: Path) -> Approved:
    """A federation's file.

    Raises:
        BadInput: naming the file, the key and the mend.
    """
    return parsed(_content(path, "ask the operator for the federation's file"), str(path))


def _content(path: Path, mend: str) -> bytes:
    try:
        return files.read(path, most=LARGEST)
    except FileNotFoundError:
        raise BadInput(f"{path} is missing: {mend}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from None


def parsed(content: bytes, where: str) -> Approved:
    """A federation's file from its bytes.

    Raises:
        BadInput: as :func:`read_federation`.
    """
    return Approved(_checked(Federation, _values(content, where), where), content, where)


def _values(content: bytes, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # also of Python's limit on digits
        raise BadInput(f"{where} is no TOML ({printable(str(error), 100)}): ask for it again") from None


def checked_federation(values: Mapping[str, Any], where: str) -> Federation:
    """A federation from its values.

    Raises:
        BadInput: naming the key, the value and the mend.
    """
    federation: Federation = _checked(Federation, values, where)
    return federation


def _checked(kind: type[Any], values: Mapping[str, Any], where: str) -> Any:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        why = first["msg"].removeprefix("Value error, ")
        given = "" if first["type"] in ("missing", "value_error") else f" ({str(first['input'])[:40]!r})"
        raise BadInput(
            f"{where}: {printable(key, 80)}{printable(given, 60)}: {printable(why, 300)}"
        ) from None


class Card(_OfData):
    """What a silo gives the operator before there is a federation: public keys, and what its data are like.

    Args:
        schema_: the format.
        name, identity, node: as :class:`Member` has them.
        ranged: whether its owner declared the ends of a number that is learned.
        labels: with columns of rows, whether it has labels.
    """

    model_config = ConfigDict(populate_by_name=True)

    schema_: Literal["secure-fedgraph/silo-card/1"] = Field(alias="schema")
    name: str
    identity: str
    node: str
    positive: int = Field(default=NOT_SAID, ge=NOT_SAID, le=1)
    ranged: bool = False
    labels: bool = True

    @property
    def declaration(self) -> Declaration:
        """What its owner declares about the data."""
        return self._as(Declaration)


def write_card(card: Card, path: Path) -> None:
    """Writes a card as TOML, for the operator: nothing in it is secret."""
    text = tomlkit.dumps(card.model_dump(mode="json", by_alias=True))
    files.write(path, [text.encode()], private=False)


def read_card(path: Path) -> Card:
    """A silo's card.

    Raises:
        BadInput: naming the file, the key and the mend.
    """
    values = _values(_content(path, "give the cards that 'silo keygen' wrote"), str(path))
    card: Card = _checked(Card, values, str(path))
    return card


def _of_tables(schema: TableSchema, holders: int) -> Held:
    """What data are like that are made of tables by a schema."""
    links, label = schema.links, schema.answers
    ends = (0.0, 0.0)
    if schema.task == Task.NUMBER and label is not None and label.low is not None and label.high is not None:
        ends = (label.low, label.high)
    return Held(
        features=len(schema.feature_names),
        classes=len(schema.class_names) or 1,
        feature_names=schema.feature_names,
        class_names=schema.class_names,
        edge_weight=bool(links and links.weight),
        edge_attr=len(feature_names(links.columns, constant=False)) or NO_EDGE_ATTR
        if links
        else NO_EDGE_ATTR,
        holders=holders,
        task=schema.task,
        positive=schema.positive if len(schema.class_names) == 2 else 1,
        low=ends[0],
        high=ends[1],
    )


def held_by(
    cards: Mapping[str, Card], classes: int | None, holders: int, tables: TableSchema | None = None
) -> Held:
    """What the silos' data are like: by the schema of their tables, else agreed from their cards.

    Raises:
        BadInput: where two cards do not fit each other, naming both.
    """
    if tables is not None and not any(one.rows for one in cards.values()):
        if classes is not None:
            raise BadInput(f"--classes {classes}: the schema names the classes; leave it out")
        return _of_tables(tables, holders)
    given = {name: cards[name] for name in sorted(cards)}
    first = next(iter(given.values()))
    for name, one in given.items():
        for key in ("kind", "rows"):
            if getattr(one, key) != getattr(first, key):
                raise BadInput(
                    f"{key} is {getattr(one, key)!r} at {name} and {getattr(first, key)!r} at {first.name}: "
                    "all silos need the same"
                )
    declared = {name: one.declaration for name, one in given.items()}
    if first.rows:
        with_labels = [name for name, one in given.items() if one.labels]
        if len(with_labels) not in (1, len(given)) or with_labels[0] != next(iter(given)):
            raise BadInput(
                f"labels are at {' and '.join(with_labels) or 'no silo'}: they belong to the silo that "
                "comes first by name, or to all"
            )
        named = {name: declared[name] for name in with_labels}
        if len({bool(one.class_names) for one in named.values()}) > 1:
            raise BadInput("some silos name their classes and some number them: let all do the same")
        every = class_names(named)
        found = len(every) or max(one.classes for one in named.values())
        return Held(
            kind="node",
            features=sum(one.features for one in declared.values()),
            classes=max(classes or found, found),
            class_names=every,
            rows=first.rows,
            labels="all" if len(with_labels) == len(given) else "one",
            holders=len(given),
        )
    schema = vars(agreed(declared, first.kind, classes))
    return Held(
        **{key: value for key, value in schema.items() if key in Held.model_fields},
        feature_names=first.feature_names,
        class_names=class_names(declared),
        holders=holders,
    )


def write_federation(federation: Federation, path: Path) -> Approved:
    """Writes a federation's file, with a line above each part that says what it is."""
    values = federation.model_dump(by_alias=True, exclude_none=True)  # not as JSON, which has no dates
    document = tomlkit.document()
    document.add(
        tomlkit.comment("Every silo approves this file by its digest: change a byte, and all approve again.")
    )
    for key, value in values.items():
        document.add(key, value)
    content = tomlkit.dumps(document).encode()
    files.write(path, [content], private=False)
    return Approved(federation, content)


def fresh_nonce() -> str:
    """A nonce from the operating system."""
    return secrets.token_hex(16)
