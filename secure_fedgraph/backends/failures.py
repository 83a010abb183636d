"""How an error of a client travels to the server: its class and its sentence, never data."""

from __future__ import annotations

from secure_fedgraph.core import errors, wire
from secure_fedgraph.core.errors import HostileMessage, SecureFedGraphError, WrongType
from secure_fedgraph.core.text import printable


def failure_body(error: BaseException) -> bytes:
    """An error as bytes, with its sentence where that may leave the client."""
    text = printable(str(error)) if may_leave(error) else ""
    return wire.encode({"class": type(error).__name__, "text": text})


def may_leave(error: BaseException) -> bool:
    """Whether an error's sentence is this package's own. Others, and what quotes own code, may name data."""
    return isinstance(error, SecureFedGraphError) and not isinstance(error, WrongType)


def failure_in(body: bytes, whose: str, more: str) -> SecureFedGraphError:
    """The error that a client reports: a class of this package, or another name.

    Args:
        body: as :func:`failure_body` made it, or a hostile client something else.
        whose: what failed, such as ``bank-a's process``.
        more: where the rest of the error can be read.
    """
    try:
        settings = wire.decode(body)
    except HostileMessage as error:
        return HostileMessage(f"{whose} failed and its frame cannot be read: {error}")
    kind, text = settings.get("class"), settings.get("text")
    if not isinstance(kind, str) or not isinstance(text, str):
        return HostileMessage(f"{whose} failed and does not name its error")
    known = getattr(errors, kind, None)
    if text and isinstance(known, type) and issubclass(known, SecureFedGraphError):
        return known(printable(text))
    sentence = printable(f"{printable(kind, 100)}: {text}" if text else kind)
    return SecureFedGraphError(f"{whose} failed: {sentence}; {more}")
