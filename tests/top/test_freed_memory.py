"""Freed memory is used again, and not handed back to the system."""

import subprocess
import sys

import pytest

TENSORS = """
import resource, sys
from secure_fedgraph.backends.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
import torch

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

before = faults()
for _ in range(16):
    kept = [torch.ones(9_000_000) for _ in range(2)]  # 36 MB each: above what glibc keeps by itself
    del kept
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's setting")
def test_tensors_of_one_size_take_the_memory_of_those_before() -> None:
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", TENSORS, how], check=True, capture_output=True).stdout)
        for how in ("keep", "give back")
    )
    assert kept < 0.75 * given_back  # a quarter to a half: it depends on where the first blocks lay
