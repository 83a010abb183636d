"""What an answer is given: an algorithm declares it by channel, and the client's door checks it.

The check looks at what came over the wire and at public facts alone, before anything is computed or charged.
So nothing about a client's data decides whether a request is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.upload import all_finite

FLOATS = (torch.float32, torch.float64)
WHOLES = (torch.int32, torch.int64, torch.uint8)
MOST = 2**62
"""Above the largest whole number that anybody sends."""
_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Numbers:
    """A tensor of numbers that float32 holds: neither NaN nor infinite.

    Args:
        shape: its dimensions, None where any size may come.
    """

    shape: tuple[int | None, ...]

    def wrong(self, value: object) -> str:
        """What is wrong with a value, in words; empty where nothing is."""
        if not isinstance(value, torch.Tensor) or value.dtype not in FLOATS:
            return f"floating-point numbers of shape {_form(self.shape)} are due"
        if not _fits(value, self.shape):
            return f"shape {_form(self.shape)} is due, not {_form(value.shape)}"
        return "" if _float32_holds(value.detach()) else "it is not finite"


@dataclass(frozen=True)
class Integers:
    """A tensor of whole numbers.

    Args:
        shape: as :class:`Numbers`.
        low, high: what they lie between, both included.
    """

    shape: tuple[int | None, ...]
    low: int = -MOST
    high: int = MOST

    def wrong(self, value: object) -> str:
        """As :meth:`Numbers.wrong`."""
        if not isinstance(value, torch.Tensor) or value.dtype not in WHOLES:
            return f"whole numbers of shape {_form(self.shape)} are due"
        if not _fits(value, self.shape):
            return f"shape {_form(self.shape)} is due, not {_form(value.shape)}"
        inside = not value.numel() or self.low <= int(value.min()) <= int(value.max()) <= self.high
        return "" if inside else f"numbers from {self.low} to {self.high} are due"


@dataclass(frozen=True)
class Whole:
    """One whole number in [low, high]."""

    low: int = 0
    high: int = MOST - 1

    def wrong(self, value: object) -> str:
        """As :meth:`Numbers.wrong`."""
        right = type(value) is int and self.low <= value <= self.high
        return "" if right else f"a whole number from {self.low} to {self.high} is due"


@dataclass(frozen=True)
class Real:
    """One number that is finite as float32, as those of tensors are: its square is finite as float64."""

    def wrong(self, value: object) -> str:
        """As :meth:`Numbers.wrong`."""
        right = type(value) is float and abs(value) <= _LARGEST  # NaN is not
        return "" if right else "a finite number is due"


@dataclass(frozen=True)
class Text:
    """Words."""

    def wrong(self, value: object) -> str:
        """As :meth:`Numbers.wrong`."""
        return "" if isinstance(value, str) else "text is due"


@dataclass(frozen=True)
class Texts:
    """A list of texts, such as names.

    Args:
        most: how many there may be.
        longest: how many characters each may have.
    """

    most: int
    longest: int

    def wrong(self, value: object) -> str:
        """As :meth:`Numbers.wrong`."""
        if not isinstance(value, tuple) or len(value) > self.most:
            return f"a list of up to {self.most} texts is due"
        right = all(isinstance(text, str) and len(text) <= self.longest for text in value)
        return "" if right else f"texts of up to {self.longest} characters are due"


Entry = Numbers | Integers | Whole | Real | Text | Texts
Entries = Mapping[str, "Entry | Mapping[str, Entry]"]
"""Names to what stands under each; nothing else may come, and nothing may be missing."""
Expected = tuple[Entries, ...]
"""What may come, one of these."""
NOTHING: Expected = ({},)


def like(state: Mapping[str, torch.Tensor]) -> dict[str, Entry]:
    """The form of a state that goes to the clients as it is: same names, shapes and kinds of numbers.

    >>> like({"w": torch.zeros(2, 3), "steps": torch.tensor(4)})
    {'w': Numbers(shape=(2, 3)), 'steps': Whole(low=-4611686018427387904, high=4611686018427387903)}
    """
    return {name: _entry(value) for name, value in state.items()}


def check(forms: Iterable[Entries], values: Mapping[str, Any], where: str) -> None:
    """Holds values to the form that has their names.

    Args:
        forms: that may come.
        values: what came.
        where: what it came for, for the error.

    Raises:
        HostileMessage: for names of no form, or a value that is not what its name stands for.
    """
    forms = tuple(forms)
    form = next((one for one in forms if one.keys() == values.keys()), None)
    if form is None:
        due = min(forms, key=lambda one: len(one.keys() ^ values.keys()), default={})
        differ = [name[:60] for name in sorted(due.keys() ^ values.keys())[:3]]
        raise HostileMessage(f"{where}: parameters do not fit: {differ} differ")
    for name, entry in form.items():
        if isinstance(entry, Mapping):
            if not isinstance(values[name], Mapping):
                raise HostileMessage(f"{where}: {name[:60]!r} does not fit: an offer is due")
            check((entry,), values[name], f"{where}: {name[:60]}")
        elif wrong := entry.wrong(values[name]):
            raise HostileMessage(f"{where}: {name[:60]!r} does not fit: {wrong}")


def _entry(value: torch.Tensor) -> Entry:
    if value.is_floating_point():
        return Numbers(tuple(value.shape)) if value.dim() else Real()
    return Integers(tuple(value.shape)) if value.dim() else Whole(-MOST)


def _float32_holds(value: torch.Tensor) -> bool:
    """Whether all values are finite as float32.

    Of float64 the extremes say it, since rounding keeps the order; the others are not converted.
    """
    if value.dtype == torch.float64 and value.numel():
        value = torch.stack(torch.aminmax(value)).float()  # NaN where any value is
    return all_finite(value.cpu().numpy())


def _fits(value: torch.Tensor, shape: tuple[int | None, ...]) -> bool:
    return value.dim() == len(shape) and all(
        due is None or there == due for there, due in zip(value.shape, shape, strict=True)
    )


def _form(shape: Iterable[int | None]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"


def link_holder(low: torch.Tensor, high: torch.Tensor, clients: int) -> torch.Tensor:
    """Which client answers about each pair of nodes, where several hold its link.

    Clients, and the privacy that charges each of them for its own pairs alone, compute it from public
    node numbers.

    >>> link_holder(torch.tensor([0, 1]), torch.tensor([2, 3]), 3).tolist()
    [2, 1]
    """
    return (low + high) % clients
