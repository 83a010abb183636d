"""A silo's folder: its keys, the file that it approved, and for each run its ledger and its memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from filelock import FileLock, Timeout

from secure_fedgraph.core import files
from secure_fedgraph.core.crypto import KEY_BYTES, Identity
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.federation_file import NAME, Approved, read_federation
from secure_fedgraph.graph.silos.agreement import check_names

IDENTITY, NODE, APPROVAL = "identity.key", "node.key", "approval.json"
LEDGER, MEMORY, RUN, CARD = "ledger.jsonl", "memory", "run.json", "card.toml"
MODEL, SCORES, OVER = "model.pt", "scores.json", "over"
ALIGNMENTS = "alignments.json"
RUNS = "runs"


@dataclass(frozen=True)
class Keys:
    """A silo's two keys.

    Args:
        identity: signs in the protocol.
        node: signs in at the server; a PEM of a private key.
    """

    identity: Identity
    node: bytes

    @property
    def public_node(self) -> str:
        """The public node key in OpenSSH's form."""
        key = load_pem_private_key(self.node, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


@dataclass(frozen=True)
class SiloFolder:
    """One silo's folder.

    Guarantees:
        - everything private in it is 0600 in folders of 0700, and no link in it is followed;
        - keys are never written over;
        - one process at a time works in it.

    Args:
        path: the folder.
    """

    path: Path

    def make_keys(self) -> Keys:
        """Makes both keys, from the operating system's randomness.

        Raises:
            BadInput: where the folder has keys already.
        """
        files.private_folder(self.path)
        for name in (IDENTITY, NODE):
            if files.size_of(self.path / name) is not None:
                raise BadInput(
                    f"{self.path / name} is there already, and a silo keeps its keys: give another folder "
                    "for another silo"
                )
        identity = Identity.generate()
        node = ec.generate_private_key(ec.SECP384R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        files.write(self.path / IDENTITY, [identity.to_bytes()], private=True)
        files.write(self.path / NODE, [node], private=True, settle=True)
        return Keys(identity, node)

    def keys(self) -> Keys:
        """Its keys.

        Raises:
            BadInput: where they are missing or damaged.
        """
        identity, node = (self._secret(name) for name in (IDENTITY, NODE))
        try:
            key = load_pem_private_key(node, None)
        except (ValueError, TypeError):
            key = None
        if len(identity) != KEY_BYTES or not isinstance(key, ec.EllipticCurvePrivateKey):
            raise BadInput(f"{self.path}: {IDENTITY} or {NODE} is damaged: put a copy back")
        return Keys(Identity.from_bytes(identity), node)

    def _secret(self, name: str) -> bytes:
        try:
            return files.read(self.path / name, most=2**16)
        except FileNotFoundError:
            raise BadInput(f"{self.path} has no {name}: make it with 'secure-fedgraph silo keygen'") from None

    def approve(self, approved: Approved) -> str:
        """Keeps a federation's file as the one that this silo takes part in.

        Returns:
            The silo's name in it.

        Raises:
            BadInput: where the file does not have this silo's keys.
        """
        name = self.name_in(approved)
        files.private_folder(self.path)
        files.write(self.path / NAME, [approved.content], private=True)
        noted = json.dumps({"digest": approved.digest, "name": name})
        files.write(self.path / APPROVAL, [noted.encode()], private=True, settle=True)
        return name

    def name_in(self, approved: Approved) -> str:
        """This silo's name in a federation's file: the member with its identity key.

        Raises:
            BadInput: where no member has it, or the member has another node key.
        """
        keys = self.keys()
        public = keys.identity.public.hex()
        member = next((one for one in approved.federation.silos if one.identity == public), None)
        if member is None:
            raise BadInput(
                f"no silo of this federation has the identity {public[:16]}… of {self.path}: give the "
                f"operator {self.path / CARD}, and ask for the new file"
            )
        if member.node.split()[:2] != keys.public_node.split()[:2]:
            raise BadInput(
                f"the federation's file has another node key for {member.name} than {self.path / NODE}: "
                f"give the operator {self.path / CARD}, and ask for the new file"
            )
        return member.name

    def approved(self) -> Approved:
        """The file that this silo approved.

        Raises:
            BadInput: where it approved none, or the file was changed since.
        """
        try:
            noted = json.loads(files.read(self.path / APPROVAL, most=2**16))
            digest = noted["digest"]
        except FileNotFoundError:
            raise BadInput(
                f"{self.path} has approved no federation: look at one with 'silo check', then 'silo approve'"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise BadInput(
                f"{self.path / APPROVAL} is damaged: approve the federation's file again"
            ) from None
        approved = read_federation(self.path / NAME)
        if approved.digest != digest:
            raise BadInput(
                f"{self.path / NAME} is not the file that was approved: its digest is "
                f"{approved.digest[:16]}… and {str(digest)[:16]}… was approved; look at it with "
                "'silo check', then approve it again"
            )
        return approved

    def run_folder(self, approved: Approved) -> Path:
        """The folder of the run under a file: its ledger and its memory."""
        return files.private_folder(self.path / RUNS / approved.digest[:16], self.path)

    def ledgers(self) -> dict[str, Path]:
        """The first digits of each file's digest -> the ledger of its run, oldest first."""
        found = sorted(
            (self.path / RUNS).glob(f"*/{LEDGER}"), key=lambda path: (path.stat().st_mtime, path.parent.name)
        )
        return {path.parent.name: path for path in found}

    def lock(self) -> FileLock:
        """Takes the folder for this process.

        Raises:
            BadInput: where another process has it.
        """
        if not self.path.is_dir():
            raise BadInput(f"{self.path} is no folder of a silo: make one with 'secure-fedgraph silo keygen'")
        taken = files.lock(self.path / "lock", timeout=0)
        try:
            taken.acquire()
        except Timeout:
            raise BadInput(
                f"a silo is running in {self.path} already: end it first, or give this one its own folder"
            ) from None
        return taken

    def times_begun(self, approved: Approved, what: str = RUN) -> int:
        """How often the run of a file, or an alignment of rows under it (:data:`ALIGNMENTS`), was begun here.

        Raises:
            BadInput: where the note of it is damaged.
        """
        path = self.run_folder(approved) / what
        try:
            return int(json.loads(files.read(path, most=2**16, root=self.path))["begun"])
        except FileNotFoundError:
            return 0
        except (ValueError, KeyError, TypeError):
            raise BadInput(
                f"{path} is damaged: put a copy back, or ask the operator for a new file"
            ) from None

    def note_begun(self, approved: Approved, times: int, what: str = RUN) -> None:
        """Notes the same, before anything is answered."""
        noted = json.dumps({"begun": times}).encode()
        files.write(self.run_folder(approved) / what, [noted], private=True, root=self.path, settle=True)

    def note_over(self, approved: Approved) -> None:
        """Notes that the server calls the run of a file over."""
        files.write(self.run_folder(approved) / OVER, [b""], private=True, root=self.path)

    def is_over(self, approved: Approved) -> bool:
        """Whether the server has called the run of a file over; a lying one may say so early."""
        return files.size_of(self.run_folder(approved) / OVER) is not None


def check_name(name: str) -> None:
    """Refuses a name that no silo can have.

    Raises:
        BadInput: saying what names are like.
    """
    try:
        check_names({name: None})
    except HostileMessage as error:
        raise BadInput(str(error)) from None
