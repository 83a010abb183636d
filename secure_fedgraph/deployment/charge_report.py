"""A silo's signed report of what it charged: the only thing that the server learns of its ledger."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from secure_fedgraph.core.crypto import Identity, verify
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.spending.ledger import TORN, Charge, read_ledger

SCHEMA = "secure-fedgraph/charges/1"
PURPOSE = b"secure-fedgraph/charges/1 "
MOST = 2**27
"""Bytes of a report."""


@dataclass(frozen=True)
class ChargeReport:
    """What one silo says that it charged for one run.

    Args:
        silo: who says so.
        charges: one for each upload.
        content: the JSON that it signed.
        signature: over the purpose and the content.
    """

    silo: str
    charges: tuple[Charge, ...]
    content: bytes
    signature: bytes

    def to_json(self) -> dict[str, str]:
        """The report as a file has it."""
        return {"report": self.content.decode(), "signature": self.signature.hex()}


def signed_report(identity: Identity, federation: str, run: str, silo: str, ledger: Path) -> bytes:
    """A report of a ledger's charges, with a signature.

    The digests by which the ledger knows the data are left out. Names of other runs are too.

    Args:
        identity: the silo's.
        federation: digest of the federation's file.
        run: whose charges.
        silo: the silo's name.
        ledger: the file.
    """
    charges = read_ledger(ledger) if ledger.is_file() else []
    lines = [json.loads(replace(one, data="").to_line()) for one in charges if one.counts_for(run)]
    content = json.dumps(
        {"schema": SCHEMA, "federation": federation, "run": run, "silo": silo, "charges": lines},
        separators=(",", ":"),
    ).encode()
    return identity.sign(PURPOSE + content) + content


def report_in(body: bytes, identity: bytes, federation: str, run: str, silo: str) -> ChargeReport:
    """A report, checked.

    Args:
        body: as :func:`signed_report` made it.
        identity: the silo's public key.
        federation, run, silo: which report it has to be.

    Raises:
        HostileMessage: for a signature of another, and for a report of something else.
    """
    signature, content = body[:64], body[64:]
    if len(body) > MOST:
        raise HostileMessage(f"{silo}'s report of charges has {len(body)} bytes, and at most {MOST} are read")
    verify(identity, signature, PURPOSE + content)
    try:
        report = json.loads(content)
        head = tuple(report[key] for key in ("schema", "federation", "run", "silo"))
        charges = tuple(Charge.from_line(json.dumps(line)) for line in report["charges"])
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        raise HostileMessage(f"{silo}'s report of charges cannot be read") from None
    if head != (SCHEMA, federation, run, silo):
        raise HostileMessage(f"{silo}'s report of charges is of another federation, run or silo")
    if any(one.client not in (silo, TORN) for one in charges):
        raise HostileMessage(f"{silo}'s report has charges of another silo")
    return ChargeReport(silo, charges, content, signature)
