"""A run in TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from secure_fedgraph.experiment.run_logs.log import scores, totals


class TensorBoardLog:
    """A step a round, and the configuration as text.

    Args:
        folder: the log folder; the run gets one of its own in it.
        name: of the run.
        config: dotted keys.
    """

    def __init__(self, folder: str, name: str, config: Mapping[str, Any]) -> None:
        self._writer = SummaryWriter(str(Path(folder) / name))
        self._writer.add_text("config", "\n".join(f"    {key} = {value}" for key, value in config.items()))

    def round(self, row: Mapping[str, Any]) -> None:
        """One step."""
        for name, value in scores(row).items():
            self._writer.add_scalar(name, value, int(row["round"]))

    def result(self, result: Mapping[str, Any]) -> None:
        """Totals, at the last step."""
        for name, value in totals(result).items():
            self._writer.add_scalar(name, value, len(result["rounds"]))

    def close(self, whole: bool) -> None:
        """Writes what is left."""
        self._writer.close()
