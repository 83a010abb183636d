"""Names as points of a curve under a secret exponent, by the library ``openmined-psi`` (P-256).

Exponents commute: a name under the hub's exponent and then the member's is the same point as under the
member's and then the hub's. So two owners compare names of which each has seen only the other's points. The
points are compared one by one: there is no Bloom filter in it, and no false match.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from secure_fedgraph.core.crypto import Secret
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.deployment.alignment.terms import POINT_BYTES

EXTRA = "align"


def library() -> Any:
    """The library of points, which has no types.

    Raises:
        BadInput: where it is not installed.
    """
    try:
        return importlib.import_module("private_set_intersection.python")
    except ImportError:
        raise BadInput(
            f"openmined-psi, which aligns rows, is not installed: pip install 'secure-fedgraph[{EXTRA}]'"
        ) from None


class Blinding(Secret):
    """A fresh secret exponent of the operating system's randomness, for one pair and one purpose.

    Guarantees:
        - who lacks the exponent cannot tell a text's point from a random one, whatever texts it guesses
          (the decisional Diffie-Hellman assumption on P-256, hashes taken as random);
        - the same text gives the same point, and two exponents commute.

    Needs:
        - the package ``openmined-psi``.

    Raises:
        BadInput: where it is not installed.
    """

    __slots__ = ("_client", "_request", "_server")

    def __init__(self) -> None:
        psi = library()
        # A client of the library maps texts to points; a server of the same key multiplies points that come.
        self._client = psi.client.CreateWithNewKey(True)
        self._server = psi.server.CreateFromKey(self._client.GetPrivateKeyBytes(), True)
        self._request = psi.Request

    def of_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Each text's point.

        Returns:
            ``uint8 [n, 33]``, in the order of the texts.
        """
        return _together(self._client.CreateRequest(list(texts)).encrypted_elements)

    def of_points(self, points: np.ndarray) -> np.ndarray:
        """Each point under this exponent too.

        Args:
            points: ``uint8 [n, 33]``, another owner's.

        Raises:
            HostileMessage: where one is no point of the curve.
        """
        elements = [row.tobytes() for row in points]
        # the point at infinity is one byte long in this form, so what begins with 2 or 3 is another point
        if any(element[0] not in (2, 3) for element in elements):
            raise HostileMessage("a letter holds something that is no point of the curve")
        try:
            done = self._server.ProcessRequest(
                self._request(reveal_intersection=True, encrypted_elements=elements)
            )
        except RuntimeError:
            raise HostileMessage("a letter holds something that is no point of the curve") from None
        return _together(done.encrypted_elements)


def _together(elements: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(elements), dtype=np.uint8).reshape(-1, POINT_BYTES)
