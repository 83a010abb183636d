"""Ring words: their type, their packing at the ring's width, and masks added to them chunk by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from secure_fedgraph.core.crypto import KeyStream
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.upload import Layout

WIDTHS = (16, 20, 32)
"""Bits of a word. 20 are two bytes each, and half a byte each behind them."""
CHUNK = 128 * 1024
"""Bytes: a piece of the total and a piece of a key stream stay in the second-level cache."""
GROUP = 256
"""Key streams that are open at once."""


def word(bits: int) -> np.dtype[Any]:
    """The type in which words of so many bits are added; the ring's size divides its size."""
    return np.dtype("<u2") if bits == 16 else np.dtype("<u4")


def accumulate(
    total: np.ndarray,
    arrays: Sequence[np.ndarray] = (),
    plus: Sequence[bytes] = (),
    minus: Sequence[bytes] = (),
) -> None:
    """Adds arrays and key streams to the total in place, and subtracts other streams, modulo the word.

    Args:
        total: words, contiguous.
        arrays: words of the same type and size.
        plus, minus: 32-byte keys of the streams.
    """
    keys = [(key, True) for key in plus] + [(key, False) for key in minus]
    step = CHUNK // total.itemsize
    piece = np.empty(min(step, total.size), dtype=total.dtype)
    for first in range(0, max(len(keys), 1), GROUP):
        streams = [(KeyStream(key).into, add) for key, add in keys[first : first + GROUP]]
        for start in range(0, total.size, step):
            out = total[start : start + step]
            if not first:
                for array in arrays:
                    np.add(out, array[start : start + step], out=out)
            chunk = piece[: out.size]
            view = chunk.data.cast("B")
            for into, add in streams:
                into(view)
                if add:
                    np.add(out, chunk, out=out)
                else:
                    np.subtract(out, chunk, out=out)


def pack(words: np.ndarray, bits: int) -> np.ndarray:
    """The words as they travel: 32 bits as they are, fewer as bytes."""
    if bits == 32:
        return words
    if bits == 16:
        return words.view(np.uint8)
    low = words.astype("<u2").view(np.uint8)
    high = np.zeros(-(-words.size // 2) * 2, dtype=np.uint8)
    np.copyto(high[: words.size], words >> np.uint32(16), casting="unsafe")
    high &= 15
    return np.concatenate([low, high[0::2] | high[1::2] << 4])


def checked(data: Any, bits: int, layout: Layout, name: str) -> np.ndarray:
    """An upload that holds the number of words that its layout promises.

    Raises:
        HostileMessage: for anything else, and for bits beyond the ring's.
    """
    size = layout.rows * layout.width
    travels = np.dtype("<u4") if bits == 32 else np.dtype("u1")
    length = {32: size, 16: 2 * size, 20: 2 * size + -(-size // 2)}[bits]
    if not isinstance(data, np.ndarray) or data.dtype != travels or data.shape != (length,):
        raise HostileMessage(
            f"{name}'s upload does not hold {layout.rows} x {layout.width} values of {bits} bits"
        )
    if bits == 20 and size % 2 and data[-1] >> 4:
        raise HostileMessage(f"{name}'s upload holds more than {size} values of {bits} bits")
    return data


def unpack(data: Any, bits: int, layout: Layout, name: str) -> np.ndarray:
    """The words of an upload, with the number that its layout promises.

    Raises:
        HostileMessage: for anything else.
    """
    packed, size = checked(data, bits, layout, name), layout.rows * layout.width
    if bits == 32:
        return packed
    if bits == 16:
        return np.ascontiguousarray(packed).view("<u2")
    high = packed[2 * size :]
    words = np.empty(2 * high.size, dtype="<u4")
    words[0::2] = high & 15
    words[1::2] = high >> 4
    words = words[:size]
    words <<= np.uint32(16)
    words |= np.ascontiguousarray(packed[: 2 * size]).view("<u2")
    return words


def centred(words: np.ndarray, bits: int) -> np.ndarray:
    """The ring's numbers from minus half its size; a view where the word is as wide as the ring."""
    if bits == 20:
        return (words << np.uint32(12)).view(np.int32) >> 12
    return words.view(np.int16 if bits == 16 else np.int32)
