"""Text from another party, made safe before it is printed or recorded."""

from __future__ import annotations

import unicodedata

from secure_fedgraph.core.errors import SecureFedGraphError

LONGEST = 1000
"""Characters that are kept of a sentence."""
_CONTROLS = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def printable(text: str, longest: int = LONGEST) -> str:
    """Text without characters that control a terminal or reverse the direction, cut to a length.

    >>> printable("red: \x1b[31m\u202e!", 20)
    'red: ?[31m?!'
    >>> printable("a" * 30, 10)
    'aaaaaaaaa…'
    """
    kept = text[: longest + 1]
    clean = "".join("?" if unicodedata.category(letter) in _CONTROLS else letter for letter in kept)
    return clean if len(text) <= longest else clean[: longest - 1] + "…"


def reason(error: Exception) -> str:
    """Why a client was left out, in a sentence; an unexpected error says of what class it is."""
    text = str(error)
    return text if isinstance(error, SecureFedGraphError) else f"{type(error).__name__}: {text}"
