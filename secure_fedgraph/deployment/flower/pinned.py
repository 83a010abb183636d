"""The release of Flower that these modules were written for and tested with."""

from __future__ import annotations

import os
import warnings
from importlib import metadata

from secure_fedgraph.core.errors import BadInput

VERSION = "1.41.0"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Settings of Flower's processes: nobody else is told that they run."""


def check_flower() -> None:
    """Checks that the pinned release of Flower is installed, and switches its telemetry off.

    The modules of Flower that a resident silo uses are private to it: another release may have changed them.

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
        raise BadInput(f"silos on machines of their own need Flower (flwr {VERSION}): {mend}") from None
    if installed != VERSION:
        raise BadInput(
            f"flwr {installed} is installed, and this version of secure-fedgraph works with flwr "
            f"{VERSION}: {mend}"
        )
