"""What an algorithm of a user's own declares about itself, checked by type before anything is sent.

Only what is wrong in its type is refused here, so that an error names the attribute or the method and not a
line of ours. What a declaration promises is held by the door, the policy and the audits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import isfunction, signature

from pydantic import InstanceOf, NonNegativeInt, PositiveInt, TypeAdapter

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithm.attributes import check_attributes, check_type, type_of
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.errors import WrongType
from secure_fedgraph.core.given import Entry, Expected
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.running.returned import as_state

MEASURES = ("accuracy", "auc", "mae")


def check_made(algorithm: Algorithm) -> None:
    """Checks what the class is made of, before any of its methods is called.

    Raises:
        WrongType: for an attribute of another type than the base's, an ``__init__`` that does not call the
            base's, or a method that cannot be called with the arguments that it gets.
    """
    kind = type(algorithm)
    check_attributes(kind, Algorithm)
    if not hasattr(algorithm, "settings"):
        raise WrongType(
            f"{kind.__name__}: __init__ does not call super().__init__(**settings), and it has to"
        )
    for name, arguments in _called(algorithm):
        method = getattr(algorithm, name)
        try:
            with suppress(ValueError):  # what is compiled may have no signature
                signature(method).bind(*arguments)
        except TypeError:
            given = ", ".join(("self", *arguments))
            raise WrongType(
                f"{kind.__name__}: {name} is called with ({given}), and it has to take them"
            ) from None


def check_declared(algorithm: Algorithm, schema: Schema, seed: int) -> None:
    """Reads every declaration once.

    Args:
        schema: public facts about the data.
        seed: of the run, which ``init`` is given.

    Raises:
        WrongType: for one of another type than the base's, naming class, declaration and what is due.
    """
    state = as_state(algorithm.init(schema, seed), algorithm, "init")
    if (released := algorithm.released(state)) is not None:
        as_state(released, algorithm, "released")
    for name, (read, kind) in _methods(schema).items():
        check_type(type(algorithm), name, read(algorithm), kind)
    if (measure := algorithm.measure(schema)) not in MEASURES:
        raise WrongType(f"{algorithm.name}: measure is {measure!r:.60}, and {' or '.join(MEASURES)} is due")
    for channel in algorithm.in_use:
        check_type(type(algorithm), "first_round", algorithm.first_round(channel.name), type_of(PositiveInt))
        check_type(type(algorithm), "uses", algorithm.uses(channel, 1, 2), type_of(NonNegativeInt))
        for name, declares in (("takes", algorithm.takes), ("shows", algorithm.shows)):
            forms: Expected | None = declares(channel.name, schema)
            if not is_form(forms):
                raise WrongType(
                    f"{algorithm.name}: {name}({channel.name!r}) is {forms!r:.60}, and None is due, or a "
                    "tuple of dicts from names to what secure_fedgraph.core.given holds, such as Numbers"
                )


def _called(algorithm: Algorithm) -> Iterator[tuple[str, Sequence[str]]]:
    """The names of methods that are called, and of the arguments that they get."""
    for name, function in vars(Algorithm).items():
        if isfunction(function) and not name.startswith("_"):
            yield name, tuple(signature(function).parameters)[1:]
    yield from ((name, ("client", "given")) for name in algorithm.answers.values())
    yield from ((name, ("client", "read")) for name in algorithm.readers.values())


def _methods(schema: Schema) -> dict[str, tuple[Callable[[Algorithm], object], TypeAdapter[object]]]:
    """Declarations that are methods or properties, and their types."""
    return {
        "warm_up": (lambda one: one.warm_up, type_of(NonNegativeInt)),
        "in_use": (lambda one: one.in_use, type_of(tuple[InstanceOf[Channel], ...])),
        "reads": (lambda one: one.reads(schema), type_of(tuple[str, ...])),
        "reach": (lambda one: one.reach(schema), type_of(int | None)),
        "personal": (lambda one: one.personal(), type_of(InstanceOf[Channel] | None)),
        "made_with": (lambda one: one.made_with(), type_of(Mapping[str, object])),
    }


def is_form(declared: object) -> bool:
    """Whether a declaration is of :data:`Expected`'s type, or None.

    >>> from secure_fedgraph.core.given import Numbers
    >>> is_form(None), is_form(({"w": Numbers((2,))},)), is_form({"w": 2})
    (True, True, False)
    """
    if declared is None:
        return True
    return isinstance(declared, tuple | list) and all(_is_entries(form) for form in declared)


def _is_entries(form: object) -> bool:
    return isinstance(form, Mapping) and all(
        isinstance(name, str) and (isinstance(entry, Entry) or _is_entries(entry))
        for name, entry in form.items()
    )
