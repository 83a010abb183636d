"""Answers of several clients to one exchange, which pause where work is done faster together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from greenlet import greenlet

LEAST = 4
"""Works of one kind that are done together; fewer are done one by one."""


@dataclass(frozen=True)
class Work:
    """What one client has to compute, for nobody but itself.

    Args:
        kind: works of one kind may be done together.
        alone: does it.
        together: does several of one kind. Where it raises an error, it has changed nothing.
        given: what ``together`` takes of it.
    """

    kind: Hashable
    alone: Callable[[], None]
    together: Callable[[Sequence[Any]], None]
    given: Any


class Ended(KeyboardInterrupt):
    """Ends an answer that paused: another client's error ended its exchange."""


class _Answer(greenlet):
    """One client's answer: it runs until it pauses, and goes on where it paused."""


def do(work: Work) -> None:
    """Does a client's work, with that of other clients where their answers are made at once."""
    answer = greenlet.getcurrent()
    if isinstance(answer, _Answer) and answer.parent is not None:
        error = answer.parent.switch(work)
        if error is None:
            return
        raise error
    work.alone()


def answered(
    calls: Mapping[str, Callable[[], bytes]], tolerated: tuple[type[Exception], ...] = ()
) -> Iterator[tuple[str, bytes | Exception]]:
    """Makes answers, all up to their work, then one after the other to their ends.

    Guarantees:
        - an answer ends, hence charges, only after those before it have ended, as where each is made alone;
        - an answer that begins after one that failed begins only where such errors are tolerated.

    Args:
        calls: client -> what makes its answer.
        tolerated: errors that stand in the place of an answer; any other is raised, and answers that paused
            end with :class:`Ended`.
    """
    ended: dict[str, bytes | Exception] = {}
    paused: dict[str, tuple[_Answer, Work]] = {}
    try:
        for name, call in calls.items():
            answer = _Answer(call)
            try:
                made = answer.switch() if len(calls) >= LEAST else call()
            except Exception as error:
                ended[name] = error
                if not isinstance(error, tolerated):
                    break
                continue
            if isinstance(made, Work):
                paused[name] = answer, made
            else:
                ended[name] = made
        errors = _done({name: work for name, (_, work) in paused.items()})
        for name in [one for one in calls if one in ended or one in paused]:
            if name in paused:
                answer, _ = paused.pop(name)
                try:
                    ended[name] = _to_its_end(answer, errors.get(name))
                except Exception as error:
                    ended[name] = error
            outcome = ended[name]
            if isinstance(outcome, Exception) and not isinstance(outcome, tolerated):
                raise outcome
            yield name, outcome
    finally:
        for answer, _ in paused.values():
            with suppress(Ended):
                answer.throw(Ended())


def _to_its_end(answer: _Answer, error: Exception | None) -> bytes:
    """The rest of an answer; further work is done by itself."""
    made = answer.switch(error)
    while isinstance(made, Work):
        made = answer.switch(_error_of(made))
    assert isinstance(made, bytes)
    return made


def _done(works: Mapping[str, Work]) -> dict[str, Exception]:
    """Does all works; the errors of those that failed."""
    kinds: dict[Hashable, list[str]] = defaultdict(list)
    for name, work in works.items():
        kinds[work.kind].append(name)
    errors = dict[str, Exception]()
    for names in kinds.values():
        if len(names) >= LEAST:
            try:
                works[names[0]].together([works[name].given for name in names])
                continue
            except Exception:  # one client's data may be the reason: the others answer
                pass
        errors |= {name: error for name in names if (error := _error_of(works[name])) is not None}
    return errors


def _error_of(work: Work) -> Exception | None:
    try:
        work.alone()
    except Exception as error:
        return error
    return None
