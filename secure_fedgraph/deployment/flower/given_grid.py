"""The server's end of a way that others run: a Flower grid, and which of its nodes is which silo."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from secure_fedgraph.core.errors import HostileMessage, SecureFedGraphError
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.flower.fleet import letter_in, record_of
from secure_fedgraph.deployment.greeting import Claim, claim_in, nonce_in
from secure_fedgraph.deployment.letters import ANSWERS, HELLO, Letter


class FlowerGrid(Protocol):
    """What is used of ``flwr.serverapp.Grid``."""

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are signed in."""
        ...

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        """Sends messages, and gives each a ticket."""
        ...

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """The answers that have come."""
        ...


@dataclass
class _Search:
    """One greeting to every node whose silo is not known."""

    nonce: bytes
    open: dict[str, int]
    found: dict[str, Letter] = field(default_factory=dict)


class GivenGrid:
    """A :class:`~secure_fedgraph.deployment.silos.NodePost` over a grid that Flower hands to a ServerApp.

    Guarantees:
        - a node counts as a silo once it signed a greeting's nonce, its own node id and the file's digest
          with that silo's key; what it calls itself proves nothing, nor does what its ``--node-config`` says;
        - of two nodes that both show the same key, the first stays, while it is signed in and shows it;
        - letters other than greetings go to such nodes alone.

    Args:
        grid: Flower's.
        approved: the federation's file, with the silos' public keys.
        keep: seconds after which an unanswered letter is dropped.
        on_event: called with a line for people: which node is no silo, and why.
    """

    def __init__(
        self,
        grid: FlowerGrid,
        approved: Approved,
        keep: float,
        on_event: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._grid, self._approved, self._keep, self._say = grid, approved, keep, on_event
        self._nodes: dict[str, int] = {}
        self._searches: dict[str, tuple[str, _Search]] = {}
        """Ticket -> the silo that is looked for, and the greeting by which."""
        self._greeted: dict[str, tuple[str, bytes]] = {}
        """Ticket of a greeting to a node that is known -> its silo, and the nonce."""
        self._said: set[tuple[int, str]] = set()

    def node_of(self, silo: str) -> int:
        """A silo's node id."""
        return self._nodes[silo]

    def send(self, letters: Mapping[str, Letter]) -> dict[str, str]:
        """As :meth:`~secure_fedgraph.deployment.letters.Post.send`.

        A greeting to a silo whose node is not known goes to every node that is not known to be another's.
        """
        with _broken_way():
            signed_in = {int(node) for node in self._grid.get_node_ids()}
        self._nodes = {silo: node for silo, node in self._nodes.items() if node in signed_in}
        tickets: dict[str, str] = {}
        unknown: dict[bytes, list[str]] = {}
        for silo, letter in letters.items():
            node = self._nodes.get(silo)
            if node is not None:
                tickets[silo] = ticket = self._push(node, letter)
                if letter.kind == HELLO:
                    self._greeted[ticket] = (silo, nonce_in(letter))
            elif letter.kind == HELLO:
                unknown.setdefault(letter.body, []).append(silo)
            else:
                tickets[silo] = ""
        for body, silos in unknown.items():
            tickets |= self._search(Letter(HELLO, body), silos, signed_in)
        return tickets

    def collect(self, tickets: Iterable[str]) -> dict[str, Letter | None]:
        """As :meth:`~secure_fedgraph.deployment.letters.Post.collect`."""
        asked = [ticket for ticket in tickets if ticket]
        searches = {ticket: self._searches[ticket] for ticket in asked if ticket in self._searches}
        wanted = {ticket for ticket in asked if ticket not in searches}
        wanted |= {ticket for _, search in searches.values() for ticket in search.open}
        if not wanted and not searches:
            return {}
        came = self._pulled(wanted) if wanted else {}
        for search in {id(one): one for _, one in searches.values()}.values():
            self._look_at(search, came)
        answers = {ticket: self._known(ticket, letter) for ticket, letter in came.items() if ticket in asked}
        for ticket, (silo, search) in searches.items():
            if silo in search.found or not search.open:
                answers[ticket] = search.found.get(silo)
                del self._searches[ticket]
        return answers

    def close(self) -> None:
        """Nothing: the grid is Flower's."""

    def _search(self, letter: Letter, silos: list[str], signed_in: set[int]) -> dict[str, str]:
        """Greets every node that may be one of these silos."""
        # an earlier search for them that nobody waits for any more
        self._searches = {ticket: one for ticket, one in self._searches.items() if one[0] not in silos}
        pushed = {self._push(node, letter): node for node in sorted(signed_in - {*self._nodes.values()})}
        search = _Search(nonce_in(letter), {ticket: node for ticket, node in pushed.items() if ticket})
        if not search.open:
            return dict.fromkeys(silos, "")
        tickets = {silo: f"search {secrets.token_hex(8)}" for silo in silos}
        self._searches |= {ticket: (silo, search) for silo, ticket in tickets.items()}
        return tickets

    def _look_at(self, search: _Search, came: Mapping[str, Letter | None]) -> None:
        """Takes from what came the answers to one search."""
        for ticket in [one for one in search.open if one in came]:
            node = search.open.pop(ticket)
            letter = came[ticket]
            claim = None if letter is None else self._claim(letter, node, search.nonce)
            if letter is None or claim is None:
                continue
            if self._nodes.setdefault(claim.name, node) == node:
                search.found[claim.name] = letter
            else:
                self._tell(node, f"{claim.name} is node {self._nodes[claim.name]} already")

    def _known(self, ticket: str, letter: Letter | None) -> Letter | None:
        """An answer of a known node; a greeting that does not show the silo's key makes it unknown again."""
        silo, nonce = self._greeted.pop(ticket, ("", b""))
        if not silo:
            return letter
        node = self._nodes.get(silo)
        if node is None:
            return None
        claim = None if letter is None else self._claim(letter, node, nonce)
        if claim is None or claim.name != silo:
            del self._nodes[silo]
            return None
        return letter

    def _claim(self, letter: Letter, node: int, nonce: bytes) -> Claim | None:
        try:
            return claim_in(letter, node, nonce, self._approved, f"node {node}")
        except SecureFedGraphError as error:
            self._tell(node, str(error))
            return None

    def _tell(self, node: int, why: str) -> None:
        if (node, why) not in self._said:
            self._said.add((node, why))
            self._say(f"node {node} is ignored: {why}")

    def _push(self, node: int, letter: Letter) -> str:
        from flwr.app import Message

        group = secrets.token_hex(8)  # equal letters are told apart by it
        message = Message(record_of(letter), node, "train", ttl=self._keep, group_id=group)
        with _broken_way():
            # none for a message that the SuperLink did not take, and nothing for one that is too large for it
            return next(iter(self._grid.push_messages([message])), "") or ""

    def _pulled(self, tickets: set[str]) -> dict[str, Letter | None]:
        with _broken_way():
            replies = list(self._grid.pull_messages(sorted(tickets)))
        answers: dict[str, Letter | None] = {}
        for reply in replies:
            ticket = reply.metadata.reply_to_message_id
            try:
                answers[ticket] = None if reply.has_error() else letter_in(reply, ANSWERS)
            except HostileMessage:
                answers[ticket] = None
        return answers


@contextmanager
def _broken_way() -> Iterator[None]:
    import httpx

    try:
        yield
    except (httpx.HTTPError, RuntimeError) as error:
        raise ConnectionError(f"the SuperLink does not answer ({type(error).__name__})") from None
