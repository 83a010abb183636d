"""What a budget is warned about before it is spent."""

from __future__ import annotations

import warnings
from collections.abc import Mapping


class EarlyStopWarning(UserWarning):
    """A budget that will stop a run before its last round."""


class DeltaWarning(UserWarning):
    """A delta so large that even publishing one unit's raw data would keep to it."""


def warn_of_delta(delta: float, sizes: Mapping[str, int]) -> None:
    """Warns where delta is 1/n or more.

    Args:
        delta: the failure probability.
        sizes: unit -> how many there are, which is public.
    """
    for unit, count in sizes.items():
        if count and delta >= 1 / count:
            warnings.warn(
                f"delta {delta:g} is 1/n or more of {count} {unit}s: publishing one raw {unit} of all "
                f"would keep to it; set --delta well below {1 / count:.1g}",
                DeltaWarning,
                stacklevel=2,
            )
            return  # smaller units are more, so they would warn as well
