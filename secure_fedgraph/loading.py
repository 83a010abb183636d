"""How heavy libraries are loaded: as late as possible, and with threads that do not spin.

Most commands use no accountant of noise, no networkx (their partition is kept already), and never PyTorch's
compiler. Such modules are loaded where something of them is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# Threads that wait must not spin: clients' processes, workers and whatever else runs here share the cores.
# OpenMP reads this once, when torch is loaded, so it is set before anything else is imported. A value that
# the environment already has stays. On a machine with other work, spinning doubled the processor time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_COMPILER, _LOADS_IT = "torch._dynamo", "torch_geometric.isinstance"


class _Postponed(ModuleType):
    """Stands for a module; each use goes to the module itself, so that what a test replaces there is used."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def postponed(name: str) -> Any:
    """A module that is imported when something of it is first used.

    >>> postponed("math").hypot(3, 4)
    5.0
    """
    return _Postponed(name)


class _WithoutCompiler(Loader):
    """Runs a module for which PyTorch's compiler is only postponed."""

    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        compiler = sys.modules.setdefault(_COMPILER, _Postponed(_COMPILER))
        try:
            self._inner.exec_module(module)
        finally:
            if isinstance(compiler, _Postponed) and sys.modules.get(_COMPILER) is compiler:
                del sys.modules[_COMPILER]  # whoever imports it later does so as usual


class _Finder(MetaPathFinder):
    """Finds the one module of torch-geometric that loads the compiler.

    It does so to recognise compiled models, on every import of torch-geometric. The compiler takes more than
    a second of processor time to load, as much as all of PyTorch. ``torch._dynamo`` stays usable: PyTorch
    loads it by itself when it is first named.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _LOADS_IT else None
        if spec is not None and spec.loader is not None:
            spec.loader = _WithoutCompiler(spec.loader)
        return spec


def postpone_the_compiler() -> None:
    """From now on, importing torch-geometric does not load PyTorch's compiler."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
