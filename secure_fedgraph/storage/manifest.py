"""The manifest of a run's folder, written last: a folder is as its run left it, or nothing in it is believed.

``manifest.json`` has the BLAKE3 digest of every file that a later command reads, and of the ledger as far as
it went when the run ended; the run's own key (Ed25519, ``run.key``) signs both.

Guarantees:
    - a file that is damaged, lost, another run's or put in besides is named before anything is read from it;
    - the ledger has every charge that it had when the run ended; later runs may have added theirs.

What the signature shows: who has the run's public key from the folder's owner, by another way than the
folder, sees that the folder is as it was when that key last signed it. To everybody else it shows no more
than the digests do. The private key lies in the folder, so whoever has it, the owner first of all, can
change what they like and sign anew; hand a folder on without ``run.key``. Neither shows that the figures
are right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from secure_fedgraph.core import files
from secure_fedgraph.core.crypto import KEY_BYTES, Identity, verify
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.message import digest

NAME, KEY, LEDGER = "manifest.json", "run.key", "ledger.jsonl"
SCHEMA = "secure-fedgraph/manifest/1"
COVERED = ("result.json", "bench.json", "released.model", "schema.toml", "officer.html")
FOLDERS = ("checkpoint", "transcript", "charges")
MOST = 2**28
"""Bytes of a manifest that are read: a line for each of a million messages."""
MEND = "put the folder back as its run left it, or run again in another folder"


def write(out: Path, ledger: Path | None = None) -> None:
    """Signs a folder as it is now, under the key that it has or a new one.

    Args:
        out: the run's folder, with everything in it that the run writes.
        ledger: that the run charged; by default the folder's own, where there is one.
    """
    head = _head(ledger or out / LEDGER)
    if files.size_of(out / KEY) is None:
        files.write(out / KEY, [Identity.generate().to_bytes()], private=True, root=out)
    identity = Identity.from_bytes(files.read(out / KEY, root=out, most=KEY_BYTES))
    said: dict[str, Any] = {
        "schema": SCHEMA,
        "files": {name: digest(files.read(out / name, root=out)) for name in _covered(out)},
        "ledger": head and {**head, "own": ledger is None},
        "public": identity.public.hex(),
    }
    text = json.dumps({**said, "signature": identity.sign(_signed(said)).hex()}, indent=1) + "\n"
    files.write(out / NAME, [text.encode()], private=True, root=out)  # a digest confirms a guess


def check(out: Path, ledger: Path | None = None) -> dict[str, Any]:
    """Checks that a folder is as it was signed.

    Args:
        out: the folder of a finished run, perhaps a stranger's.
        ledger: that the run charged, where it is none of the folder's own; its charges are checked only if it
            is given.

    Returns:
        What the manifest says: ``files``, ``ledger`` (None for a run that charged none here) and ``public``,
        the key that signed.

    Raises:
        BadInput: for a folder without a manifest, a manifest that nobody signed as it is, and a file that is
            not as it was signed, by its name.
    """
    said, there = _read(out), set(_covered(out))
    for name in sorted(there ^ said["files"].keys()):
        what = (
            f"is not in {NAME}, so it is another run's" if name in there else f"is missing, and {NAME} has it"
        )
        raise BadInput(f"{out / name} {what}: {MEND}")
    for name in sorted(there):
        if digest(files.read(out / name, root=out)) != said["files"][name]:
            raise BadInput(
                f"{out / name} is not as its run left it (its digest in {NAME} is another): {MEND}"
            )
    head = said["ledger"]
    own = head is not None and head["own"]
    if ledger is not None and (head is None or own):
        raise BadInput(f"--ledger {ledger}: the run in {out} shared no ledger: drop it")
    path = ledger or out / LEDGER
    if ledger is not None or own or files.size_of(path) is not None:
        there_now = head and _head(path, head["bytes"])
        if there_now is None or {**there_now, "own": own} != head:
            raise BadInput(
                f"{path} is not the ledger that the run in {out} charged, or lacks charges of it: {MEND}"
            )
    return said


def missing(out: Path) -> bool:
    """Whether nothing stands where a manifest would: a link or a folder there is refused as a manifest."""
    return not os.path.lexists(out / NAME)


def unchecked(out: Path, ledger: Path | None = None) -> str:
    """Before a page or a card shows what a folder says: checks it, as far as it can be checked.

    Args:
        ledger: that the user named as the run's, where it is none of the folder's own.

    Returns:
        What was not checked, and why; empty where all was, and for a folder of no run.

    Raises:
        BadInput: as :func:`check`; and where a ledger was named for a folder of no run.
    """
    if not os.path.lexists(out / COVERED[0]):
        if ledger is not None:
            raise BadInput(f"--ledger {ledger}: {out} holds no result of a run that charged one; drop it")
        return ""
    if missing(out):
        return f"nothing shows that {out} is as its run left it, for it holds no {NAME}"
    head = check(out, ledger)["ledger"]
    if head is not None and not head["own"] and ledger is None:
        return "the charges in the ledger that the run shared: name it by --ledger"
    return ""


def _read(out: Path) -> dict[str, Any]:
    """A manifest whose values have the types that they need, and whose signature is right."""
    path = out / NAME
    if missing(out):
        raise BadInput(f"{out} holds no {NAME}, so nothing shows that it is whole: {MEND}")
    try:
        said = json.loads(files.read(path, root=out, most=MOST))
        signature = said.pop("signature")
        if said.keys() != {"schema", "files", "ledger", "public"} or said["schema"] != SCHEMA:
            raise ValueError("it has other keys")
        if not all(isinstance(one, str) for one in said["files"].values()):
            raise ValueError("a digest is no text")
        head = said["ledger"]
        if head is not None and (type(head["bytes"]), type(head["own"])) != (int, bool):
            raise ValueError("the ledger has other keys")
        verify(bytes.fromhex(said["public"]), bytes.fromhex(signature), _signed(said))
    except BadInput:
        raise
    except (HostileMessage, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} is damaged or not signed as it is ({error}): {MEND}") from None
    return dict(said)


def _covered(out: Path) -> Iterator[str]:
    """The files of a run that a manifest is about, in order; locks and drafts are none."""
    yield from (name for name in COVERED if (out / name).is_symlink() or (out / name).exists())
    for folder in FOLDERS:
        files.refuse_link(out / folder)
        for path in sorted((out / folder).rglob("*")):
            if path.is_symlink() or not (path.is_dir() or path.name == "lock" or path.suffix == files.DRAFT):
                yield path.relative_to(out).as_posix()


def _head(ledger: Path, length: int | None = None) -> dict[str, Any] | None:
    """How many bytes of whole lines a ledger has, or had, and their digest; None where there is no ledger."""
    if files.size_of(ledger) is None:
        return None
    content = files.read(ledger)
    lines = content[: content.rfind(b"\n") + 1 if length is None else max(length, 0)]
    return {"bytes": len(lines), "digest": digest(lines)}


def _signed(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
