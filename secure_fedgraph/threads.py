"""Threads that wait must not spin: clients' processes, workers and whatever else runs here share the cores.

OpenMP reads this once, when torch is loaded, so the module is imported before anything else. A value that
the environment already has stays. On a machine with other work, spinning doubled the processor time of a run.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
