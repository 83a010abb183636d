"""Algorithms, attacks, policies and data sets by name: this package's own, and those of other packages.

One of this package is a module in its folder, and needs no other registration (:func:`classes_below`).
Another package registers one with a line in its ``pyproject.toml``::

    [project.entry-points."secure_fedgraph.algorithms"]
    mean-degree = "their_package.degrees:MeanDegree"

The groups are ``secure_fedgraph.algorithms``, ``.attacks``, ``.policies`` and ``.datasets``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from importlib.util import module_from_spec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Generic, TypeVar

from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.core.text import printable

T = TypeVar("T")
Other = TypeVar("Other")
OWN = "secure-fedgraph"
"""Where this package's own come from, as lists print it."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_.-]{0,63}")
"""What a plugin may be called: no path, no list, nothing that a terminal or a shell reads."""
UNNAMED = "an unnamed package"


class PluginWarning(UserWarning):
    """An entry point of another package that cannot be used; everything else works without it."""


class Registry(Mapping[str, T], Generic[T]):
    """Names and what they stand for: this package's own first, then those of other packages by name.

    Entry points are loaded when all names are listed, or a name is looked up that is not this package's own.
    One that cannot be used is left out. Looking up its name raises the reason as an error; the first listing
    of all names warns of it (:class:`PluginWarning`).

    **Guarantees:** no other package can replace a name of this package.

    Args:
        kind: what one of them is called in messages, e.g. ``"algorithm"``.
        group: of the entry points.
        own: makes this package's own, when they are first needed.
        accept: turns an entry point's name and object into what is registered; raises BadInput for an object
            of another kind.

    Raises:
        BadInput: on looking up the name of an entry point that cannot be used.
    """

    def __init__(
        self, kind: str, group: str, own: Callable[[], Mapping[str, T]], accept: Callable[[str, object], T]
    ) -> None:
        self.kind = kind
        self.group = group
        self._make_own = own
        self._accept = accept
        self._loaded: dict[str, tuple[T, str]] | None = None
        self._broken: dict[str, str] = {}
        self._left_out: list[str] = []
        self._said = 0

    @cached_property
    def own(self) -> Mapping[str, T]:
        """This package's own."""
        return self._make_own()

    def __getitem__(self, name: str) -> T:
        if name in self.own:
            return self.own[name]
        loaded = self._others()
        if name in self._broken:
            raise BadInput(self._broken[name])
        return loaded[name][0]

    def __iter__(self) -> Iterator[str]:
        names = [*self.own, *self._others()]
        self._warn()
        return iter(names)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self)})"

    def package_of(self, name: str) -> str:
        """The name of the package that a registered name comes from."""
        return OWN if name in self.own else self._others()[name][1]

    @property
    def left_out(self) -> tuple[str, ...]:
        """The entry points that cannot be used: a sentence each, with the package and the reason."""
        self._others()
        return tuple(self._left_out)

    @property
    def broken(self) -> Mapping[str, str]:
        """Those of :attr:`left_out` by the name that they would have."""
        self._others()
        return MappingProxyType(self._broken)

    def _others(self) -> Mapping[str, tuple[T, str]]:
        """What other packages register, by name, with the package's name."""
        if self._loaded is None:
            self._loaded = {}  # a plugin that lists names while it loads gets those loaded so far
            by_name: dict[str, list[EntryPoint]] = defaultdict(list)
            points, damaged = points_of(self.group)
            self._left_out += damaged
            for entry in points:
                by_name[entry.name].append(entry)
            for name in sorted(by_name):
                try:
                    self._loaded[name] = self._load(by_name[name]), _package(by_name[name][0])
                except (Exception, SystemExit) as error:  # its code runs on import, and raises what it likes
                    why = error if isinstance(error, BadInput) else f"{type(error).__name__}: {error}"
                    places = " and of ".join(f"{_package(e)} ({e.value})" for e in by_name[name])
                    sentence = printable(f"{self.kind} {name!r} of {places} cannot be used: {why}")
                    self._left_out.append(sentence)
                    if name not in self.own:
                        self._broken[name] = sentence
        return self._loaded

    def _warn(self) -> None:
        """Warns once of each entry point that was left out."""
        unsaid = self._left_out[self._said :]
        self._said = len(self._left_out)
        for sentence in unsaid:
            warnings.warn(sentence, PluginWarning, stacklevel=3)

    def _load(self, entries: list[EntryPoint]) -> T:
        name = entries[0].name
        if name in self.own:
            raise BadInput(f"{OWN} has its own {self.kind} of that name; give the entry point another one")
        if not NAME.fullmatch(name):
            raise BadInput(
                "names become files and words of a command: give the entry point one of letters, digits and "
                "+ _ . -, at most 64, that begins with a letter or a digit"
            )
        if not entries[0].pattern.match(entries[0].value):
            raise BadInput("its value names no object: write module:object")
        if len(entries) > 1:
            raise BadInput("two packages use that name; uninstall one of them")
        return self._accept(name, entries[0].load())


class Derived(Mapping[str, T], Generic[T]):
    """One fact about everything in a registry, by name, e.g. the kind of each data set."""

    def __init__(self, registry: Registry[Other], fact: Callable[[Other], T]) -> None:
        self._get: Callable[[str], T] = lambda name: fact(registry[name])
        self._names: Mapping[str, object] = registry

    def __getitem__(self, name: str) -> T:
        return self._get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def classes_below(package: ModuleType, base: type[T], attribute: str) -> dict[str, type[T]]:
    """The public classes of a kind in all modules of a package that have a name of their own, by that name.

    Left out are abstract classes, and those whose name is inherited or empty.

    Args:
        package: whose modules are imported.
        base: what the classes are subclasses of.
        attribute: the class attribute that holds the name.

    Raises:
        BadInput: for two classes of one name.
    """
    kinds: dict[str, type[T]] = {}
    for module in modules_below(package):
        for kind in vars(module).values():
            if not (isinstance(kind, type) and issubclass(kind, base) and kind.__module__ == module.__name__):
                continue
            name = vars(kind).get(attribute)
            if not name or kind.__name__.startswith("_") or inspect.isabstract(kind):
                continue
            if name in kinds:
                places = " and ".join(f"{one.__module__}.{one.__name__}" for one in (kinds[name], kind))
                raise BadInput(f"{attribute} = {name!r} is in {places}: give each its own")
            kinds[name] = kind
    return kinds


def modules_below(package: ModuleType) -> Iterator[ModuleType]:
    """All modules of a package and of the packages in it, imported, each folder's in alphabetical order."""
    for place in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(place.name)
        yield module
        if place.ispkg:
            yield from modules_below(module)


def import_from(folder: Path, name: str) -> ModuleType:
    """A module by its dotted name; one that lies in a folder is taken from there, whoever else has the name.

    For everything else the folder stands at the end of ``sys.path``: what lies in it hides nobody's modules.
    The standard library's names stay its own, and what is imported already stays what it is.

    Raises:
        ImportError: where no module has the name; and whatever the module's code raises.
    """
    top = name.partition(".")[0]
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    if top and top not in sys.modules and top not in sys.stdlib_module_names:
        spec = PathFinder.find_spec(top, [str(folder)])
        if spec is not None and spec.loader is not None:
            sys.modules[top] = module = module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except BaseException:
                sys.modules.pop(top, None)
                raise
    return importlib.import_module(name)


def own_class(kind: str, name: str, base: type[T]) -> type[T]:
    """A user's own class as ``module:Class``, imported from the working folder first.

    Args:
        kind: what it is called in messages, e.g. ``"attack"``.

    Raises:
        BadInput: where it cannot be imported, is no class of this kind, or lacks a method.
    """
    module, _, place = name.partition(":")
    try:
        candidate: object = import_from(Path.cwd(), module)
        for part in place.split("."):
            candidate = getattr(candidate, part)
    except (Exception, SystemExit) as error:  # the user's own code runs on import, and raises what it likes
        why = error if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise BadInput(
            f"{kind} {name[:120]!r} cannot be imported ({printable(str(why))}): give module:Class"
        ) from error
    if not (isinstance(candidate, type) and issubclass(candidate, base)):
        raise BadInput(f"{kind} {name!r} is no subclass of secure_fedgraph.{base.__name__}")
    return candidate


def check_subclass(name: str, candidate: object, base: type[T], attribute: str) -> type[T]:
    """Checks that an entry point gives a class of the right kind, under the entry point's name.

    Raises:
        BadInput: where it is not.
    """
    if not (isinstance(candidate, type) and issubclass(candidate, base)):
        raise BadInput(f"give a subclass of {base.__module__}.{base.__name__}, not {candidate!r}")
    if inspect.isabstract(candidate):
        raise BadInput(
            f"{candidate.__name__} does not define "
            f"{', '.join(sorted(getattr(candidate, '__abstractmethods__', ())))}"
        )
    if getattr(candidate, attribute, None) != name:
        raise BadInput(
            f"{candidate.__name__}.{attribute} is {getattr(candidate, attribute, None)!r}: the entry point "
            "needs the same name"
        )
    return candidate


def points_of(group: str) -> tuple[list[EntryPoint], list[str]]:
    """The entry points of a group, read package by package where one of them has a damaged list.

    Returns:
        The entry points, and a sentence for each package whose list cannot be read and names plugins of this
        package.
    """
    with suppress(Exception):  # a damaged line anywhere raises what the parser happens to stumble over
        return list(entry_points(group=group)), []
    points: list[EntryPoint] = []
    damaged: list[str] = []
    seen: set[str] = set()
    for one in distributions():
        name = _name_of(one)
        if name in seen - {UNNAMED}:  # a later one of that name is hidden
            continue
        seen.add(name)
        try:
            points += one.entry_points.select(group=group)
        except Exception as error:
            if "secure_fedgraph." in (one.read_text("entry_points.txt") or ""):
                why = f"its entry_points.txt is damaged ({type(error).__name__}: {error})"
                damaged.append(printable(f"no plugin of {name} can be used: {why}"))
    return points, damaged


def named_settings(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The parameters of a function that a setting can name: not ``*args``, not ``**kwargs``.

    >>> list(named_settings(lambda norm, *policies, limit=1, **more: None))
    ['norm', 'limit']
    """
    catch_all = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: one for name, one in inspect.signature(function).parameters.items() if one.kind not in catch_all
    }


@contextmanager
def named_if_it_fails(what: str, function: Callable[..., object]) -> Iterator[None]:
    """Around a call of another package's function, so that whatever it raises says whose it is.

    Args:
        what: it makes, e.g. ``"policy 'wide'"``.
        function: that is called.

    Raises:
        BadInput: for an exception that is none of this package's own, and for ``sys.exit``, which would end
            the command as if it were done.
    """
    try:
        yield
    except SecureFedGraphError:
        raise
    except (Exception, SystemExit) as error:
        where = f"{function.__module__}.{function.__name__}"
        raise BadInput(printable(f"{what}: {where} raised {type(error).__name__}: {error}")) from error


def _package(entry: EntryPoint) -> str:
    return UNNAMED if entry.dist is None else _name_of(entry.dist)


def _name_of(distribution: Distribution) -> str:
    with suppress(Exception):  # its metadata may be damaged, or not there
        return distribution.name or UNNAMED
    return UNNAMED
