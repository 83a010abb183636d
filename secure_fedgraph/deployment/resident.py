"""The resident client of a silo: it answers letters under the file that its owner approved, and nothing "
"else."""

from __future__ import annotations

import io
import json
import logging
import secrets
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithm import TESTED
from secure_fedgraph.backends.failures import failure_body
from secure_fedgraph.client import Client
from secure_fedgraph.core import files, wire
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused, SecureFedGraphError, WrongType
from secure_fedgraph.core.message import Message
from secure_fedgraph.core.protection.contracts import Party
from secure_fedgraph.core.spending.ledger import Ledger
from secure_fedgraph.deployment import silo_messages
from secure_fedgraph.deployment.charge_report import signed_report
from secure_fedgraph.deployment.greeting import check_digest, greeted
from secure_fedgraph.deployment.silo_folder import LEDGER, MEMORY, MODEL, SCORES, Keys, SiloFolder
from secure_fedgraph.deployment.terms import Terms
from secure_fedgraph.graph.data.store import digest_of_data
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.graph.silos.aligned import AlignedTable, digest_of_training_rows
from secure_fedgraph.storage.party_store import LABEL, PartyStore

_LOG = logging.getLogger("secure_fedgraph.silo")


def answered(name: str, folder: SiloFolder, work: Callable[[], bytes]) -> silo_messages.Letter:
    """A silo's answer to one letter. Errors become answers too, since a silo has one thread for all letters.

    Args:
        name: the silo's.
        folder: the silo's.
        work: gives the body of the answer.

    Returns:
        The answer; or the error, with its sentence where that may leave the silo.
    """
    try:
        return silo_messages.Letter(silo_messages.DONE, work())
    except WrongType as error:  # its sentence quotes the user's code
        _LOG.error("failed: %s", error)
        return silo_messages.Letter(silo_messages.FAILED, failure_body(error))
    except SecureFedGraphError as error:
        _LOG.warning("refused: %s", error)
        return silo_messages.Letter(silo_messages.FAILED, failure_body(error))
    except OSError as error:  # a full disk: nothing was sent, and the server may ask again
        _LOG.error("cannot write to %s: %s", folder.path, error.strerror)
        text = f"{name} cannot write to its own folder ({error.strerror}); its owner has to mend that"
        return silo_messages.Letter(silo_messages.FAILED, failure_body(SecureFedGraphError(text)))
    except Exception as error:  # its sentence may quote data, so nobody reads it
        frame = traceback.extract_tb(error.__traceback__)[-1]
        _LOG.error("failed: %s in %s, line %s", type(error).__name__, Path(frame.filename).name, frame.lineno)
        return silo_messages.Letter(silo_messages.FAILED, failure_body(error))


class Resident:
    """One silo's client, for as long as its process lives.

    Guarantees:
        - algorithm, policy, budget, roster, rounds and seed are those of the file that its owner approved; a
          server that names another file is refused before anything is computed;
        - an approval is for one run, which may be taken up again as often as the file says;
        - the ledger and the memory are this silo's own files, and stay when the process ends;
        - its log has rounds, channels and sizes, and no data, no key and no sentence of an unexpected error.

    Args:
        folder: the silo's.
        keys: its keys.
        terms: of the file that it approved.
        data: its graph, ready to train on; or its table in the common order of rows.
    """

    def __init__(self, folder: SiloFolder, keys: Keys, terms: Terms, data: Data | AlignedTable) -> None:
        self._folder, self._keys, self._terms, self._data = folder, keys, terms, data
        self.name = folder.name_in(terms.approved)
        self.session = secrets.token_hex(8)
        self.ended = False
        """Never: it answers until its process is ended."""
        self._client: Client | None = None
        self._run = ""
        self._say: Callable[..., None] = _LOG.info

    def hello(self, letter: silo_messages.Letter, node: int) -> silo_messages.Letter:
        """Shows who it is. This waits for no answer that is being computed."""
        rows = self._data.rows if isinstance(self._data, AlignedTable) else 0
        approved, identity = self._terms.approved, self._keys.identity
        more: wire.Tree = {"run": self._run, "rows": rows}
        return greeted(letter, node, approved, identity, self.session, self.name, more)

    def answer(self, letter: silo_messages.Letter) -> silo_messages.Letter:
        """Answers one letter; an error becomes an answer too."""
        return answered(self.name, self._folder, lambda: self._answer(letter))

    def _answer(self, letter: silo_messages.Letter) -> bytes:
        if letter.kind == silo_messages.BEGIN:
            return self._begin(wire.decode(letter.body))
        if letter.kind == silo_messages.EXAM:
            return self._exam(wire.decode(letter.body))
        if letter.kind == silo_messages.HELLO:
            raise HostileMessage("a greeting out of turn")
        if self._client is None:
            raise Refused(f"{self.name} has begun no run in this process: begin it")
        if letter.kind == silo_messages.ASK:
            request = Message.from_bytes(letter.body)
            reply = self._client.handle(letter.body)
            what = f"round {request.round}, {request.channel}, {request.step}"
            self._say("%s: %d bytes in, %d out", what, len(letter.body), len(reply))
            return reply
        order = wire.decode(letter.body)
        if letter.kind == silo_messages.SAVE:
            self._client.save(_label(order, "label"), self._label_here(_label(order, "committed")))
            self._say("memory kept: %s", order["label"])
            return b""
        if letter.kind == silo_messages.RELEASE:
            self._take_model(order)
            return b""
        if letter.kind == silo_messages.CHARGES:
            path = self._folder.run_folder(self._terms.approved) / LEDGER
            made = signed_report(self._keys.identity, self._terms.approved.digest, self._run, self.name, path)
            self._folder.note_over(self._terms.approved)
            self._say(
                "the server says that run %s is over; end this process with Ctrl-C when you like", self._run
            )
            return made
        raise HostileMessage(f"a letter of kind {letter.kind!r} out of turn")

    def _take_model(self, released: wire.Tree) -> None:
        """Keeps the trained model in the run's folder, and what it scores on this silo's own test items."""
        tensors = {}
        for name, value in released.items():
            if not isinstance(value, np.ndarray | float):  # a letter writes a tensor of no axis as a number
                raise HostileMessage("a released model with something else than tensors")
            tensors[name] = torch.from_numpy(np.array(value))
        folder = self._folder.run_folder(self._terms.approved)
        buffer = io.BytesIO()
        torch.save(tensors, buffer)
        files.write(folder / MODEL, [buffer.getbuffer()], private=True, root=self._folder.path)
        assert self._client is not None
        try:
            scores = self._client.score(tensors)
        except Exception as error:  # a model of other shapes; nobody but this owner learns of it
            _LOG.warning("the released model does not run here: %s", type(error).__name__)
            return
        tested = scores.pop(TESTED, 0.0)
        kept = json.dumps(scores if tested else {})
        files.write(folder / SCORES, [kept.encode()], private=True, root=self._folder.path)
        self._say("the trained model is in %s, its scores on this silo's own tests beside it", folder / MODEL)

    def _begin(self, asked: wire.Tree) -> bytes:
        digest, run, after, label = (asked.get(key) for key in ("digest", "run", "after", "label"))
        if not isinstance(digest, str) or not isinstance(run, str) or type(after) is not int:
            raise HostileMessage("an order to begin without digest, run and exchange number")
        if not (len(run) == 16 and set(run) <= set("0123456789abcdef")) or not -1 <= after < 2**53:
            raise HostileMessage(f"{run[:40]!r} is no name of a run, or {after} no exchange number")
        check_digest(self._terms.approved, self.name, digest)
        approved = self._terms.approved
        begun = self._folder.times_begun(approved)
        if run != approved.run:
            raise Refused(
                f"{self.name} approved one run, {approved.run}, and was asked to begin {run}: for another, "
                "make a new file with 'federation init', which every silo approves"
            )
        if begun > approved.federation.resumptions:
            raise Refused(
                f"this run was begun {begun} times at {self.name}, and the file allows "
                f"{approved.federation.resumptions} "
                "resumptions: make a new file"
            )
        if isinstance(self._data, Data):
            graph, common = self._data, ""
        else:
            train = self._checked_rows(self._data, _mask(asked.get("train")))
            graph, common = self._data.graph(train), digest_of_training_rows(train.numpy())
        made = self._made(run, int(after), graph, common)
        if made.answered > after:
            raise Refused(
                f"{self.name} has answered exchange {made.answered} of this run, and the server is at "
                f"{after}: start it with the --out of before, or make a new file with 'federation init'"
            )
        self._folder.note_begun(approved, begun + 1)
        kept = self._label_here(_label(asked, "label") if label else "")
        if kept:
            made.load(kept)
        self._check_goes_on(made)
        self._client, self._run = made, run
        self._say("run %s begun%s", run, f", memory of {kept}" if kept else "")
        return wire.encode({"session": self.session, "label": kept})

    def _check_goes_on(self, made: Client) -> None:
        """That no round but the interrupted one would be answered again.

        Raises:
            Refused: where the memory that the server names lacks more rounds of the ledger.
        """
        if len(made.rounds_ahead) > 1:
            raise Refused(
                f"{self.name} has answered round {made.rounds_ahead[-1]} of this run, and was asked to go on "
                f"after round {made.last_round}: start the server with the --out of before, or make a new "
                "file with 'federation init'"
            )

    def _checked_rows(self, table: AlignedTable, train: torch.Tensor) -> torch.Tensor:
        """The training rows that the server gave. The owner of the labels compares them with its own.

        Raises:
            HostileMessage: where they differ at that owner.
        """
        if self.name == self._terms.prepared.federation.names[0]:
            own = torch.from_numpy(table.exam()["train"]).bool()
            if not torch.equal(own, train):
                raise HostileMessage(f"{self.name} was given other training rows than its own labels have")
        return train

    def _made(self, run: str, after: int, graph: Data, common: str) -> Client:
        try:
            return self._client_of(run, after, graph, common)
        except BadInput as error:  # its sentence is for the owner alone: it may count the owner's data
            _LOG.error("this silo cannot take part: %s", error)
            raise Refused(
                f"{self.name} cannot take part with its own files as they are; its owner's log says why"
            ) from None

    def _client_of(self, run: str, after: int, graph: Data, common: str) -> Client:
        prepared, folder = self._terms.prepared, self._folder.run_folder(self._terms.approved)
        path = folder / LEDGER
        return Client(
            party=Party(
                self.name, self._keys.identity, self._terms.approved.federation.roster, folder=folder
            ),
            graph=graph,
            schema=prepared.federation.schema,
            algorithm=prepared.algorithm,
            policy=prepared.bound,
            run=run,
            ledger=Ledger.go_on(path, prepared.options.budget),
            seed=sub_seed(prepared.options.seed, "clients"),
            store=PartyStore(folder / MEMORY, self.name, self._folder.path),
            after=after,
            data=digest_of_data(graph),
            last=prepared.last,
            common=common,
        )

    def _label_here(self, wanted: str) -> str:
        """A label of the server; the newest that this silo has where it was away then, or nothing."""
        folder = self._folder.run_folder(self._terms.approved) / MEMORY
        labels = sorted(path.stem for path in folder.glob("*.json")) if wanted and folder.is_dir() else []
        if not labels:
            return ""
        return wanted if wanted in labels else labels[-1]

    def _exam(self, asked: wire.Tree) -> bytes:
        """The labels of validation and test rows, for the referee: the file says that they are given away."""
        if not isinstance(self._data, AlignedTable) or not self._terms.approved.federation.data.rows:
            raise HostileMessage("an order for labels, and this federation has no referee")
        if self.name != self._terms.prepared.federation.names[0]:
            raise HostileMessage(f"{self.name} does not hold the labels for the referee")
        return wire.encode(self._data.exam())


def _label(order: wire.Tree, key: str) -> str:
    value = order.get(key)
    if not isinstance(value, str) or (value and not LABEL.fullmatch(value)):
        raise HostileMessage(f"{str(value)[:40]!r} is no label of a round")
    return value


def _mask(given: object) -> torch.Tensor:
    if not isinstance(given, np.ndarray) or given.dtype != np.uint8 or given.ndim != 1:
        raise HostileMessage("an order to begin without the training rows")
    return torch.from_numpy(given.astype(bool))
