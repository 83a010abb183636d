"""The releases of Flower whose private parts stand in ``private.py``: from the first to below the last."""

from __future__ import annotations

import os
import warnings
from importlib import metadata

from packaging.version import Version

from secure_fedgraph.core.errors import BadInput

FIRST, BELOW = "1.40", "1.43"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Settings of Flower's processes: nobody else is told that they run."""


def check_flower() -> None:
    """Checks that a known release of Flower is installed, and switches its telemetry off.

    Raises:
        BadInput: where Flower is missing or of another release, with the command that mends it.
    """
    os.environ.update(QUIET)
    warnings.filterwarnings(
        "ignore", "Protobuf gencode version", UserWarning
    )  # Flower's files on each import
    mend = "run: pip install 'secure-fedgraph[flower]'"
    try:
        installed = metadata.version("flwr")
    except metadata.PackageNotFoundError:
        raise BadInput(
            f"silos on machines of their own need Flower (flwr {FIRST} to below {BELOW}): {mend}"
        ) from None
    if not Version(FIRST) <= Version(installed) < Version(BELOW):
        raise BadInput(
            f"flwr {installed} is installed, and this version of secure-fedgraph works with flwr "
            f"{FIRST} to below {BELOW}: {mend}"
        )
