"""Memory that was freed stays with the process, for the next round's tensors of the same size.

The C library hands large blocks back to the system at once, and the system clears each page that it hands
out again. A round makes and frees tensors of the same sizes all the time; clearing their pages took a third
of the time of FedSage+'s exchange. Commands and workers ask for this when they start; whoever uses the
package as a library decides about the memory of their own process.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names and values of mallopt(3)
LARGEST_KEPT = 2**30
"""Blocks of more bytes go back to the system when they are freed."""
MOST_KEPT = 2**31 - 1
"""Bytes at the end of the heap that are kept; the largest value of a C int."""


def keep_freed_memory() -> bool:
    """Has the C library keep freed memory for this process.

    Returns:
        Whether it took the setting: glibc does; on other systems nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no such function: not glibc
        return False
    return bool(set_option(MMAP_THRESHOLD, LARGEST_KEPT)) and bool(set_option(TRIM_THRESHOLD, MOST_KEPT))
