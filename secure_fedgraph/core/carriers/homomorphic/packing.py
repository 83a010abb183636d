"""Several whole numbers in each slot of a ciphertext: bytes and time are paid for each slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_LONGEST_CUT = 8


@dataclass(frozen=True)
class Packing:
    """``fields`` numbers in every slot, and above them a piece of one more that is cut over ``cut`` slots.

    Guarantees:
        - slots of at most ``contributors`` vectors within ``±bound``, added as integers, unpack to the sum of
          the vectors: no field reaches into the next, and no slot leaves ``±reach``.

    Args:
        bound: largest absolute value of a number.
        contributors: the most vectors that are added.
        fields: numbers that lie whole in a slot, at least 1.
        cut: slots that one more number is cut over; 0 for none.

    >>> packing = Packing(bound=100, contributors=3, fields=1, cut=2)
    >>> slots = [packing.pack(np.array(v), 2) for v in ([1, -2, 100], [3, 4, 100], [5, 6, -90])]
    >>> packing.unpack(np.sum(slots, axis=0)).tolist()
    [9, 8, 110]
    """

    bound: int
    contributors: int
    fields: int
    cut: int = 0

    @property
    def width(self) -> int:
        """Bits of a field: of a sum and its sign."""
        return (self.bound * self.contributors).bit_length() + 1

    @property
    def piece(self) -> int:
        """Bits of a piece of a number that is cut, its sign among them."""
        return -(-(self.bound.bit_length() + 1) // self.cut) if self.cut else 0

    @property
    def reach(self) -> int:
        """The largest absolute value that a slot of a sum can have."""
        total = sum(self.bound * self.contributors << self.width * field for field in range(self.fields))
        if self.cut:
            total += self.contributors << (self.piece - 1 + self.width * self.fields)
        return total

    @property
    def slots_each(self) -> float:
        """Slots that a number takes."""
        return self.cut / (self.fields * self.cut + 1) if self.cut else 1 / self.fields

    def numbers(self, slots: int) -> int:
        """How many numbers so many slots hold."""
        cut = self.cut or 1
        return slots // cut * (self.fields * cut + bool(self.cut))

    def pack(self, numbers: np.ndarray, slots: int) -> np.ndarray:
        """Slots, int64, of exactly ``numbers(slots)`` numbers within the bound; those left over are zero."""
        packed = np.zeros(slots, dtype=np.int64)
        used = self._used(slots)
        whole = numbers[: self.fields * used].reshape(self.fields, used)
        for field in range(self.fields):
            packed[:used] += whole[field].astype(np.int64) << self.width * field
        if self.cut:
            rest = numbers[self.fields * used :].astype(np.int64)
            for pieces in packed[:used].reshape(self.cut, -1)[:-1]:
                low = _centred(rest, self.piece)
                pieces += low << self.width * self.fields
                rest = (rest - low) >> self.piece
            packed[used - len(rest) : used] += rest << self.width * self.fields
        return packed

    def unpack(self, packed: np.ndarray) -> np.ndarray:
        """The numbers, int64, in the slots of a sum."""
        used, numbers = self._used(len(packed)), np.empty(self.numbers(len(packed)), dtype=np.int64)
        rest = packed[:used]
        for field in range(self.fields):
            numbers[field * used : (field + 1) * used] = low = _centred(rest, self.width)
            rest = (rest - low) >> self.width
        if self.cut:
            shifts = self.piece * np.arange(self.cut)[:, None]
            numbers[self.fields * used :] = (rest.reshape(self.cut, -1) << shifts).sum(axis=0)
        return numbers

    def _used(self, slots: int) -> int:
        return slots - slots % self.cut if self.cut else slots


def packings(bound: int, contributors: int, slot_bits: int) -> list[Packing]:
    """All packings for slots of so many bits: from one field to as many as fit, with every cut."""
    choices = []
    for fields in range(1, slot_bits // Packing(bound, contributors, 1).width + 1):
        choices += [Packing(bound, contributors, fields, cut) for cut in (0, *range(2, _LONGEST_CUT + 1))]
    return choices


def _centred(numbers: np.ndarray, bits: int) -> np.ndarray:
    """The residue modulo ``2**bits`` that is nearest to zero."""
    return (numbers << (64 - bits)) >> (64 - bits)
