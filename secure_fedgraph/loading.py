"""How heavy libraries are loaded: as late as possible, and with threads that do not spin.

Most commands use no accountant of noise, no networkx (their partition is kept already), and never pandas or
PyTorch's compiler. Such modules are loaded where something of them is used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# Threads that wait must not spin: clients' processes, workers and whatever else runs here share the cores.
# OpenMP reads this once, when torch is loaded, so it is set before anything else is imported. A value that
# the environment already has stays. On a machine with other work, spinning doubled the processor time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
_LATE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "torch_geometric.isinstance": ("torch._dynamo", ()),  # to recognise compiled models
    "torch_geometric.llm.utils.backend_utils": ("pandas", ("DataFrame",)),  # for a filter of text graphs
    "torch_geometric.datasets.tag_dataset": ("pandas", ("DataFrame", "read_csv")),  # for one family of data
}
"""A module that every import of torch-geometric runs -> a module that it loads and nearly nobody uses, and
the names that it imports from there."""


class _Postponed(ModuleType):
    """Stands for a module; each use goes to the module itself, so that what a test replaces there is used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # which ``from module import name`` looks at
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def postponed(name: str) -> Any:
    """A module that is imported when something of it is first used.

    >>> postponed("math").hypot(3, 4)
    5.0
    """
    return _Postponed(name)


class _PostponedMember:
    """Stands for a function or a class: its module is imported at the first use."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _real(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._real()(*given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._real())

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self._real())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._real(),)

    def __or__(self, other: Any) -> Any:
        return self._real() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._real()


class _Without(Loader):
    """Runs a module for which another one is only postponed."""

    def __init__(self, inner: Loader, name: str, names: tuple[str, ...]) -> None:
        self._inner, self._name, self._names = inner, name, names

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        late = sys.modules.setdefault(self._name, _Postponed(self._name))
        if isinstance(late, _Postponed):
            for one in self._names:
                setattr(late, one, _PostponedMember(self._name, one))
        try:
            self._inner.exec_module(module)
        finally:
            if isinstance(late, _Postponed) and sys.modules.get(self._name) is late:
                del sys.modules[self._name]  # whoever imports it later does so as usual


class _Finder(MetaPathFinder):
    """Finds the modules of torch-geometric that load what takes long, on every import of it.

    PyTorch's compiler takes more than a second of processor time to load, as much as all of PyTorch; pandas
    takes a third of one. Both stay usable: they are loaded when something of them is first used.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _LATE:
            return None
        name, names = _LATE[fullname]
        spec = PathFinder.find_spec(fullname, path, target)
        # without pandas, torch-geometric goes on without it too
        if spec is not None and spec.loader is not None and find_spec(name.partition(".")[0]) is not None:
            spec.loader = _Without(spec.loader, name, names)
        return spec


def postpone_what_torch_geometric_loads() -> None:
    """From now on, importing torch-geometric loads neither PyTorch's compiler nor pandas."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
