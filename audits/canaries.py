"""Canaries in a whole run: units whose part of every noised upload is a direction of their own, or nothing.

A fair coin for each says which (or which way, where noise speaks for units that are replaced). The run is a
real one: the door, the clip, the noise, the carrier's masks, the server's sums, the ledger. What the server
read is projected on each direction; how well that tells the coins bounds epsilon from below
(:mod:`audits.one_run`).

=================  ====================================================================================
upload             canary
=================  ====================================================================================
weights, gradients a client's whole upload along a random direction
sums over units    one unit's row along a basis vector that no other canary of the sum has
sums over trees    the same, in every place where the unit stands
noisy steps        all the records that one unit may be in, each pulling along a random direction
=================  ====================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from audits.conformance_record import noise_of
from audits.worst_cases import BEYOND
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.privacy.clipping import Clip
from secure_fedgraph.privacy.local_step import Training
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.privacy.pooling import first
from secure_fedgraph.privacy.protection import Bound
from secure_fedgraph.protocol.channel import Touches, TouchesTrees, Unit
from secure_fedgraph.protocol.transcript import SERVER, View
from secure_fedgraph.protocol.upload import Parts, Trees, Upload

Canary = tuple[str, int]
"""A client, and the number of the unit in it."""


@dataclass
class Planting:
    """Puts canaries into a run's uploads and reads their coins back out of what the server saw.

    Args:
        bound: the run's policy.
        clients: everybody's names.
        seed: of coins and directions: they protect nobody, and the noise does not know them.
    """

    bound: BoundPolicy
    clients: tuple[str, ...]
    seed: int
    coins: dict[Canary, bool] = field(default_factory=dict)
    _places: dict[tuple[str, int], dict[str, tuple[Any, list[int]]]] = field(default_factory=dict)
    """(channel, round) -> client -> its table of places and the rows that are canaries."""

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, 1])

    @property
    def noised(self) -> dict[str, Bound]:
        """The channels that the server reads under noise."""
        return {n: b for n, b in self.bound.bounds.items() if (s := noise_of(b)) and s.by != SERVER}

    def algorithm(self, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm whose clients send canaries."""
        planted = {kind.answers[name]: self._answer(kind, name) for name in self.noised}
        if self.bound.steps is not None:
            trained = [name for name, bound in self.bound.bounds.items() if bound.channel.trained]
            planted |= {kind.answers[name]: self._trained(kind, name) for name in trained}
        return type(kind.__name__, (kind,), planted)

    def coin(self, canary: Canary) -> bool:
        """Whether a canary is in: drawn when it is first asked for."""
        return self.coins.setdefault(canary, bool(self._rng.random() < 0.5))

    def sign(self, canary: Canary, opposite: bool) -> float:
        """Which way a canary points, and whether at all."""
        return 1.0 if self.coin(canary) else -1.0 if opposite else 0.0

    def direction(self, canary: Canary, width: int) -> torch.Tensor:
        """A random unit vector, ``[width]``."""
        place = self.clients.index(canary[0])
        rng = np.random.default_rng([self.seed, 2, place, canary[1]])
        found = torch.from_numpy(rng.standard_normal(width, dtype=np.float32))
        return found / found.norm()

    # --- into the run

    def _answer(self, kind: type[Algorithm], name: str) -> Callable[..., Any]:
        real, bound = getattr(kind, kind.answers[name]), self.bound[name]

        def answer(algorithm: Algorithm, me: Any, given: Any) -> Any:
            return self._swapped(bound, me.name, me.round, real(algorithm, me, given))

        return answer

    def _swapped(self, bound: Bound, client: str, round: int, made: Any) -> Any:
        opposite = bound.terms.relation == "replace"
        if isinstance(made, Upload):
            size = BEYOND * _norm(bound) * self.sign((client, 0), opposite)
            return Upload(_shaped(size * self.direction((client, 0), made.size), made.values))
        touches = bound.channel.touches
        assert touches is not None
        opposite = opposite or touches.turns
        width = sum(math.prod(value.shape[1:]) for value in made.values.values())
        rows = self._rows(made, client, width)
        flat = torch.zeros(len(next(iter(made.values.values()))), width)
        for number, row in enumerate(rows):
            flat[row, self._column(client, number, width)] = (
                BEYOND * touches.norm * self.sign((client, number), opposite)
            )
        table = self._table(made, touches)
        self._places.setdefault((bound.channel.name, round), {})[client] = table, rows
        names, sizes = list(made.values), [math.prod(v.shape[1:]) for v in made.values.values()]
        parts = torch.split(flat, sizes, dim=1)
        values = {
            name: part.reshape(made.values[name].shape) for name, part in zip(names, parts, strict=True)
        }
        return type(made)(values, made.places)

    def _rows(self, made: Parts | Trees, client: str, width: int) -> list[int]:
        """Rows of units that stand somewhere, as many as have a column of their own."""
        if isinstance(made, Trees):
            there = sorted({int(u) for u in made.places.reshape(-1).tolist() if u >= 0})
        else:
            there = torch.nonzero(made.places.any(1)).reshape(-1).tolist()
        return there[: max(width // len(self.clients), 1)]

    def _column(self, client: str, number: int, width: int) -> int:
        each = max(width // len(self.clients), 1)
        return (self.clients.index(client) * each + number) % width

    def _table(self, made: Parts | Trees, touches: Touches | TouchesTrees) -> np.ndarray:
        """``[units, rows]``: how often a unit is in each row of the sums."""
        if isinstance(made, Parts):
            return first(made.places.bool().numpy(), touches.rows).astype(np.float64)
        batches, trees, positions = made.places.shape
        found = np.zeros((len(next(iter(made.values.values()))), batches * positions))
        batch, _, position = np.meshgrid(range(batches), range(trees), range(positions), indexing="ij")
        units = made.places.numpy()
        there = units >= 0
        np.add.at(found, (units[there], (batch * positions + position)[there]), 1.0)
        return found

    def _trained(self, kind: type[Algorithm], name: str) -> Callable[..., Any]:
        real = getattr(kind, kind.answers[name])

        def answer(algorithm: Algorithm, me: Any, given: Any) -> Any:
            if not isinstance(me.training, _PlantedTraining):
                me.training = _PlantedTraining(me.training, self, me.name)
            return real(algorithm, me, given)

        return answer

    def gradients(
        self, client: str, parameters: Mapping[str, Any], records: int, occurrences: int
    ) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
        """Chosen records to gradients: those of a canary all pull its way, others nowhere."""
        steps = self.bound.steps
        assert steps is not None
        groups, width = records // occurrences, sum(p.numel() for p in parameters.values())
        opposite = steps.unit == "node" or self.bound.policy.relation == "replace"
        for number in range(groups):
            self.coin((client, number))

        def of(chosen: torch.Tensor) -> dict[str, torch.Tensor]:
            flat = torch.zeros(len(chosen), width)
            for at, record in enumerate(chosen.tolist()):
                canary = client, record // occurrences
                if canary[1] < groups:
                    size = BEYOND * steps.clip * self.sign(canary, opposite)
                    flat[at] = size * self.direction(canary, width)
            parts = torch.split(flat, [p.numel() for p in parameters.values()], dim=1)
            return {
                name: part.reshape(len(chosen), *p.shape)
                for (name, p), part in zip(parameters.items(), parts, strict=True)
            }

        return of

    # --- out of what was seen

    def scores(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Of canaries that were in, and of those that were out: 0 is halfway, higher is likelier in."""
        found = dict.fromkeys(self.coins, 0.0)
        for name, bound in self.noised.items():
            stage = noise_of(bound)
            assert stage is not None
            # the log of the likelihood's ratio: what moves the sum far beside little noise counts most
            weight = 1 / (stage.multiplier**2 * stage.moved)
            for seen in view.uploads(name) or view.sums(name):
                flat = _flat(seen.values, bound.channel.unit)
                for canary, score, halfway in self._read(bound, seen.round, seen.clients, flat):
                    found[canary] += weight * (score - halfway)
        if self.bound.steps is not None:
            for name in (n for n, b in self.bound.bounds.items() if b.channel.trained):
                for seen in view.uploads(name) or view.sums(name):
                    flat = _flat(seen.values, Unit.CLIENT).reshape(-1)
                    for canary in self.coins:
                        if canary[0] in seen.clients:  # a step goes against the gradient
                            found[canary] -= float(flat @ self.direction(canary, len(flat)).double())
        scores = np.array([found[canary] for canary in self.coins])
        inside = np.array(list(self.coins.values()), dtype=bool)
        return scores[inside], scores[~inside]

    def _read(
        self, bound: Bound, round: int, clients: tuple[str, ...], flat: torch.Tensor
    ) -> Iterator[tuple[Canary, float, float]]:
        """Canary, what was seen of it, and what is halfway between its two worlds."""
        touches = bound.channel.touches
        if touches is None:
            values, opposite = flat.reshape(-1), bound.terms.relation == "replace"
            for client in clients:
                canary = client, 0
                seen = float(values @ self.direction(canary, len(values)).double())
                yield canary, seen, 0.0 if opposite else _norm(bound) / 2
            return
        opposite = bound.terms.relation == "replace" or touches.turns
        for client in clients:
            table, rows = self._places[bound.channel.name, round][client]
            for number, row in enumerate(rows):
                column = flat[:, self._column(client, number, flat.shape[1])].numpy()
                whole = touches.norm * float(table[row] @ table[row])
                yield (client, number), float(table[row] @ column), 0.0 if opposite else whole / 2


class _PlantedTraining(Training):
    """A client's noisy steps, on canaries' gradients."""

    def __init__(self, real: Training, planting: Planting, client: str) -> None:
        self.__dict__ = real.__dict__  # its bill is the client's own
        self._planting, self._client = planting, client

    def run(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, torch.nn.Parameter],
        records: int,
        gradients: Callable[[torch.Tensor], Mapping[str, torch.Tensor]],
        occurrences: int = 1,
        penalty: Callable[[], Any] | None = None,
    ) -> None:
        """As the real one's; nothing of the data is in the gradients."""
        planted = self._planting.gradients(self._client, parameters, records, occurrences)
        super().run(optimizer, parameters, records, planted, occurrences, penalty)


def _norm(bound: Bound) -> float:
    return next((float(stage.norm) for stage in bound.stages if isinstance(stage, Clip)), 1.0)


def _shaped(flat: torch.Tensor, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    parts = torch.split(flat, [value.numel() for value in like.values()])
    return {name: part.reshape(v.shape) for (name, v), part in zip(like.items(), parts, strict=True)}


def _flat(values: Mapping[str, Any], unit: Unit) -> torch.Tensor:
    """``[rows, width]``, one row where the unit is a client."""
    arrays = [torch.as_tensor(np.array(value), dtype=torch.float64) for value in values.values()]
    rows = 1 if unit is Unit.CLIENT else len(arrays[0])
    return torch.cat([array.reshape(rows, -1) for array in arrays], dim=1)
