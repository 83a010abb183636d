"""Errors, one class for each thing that the user has to do.

Every message is one or two sentences that name the key or the channel, the value and the mend.
The command line turns the class into its exit status (``docs/cli.md``); libraries catch the class.
"""

from __future__ import annotations


class SecureFedGraphError(Exception):
    """Anything this package raises on purpose."""

    exit_status = 1


class BadInput(SecureFedGraphError, ValueError):
    """An argument, a configuration key or a data set that cannot be used as given."""

    exit_status = 2


class WrongType(BadInput, TypeError):
    """What an algorithm of the user's own declares or returns is of another type than its method promises."""


class Refused(SecureFedGraphError):
    """Refused for privacy: nothing was sent beyond what the declaration allows."""

    exit_status = 3


class Incompatible(Refused):
    """A protection cannot give a channel what the channel declares."""


class Unbound(Refused):
    """A stage needs a bounded upload and nothing before it bounds one, or a channel has no protection."""


class LeftInPlaintext(Refused):
    """A policy would leave a channel in plaintext, which was not allowed."""


class HostileMessage(Refused):
    """Bytes from the network that no honest party sends: wrong shape, type, size, number or signature."""


class BudgetExhausted(Refused):
    """The next message would spend more than the budget."""


class Terminated(KeyboardInterrupt):
    """SIGTERM reached a run; like Ctrl-C it is no error of the run, which can be resumed."""

    exit_status = 143


class BrokenClaim(SecureFedGraphError):
    """An audit measured more than the claim allows."""

    exit_status = 4


IN_ANOTHER_FOLDER = (
    "run in another folder and name the run's ledger by --ledger, so that what was spent counts"
)
"""The way to begin a run again that drops no charge."""


def damaged(path: object, why: str) -> BadInput:
    """The error for a file of a run's record or checkpoint that cannot be used.

    >>> print(damaged("run/notes.jsonl", "it is cut off"))  # doctest: +ELLIPSIS
    run/notes.jsonl is damaged (it is cut off): put a copy back, or run in another folder ...
    """
    return BadInput(f"{path} is damaged ({why}): put a copy back, or {IN_ANOTHER_FOLDER}")


def wrong_type(argument: str, value: object, mend: str) -> BadInput:
    """The error for an argument of a type that it cannot have.

    Args:
        argument: its name.
        value: what was given.
        mend: what to give instead.

    >>> print(wrong_type("rounds", "5", "give a whole number from 1"))
    rounds is a str ('5'): give a whole number from 1
    >>> print(wrong_type("algorithm", int, "give an instance"))
    algorithm is the class int: give an instance
    """
    if isinstance(value, type):
        what = f"the class {value.__name__}"
    else:
        name = type(value).__name__
        what = f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
        if isinstance(value, str | int | float):
            what += f" ({str(value)[:40]!r})" if isinstance(value, str) else f" ({value})"
    return BadInput(f"{argument} is {what}: {mend}")


def check_whole(argument: str, value: object, least: int) -> None:
    """Checks that an argument is a whole number, ``least`` or more.

    Raises:
        BadInput: where it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(argument, value, f"give a whole number from {least}")
    if value < least:
        raise BadInput(f"{argument} = {value}: give a whole number from {least}")


def check_number(argument: str, value: object) -> None:
    """Checks that an argument is a number; the caller checks the range.

    Raises:
        BadInput: where it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(argument, value, "give a number")
