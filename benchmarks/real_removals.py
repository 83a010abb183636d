"""Removals from real data: how far the sums that the server opens move, beside what is counted for them.

Each removal is a run's first round with all its messages: every client's door, the masks and the server's
opening are the run's. Three things are taken out: noise is zero, coins take all that may be removed and a
tenth of the others, and what clients draw to mix columns is the same each time. The server goes on from the
sums of the whole data, so clients are asked the same with the unit and without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.algorithms.glasu import at_home
from secure_fedgraph.core.channel import Channel
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection import bound as doors
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.running.loop import Session
from secure_fedgraph.running.preparation import Prepared

RANDOM, HUBS = 20, 5
"""How many units are drawn, and how many have the most links."""
OTHERS = 10
"""Of so many records that stay, coins take one."""


class Removed:
    """A run's first round with one unit less.

    Args:
        prepared: a run of which every sum has noise, or does not depend on the unit.
        unit: what is removed: a node or graph (emptied, out of training), a label or features (changed), or
            all links of a node.
    """

    def __init__(self, prepared: Prepared, unit: str) -> None:
        self._prepared, self._unit = prepared, unit
        self._random, self._hubs = self._drawn()
        self._taken = {
            number
            for owner, graph in prepared.federation.owners.items()
            for name in (*self._random, *self._hubs)
            for number in self._numbers(owner, graph, name)
        }
        self._whole = self._opened(prepared.federation.owners)

    @property
    def units(self) -> dict[str, int]:
        """What can be removed, from all who hold it: its name -> its links, or nodes of a graph."""
        found: dict[str, int] = {}
        for owner, graph in self._prepared.federation.owners.items():
            of_graphs = self._unit == Unit.GRAPH
            sizes = torch.bincount(
                graph.graph if of_graphs else graph.edge_index[1],
                minlength=len(graph.y) if of_graphs else int(graph.num_nodes or 0),
            )
            for number in graph.train_mask.nonzero().flatten().tolist():
                name = self._name(owner, graph, number)
                found[name] = found.get(name, 0) + int(sizes[number])
        return found

    def chosen(self, random: int = RANDOM, hubs: int = HUBS) -> tuple[list[str], list[str]]:
        """Units by chance (a seeded draw) and those with the most links or nodes, of what owners train on."""
        return self._random[:random], self._hubs[:hubs]

    def _drawn(self) -> tuple[list[str], list[str]]:
        units = self.units
        names = sorted(units)
        drawn = torch.randperm(len(names), generator=torch.Generator().manual_seed(0))[:RANDOM].tolist()
        return [names[i] for i in drawn], sorted(names, key=lambda name: -units[name])[:HUBS]

    def moved(self, name: str) -> float:
        """How far one removal moves the sums, in parts of what is counted: the largest over sums.

        Where nothing is counted, 0 if nothing moves, and infinite otherwise.

        Args:
            name: one of :meth:`chosen`.
        """
        assert name in (*self._random, *self._hubs), name
        owners = {
            owner: self._without(owner, graph, name)
            for owner, graph in self._prepared.federation.owners.items()
        }
        shares = [0.0]
        for (channel, before), (_, after) in zip(self._whole, self._opened(owners), strict=True):
            apart = math.sqrt(sum(float((before[k] - after[k]).square().sum()) for k in before))
            counted = self._counted(channel)
            shares.append(apart / counted if counted else math.inf if apart else 0.0)
        return max(shares)

    def _counted(self, channel: str) -> float:
        """How far the charge lets a unit move a sum; 0 where no noise covers it."""
        bound: Bound = self._prepared.bound[channel]
        if self._unit in bound.channel.unread:
            return 0.0
        holders = 1 if bound.channel.one_holder else self._prepared.federation.holders
        if not math.isfinite(bound.sensitivity.l2):
            return 0.0
        return bound.sensitivity.l2 * holders * (1 if bound.unit == self._unit else 2)

    def _opened(self, owners: Mapping[str, Data]) -> list[tuple[str, dict[str, torch.Tensor]]]:
        prepared = replace(self._prepared, federation=replace(self._prepared.federation, owners=dict(owners)))
        with _without_chance(self._taken), Session(prepared) as session:
            state, _ = session.start()
            round: Any = _Replayed(session.round(1), getattr(self, "_given", ()))
            prepared.algorithm.round(round, state)
        if not hasattr(self, "_given"):
            self._given = tuple(round.given)
        return [(channel, dict(one.total)) for channel, one in round.opened]

    def _name(self, owner: str, graph: Data, number: int) -> str:
        held_by_several = self._prepared.federation.holders > 1
        if "node_id" in graph:
            return str(int(graph.node_id[number]))
        return str(number) if held_by_several else f"{owner} {number}"

    def _numbers(self, owner: str, graph: Data, name: str) -> list[int]:
        if "node_id" in graph:
            found: list[int] = (graph.node_id == int(name)).nonzero().flatten().tolist()
            return found
        if self._prepared.federation.holders > 1:
            return [int(name)]
        of, number = name.rsplit(" ", 1)
        return [int(number)] if of == owner else []

    def _without(self, owner: str, graph: Data, name: str) -> Data:
        numbers = self._numbers(owner, graph, name)
        if not numbers:
            return graph
        less = graph.clone()
        nodes = (graph.graph == numbers[0]) if self._unit == Unit.GRAPH else _only(numbers[0], len(graph.x))
        if self._unit in (Unit.NODE, Unit.GRAPH, Unit.FEATURE):
            less.x[nodes] = 0
        if self._unit == Unit.LABEL:
            less.y[nodes] = (graph.y[nodes] + 1) % self._prepared.federation.schema.classes
        if self._unit in (Unit.NODE, Unit.GRAPH, Unit.EDGE):
            for key in graph.edge_attrs():
                if key == "edge_index":
                    kept = ~nodes[graph.edge_index].any(0)
                    less.edge_index = graph.edge_index[:, kept]
        if self._unit in (Unit.NODE, Unit.GRAPH):
            for mask in ("train_mask", "val_mask", "test_mask"):
                less[mask][numbers[0]] = False
        return less


class _Replayed:
    """A round whose sums are opened, and answered by those of an earlier run."""

    def __init__(self, round: Any, given: Sequence[Any]) -> None:
        self._round, self._earlier = round, list(given)
        self.given: list[Any] = []
        self.opened: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._round, name)

    def reduce(self, channel: Channel, *given: Any, **more: Any) -> Any:
        """Opens the sum, and gives what the earlier run opened in its place."""
        found = self._round.reduce(channel, *given, **more)
        self.opened.append((channel.name, found))
        self.given.append(self._earlier[len(self.given)] if self._earlier else found)
        return self.given[-1]


def _only(number: int, size: int) -> torch.Tensor:
    chosen = torch.zeros(size, dtype=torch.bool)
    chosen[number] = True
    return chosen


@contextmanager
def _without_chance(taken: set[int]) -> Iterator[None]:
    """No noise, the same coins, the same mixing of columns."""

    def coins(units: int, rate: float) -> torch.Tensor:
        some = taken | set(range(0, units, 1 if rate == 1 else OTHERS))
        return torch.tensor(sorted(number for number in some if number < units))

    def none(stage: Gaussian, shape: tuple[int, ...], keys: Sequence[bytes] = ()) -> np.ndarray:
        return np.zeros(shape, dtype=np.int64)

    with ExitStack() as stack:
        for target, name, fixed in (
            (Gaussian, "_draw", none),
            (Gaussian, "take_off", lambda stage, matrix, keys: matrix.astype(np.int64)),
            (doors, "secret_coins", coins),
            (at_home, "os", SimpleNamespace(urandom=bytes)),
        ):
            stack.enter_context(patch.object(target, name, fixed))
        yield
