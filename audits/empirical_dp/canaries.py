"""Canaries in a whole run: units whose part of every noised upload is a direction of their own, or nothing.

A fair coin for each decides which (or the sign, where noise protects units that are replaced). The run is a
real one: clip, noise, the carrier's masks, the server's sums, the ledger. What the server read is projected
on each direction; how well the projections show the coins bounds epsilon from below
(:mod:`secure_fedgraph.audits.empirical_dp.one_run`).

=================  ====================================================================================
upload             canary
=================  ====================================================================================
weights, gradients a client's whole upload along coordinates that no other canary has
sums over units    one unit's row along a coordinate that no other canary of the sum has
sampled sums       the same, where the client's coins took the unit
moments            one record along an axis that no other canary has, with the first class
sums over trees    the same, in every place where the unit stands
noisy steps        all the records that one unit may be in, each pulling along coordinates of their own
=================  ====================================================================================

No two canaries share a coordinate, so none changes another's score. Where an upload has fewer coordinates
than there are clients, the last clients have no canary on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.audits.empirical_dp.worst_cases import BEYOND, in_tensors
from secure_fedgraph.audits.record import noise_of, norm_of
from secure_fedgraph.client import Client
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.channel import (
    UnitContributionMoments,
    UnitContributionSampled,
)
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.pooling import first
from secure_fedgraph.core.upload import (
    CLASSES,
    SECOND,
    ContributionMoments,
    ContributionSample,
    Upload,
)
from secure_fedgraph.privacy.dp_sgd import Gradient, Training
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.protocol.transcript import SERVER, Seen, View
from secure_fedgraph.seams import ClientContext

COORDINATES = 64
"""Coordinates of one canary, at most: each value stays far above the grid that values are rounded to."""
Canary = tuple[str, int]
"""A client, and the number of the unit in it."""


@dataclass
class Planting:
    """Puts canaries into a run's uploads and reads their coins back out of what the server saw.

    Args:
        bound: the run's policy.
        clients: everybody's names.
        seed: of the coins, which protect nobody; the noise does not depend on it.
    """

    bound: BoundPolicy
    clients: tuple[str, ...]
    seed: int
    coins: dict[Canary, bool] = field(default_factory=dict)
    _places: dict[tuple[str, int], dict[str, tuple[Any, list[int]]]] = field(default_factory=dict)
    """(channel, round) -> client -> its table of places and the rows that are canaries."""
    _groups: dict[str, int] = field(default_factory=dict)
    """Client -> how many canaries its records make."""

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, 1])

    @property
    def noised(self) -> dict[str, Bound]:
        """The channels that the server reads under noise."""
        bounds = self.bound.bounds.items()
        channels = {n: b for n, b in bounds if b.channel.to == SERVER}
        return {n: b for n, b in channels.items() if (stage := noise_of(b)) and stage.by != SERVER}

    @property
    def trained(self) -> dict[str, Bound]:
        """The channels that show the server what noisy steps made."""
        channels = {
            n: b for n, b in self.bound.bounds.items() if b.channel.to == SERVER and b.channel.trained
        }
        return channels if self.bound.steps is not None else {}

    def algorithm(self, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm whose clients send canaries."""
        planted = {kind.answers[name]: self._answer(kind, name) for name in self.noised}
        planted |= {kind.answers[name]: self._trained(kind, name) for name in self.trained}
        return type(kind.__name__, (kind,), planted)

    def coin(self, canary: Canary) -> bool:
        """Whether a canary is in: drawn when it is first asked for."""
        return self.coins.setdefault(canary, bool(self._rng.random() < 0.5))

    def sign(self, canary: Canary, opposite: bool) -> float:
        """Which way a canary points, and whether at all."""
        return 1.0 if self.coin(canary) else -1.0 if opposite else 0.0

    def room(self, client: str, width: int) -> range:
        """The coordinates that are a client's own, of ``width``."""
        place, clients = self.clients.index(client), len(self.clients)
        each = width // clients
        return range(place * each, (place + 1) * each) if each else range(place, min(place + 1, width))

    def direction(self, canary: Canary, width: int, of: int = 1) -> torch.Tensor | None:
        """A unit vector ``[width]`` on coordinates that no other canary has.

        Args:
            of: how many canaries the client has.

        Returns:
            None where there is no room for this one.
        """
        room = self.room(canary[0], width)
        each = min(len(room) // of, COORDINATES) if of <= len(room) else int(canary[1] < len(room))
        if not each:
            return None
        vector = torch.zeros(width)
        start = room.start + canary[1] * each
        vector[start : start + each] = each**-0.5
        return vector

    # --- into the run

    def _answer(self, kind: type[Algorithm], name: str) -> Callable[..., Any]:
        real, bound = getattr(kind, kind.answers[name]), self.bound[name]

        def answer(algorithm: Algorithm, client: ClientContext, given: Any) -> Any:
            made = real(algorithm, client, given)
            if isinstance(made, ContributionSample):
                held = client.graph.num_nodes if bound.channel.unit is Unit.NODE else len(client.graph.y)
                return self._sampled(bound, client.name, made, int(held or 0))
            if isinstance(made, ContributionMoments):
                return self._moments(bound, client.name, made)
            return self._swapped(bound, client.name, client.round, made)

        return answer

    def _swapped(self, bound: Bound, client: str, round: int, made: Any) -> Any:
        opposite = bound.bind_context.relation == "replace"
        if isinstance(made, Upload):
            direction = self.direction((client, 0), made.size)
            if direction is None:
                return Upload(_shaped(torch.zeros(made.size), made.values))
            size = BEYOND * norm_of(bound) * self.sign((client, 0), opposite)
            return Upload(_shaped(size * direction, made.values))
        contribution = bound.channel.unit_contribution
        assert contribution is not None
        width = sum(math.prod(value.shape[1:]) for value in made.values.values())
        room = self.room(client, width)
        rows = torch.nonzero(made.places.any(1)).reshape(-1).tolist()[: len(room)]
        flat = torch.zeros(len(next(iter(made.values.values()))), width)
        for number, row in enumerate(rows):
            flat[row, room[number]] = BEYOND * contribution.norm * self.sign((client, number), opposite)
        table = first(made.places.bool().numpy(), contribution.rows).astype(np.float64)
        self._places.setdefault((bound.channel.name, round), {})[client] = table, rows
        shapes = {name: value.shape[1:] for name, value in made.values.items()}
        return type(made)(in_tensors(flat, shapes), made.places)

    def _sampled(self, bound: Bound, client: str, made: ContributionSample, units: int) -> ContributionSample:
        """Units with a coordinate each; the client's coins take those that are sent."""
        contribution, opposite = bound.channel.unit_contribution, bound.bind_context.relation == "replace"
        assert contribution is not None
        room = self._sampled_room(client, made.size, units)
        flat = torch.zeros(len(room), made.size)
        for number, place in enumerate(room):
            flat[number, place] = BEYOND * contribution.norm * self.sign((client, number), opposite)
        shapes = {name: value.shape[1:] for name, value in made.values.items()}
        return ContributionSample(in_tensors(flat, shapes), torch.arange(len(room)))

    def _sampled_room(self, client: str, width: int, units: int = 0) -> range:
        """The coordinates of a client's units; as many as it has, which the first call says."""
        room = self.room(client, width)
        most = self._groups.setdefault(f"units of {client}", units)
        return room[:most]

    def _moments(self, bound: Bound, client: str, made: ContributionMoments) -> ContributionMoments:
        """Records with an axis each, and the first target, or (replaced) the opposite one."""
        contribution, opposite = bound.channel.unit_contribution, bound.bind_context.relation == "replace"
        assert isinstance(contribution, UnitContributionMoments)
        width, targets = made.records.shape[1], made.targets.shape[1]
        room = self.room(client, width)
        records, wanted = torch.zeros(len(room), width), torch.zeros(len(room), targets)
        for number, place in enumerate(room):
            sign = self.sign((client, number), opposite)
            records[number, place] = BEYOND * abs(sign)
            wanted[number, 0] = BEYOND * contribution.targets * sign
        return ContributionMoments(records, wanted)

    def _trained(self, kind: type[Algorithm], name: str) -> Callable[..., Any]:
        real = getattr(kind, kind.answers[name])

        def answer(algorithm: Algorithm, client: Client, given: Any) -> Any:
            assert client.training is not None
            if not isinstance(client.training, _PlantedTraining):
                client.training = _PlantedTraining(client.training, self, client.name)
            return real(algorithm, client, given)

        return answer

    def gradients(
        self, client: str, parameters: Mapping[str, Any], records: int, occurrences: int
    ) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
        """Chosen records -> gradients: the direction of their canary, or zero."""
        steps = self.bound.steps
        assert steps is not None
        groups, width = records // occurrences, sum(p.numel() for p in parameters.values())
        opposite = steps.unit == "node" or self.bound.policy.relation == "replace"
        self._groups[client] = groups
        directions = [self.direction((client, number), width, groups) for number in range(groups)]
        pulls = [
            None if direction is None else self.sign((client, number), opposite) * direction
            for number, direction in enumerate(directions)
        ]

        def of(chosen: torch.Tensor) -> dict[str, torch.Tensor]:
            flat = torch.zeros(len(chosen), width)
            for at, record in enumerate(chosen.tolist()):
                pull = pulls[record // occurrences] if record // occurrences < groups else None
                if pull is not None:
                    flat[at] = BEYOND * steps.clip * pull
            return in_tensors(flat, {name: tuple(p.shape) for name, p in parameters.items()})

        return of

    # --- out of what was seen

    def scores(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Of canaries that were in, and of those that were out: 0 is halfway, higher is likelier in."""
        totals = dict.fromkeys(self.coins, 0.0)
        for name, bound in self.noised.items():
            stage = noise_of(bound)
            assert stage is not None
            # the log of the likelihood's ratio: what moves the sum far beside little noise counts most
            weight = 1 / (stage.multiplier**2 * stage.l2_sensitivity)
            for seen in view.uploads(name) or view.sums(name):
                for canary, score, halfway in self._read(bound, seen):
                    totals[canary] += weight * (score - halfway)
        for name in self.trained:
            for seen in view.uploads(name) or view.sums(name):
                flat = _flat(seen.values)
                for canary in (c for c in self.coins if c[0] in seen.clients):
                    direction = self.direction(canary, len(flat), self._groups[canary[0]])
                    assert direction is not None
                    totals[canary] -= float(flat @ direction.double())  # a step goes against the gradient
        scores = np.array([totals[canary] for canary in self.coins])
        inside = np.array(list(self.coins.values()), dtype=bool)
        return scores[inside], scores[~inside]

    def _read(self, bound: Bound, seen: Seen) -> Iterator[tuple[Canary, float, float]]:
        """Canary, what was seen of it, and what is halfway between its two worlds."""
        contribution, opposite = bound.channel.unit_contribution, bound.bind_context.relation == "replace"
        if contribution is None:
            flat = _flat(seen.values)
            for client in seen.clients:
                direction = self.direction((client, 0), len(flat))
                if direction is not None:
                    halfway = 0.0 if opposite else norm_of(bound) / 2
                    yield (client, 0), float(flat @ direction.double()), halfway
            return
        if isinstance(contribution, UnitContributionMoments):
            yield from self._read_moments(contribution, seen, opposite)
            return
        by_row = [torch.as_tensor(np.array(value), dtype=torch.float64) for value in seen.values.values()]
        columns = torch.cat([value.reshape(len(value), -1) for value in by_row], dim=1).numpy()
        if isinstance(contribution, UnitContributionSampled):
            halfway = 0.0 if opposite else contribution.rate * contribution.norm / 2
            for client in seen.clients:
                for number, place in enumerate(self._sampled_room(client, columns.shape[1])):
                    yield (client, number), float(columns[0, place]), halfway
            return
        for client in seen.clients:
            table, rows = self._places[bound.channel.name, seen.round][client]
            room = self.room(client, columns.shape[1])
            for number, row in enumerate(rows):
                whole = contribution.norm * float(table[row] @ table[row])
                halfway = 0.0 if opposite else whole / 2
                yield (client, number), float(table[row] @ columns[:, room[number]]), halfway

    def _read_moments(
        self, contribution: UnitContributionMoments, seen: Seen, opposite: bool
    ) -> Iterator[tuple[Canary, float, float]]:
        """Along what a record adds: its class, and its own second moment where that was sent."""
        sums = np.asarray(seen.values[CLASSES], dtype=np.float64).reshape(seen.values[CLASSES].shape[-2:])
        width = len(sums)
        along = np.array([contribution.targets, float(contribution.second)])
        along /= np.linalg.norm(along)
        own = np.zeros(width)
        if contribution.second:
            triangle = np.asarray(seen.values[SECOND], dtype=np.float64).reshape(-1)
            rows = np.arange(width)
            own = triangle[rows * width - rows * (rows - 1) // 2]
        for client in seen.clients:
            for number, place in enumerate(self.room(client, width)):
                score = float(along @ [sums[place, 0], own[place]])
                # replaced, the target turns and the second moment stays
                level = along[1] if opposite else 0.5
                yield (client, number), score, level * contribution.norm * (along[1] if opposite else 1.0)


class _PlantedTraining(Training):
    """A client's noisy steps, on canaries' gradients."""

    def __init__(self, real: Training, planting: Planting, client: str) -> None:
        super().__init__(real.how, real.relation)
        self._real, self._planting, self._client = real, planting, client

    def run(
        self,
        optimizer: torch.optim.Optimizer,
        parameters: Mapping[str, torch.nn.Parameter],
        records: int,
        gradients: Callable[[torch.Tensor], Mapping[str, Gradient]],
        occurrences: int = 1,
        penalty: Callable[[], Any] | None = None,
    ) -> None:
        """As the real one's; nothing of the data is in the gradients."""
        planted = self._planting.gradients(self._client, parameters, records, occurrences)
        self._real.run(optimizer, parameters, records, planted, occurrences, penalty)

    def owed(self) -> dict[str, tuple[Event, ...]]:
        """As the real one's, which took the steps: they are charged to the client."""
        return self._real.owed()

    def paid(self) -> None:
        """As the real one's."""
        self._real.paid()


def _shaped(flat: torch.Tensor, like: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    parts = torch.split(flat, [value.numel() for value in like.values()])
    return {name: part.reshape(v.shape) for (name, v), part in zip(like.items(), parts, strict=True)}


def _flat(values: Mapping[str, Any]) -> torch.Tensor:
    """Tensor after tensor, as :func:`_shaped` cuts them."""
    return torch.cat([torch.as_tensor(np.array(v), dtype=torch.float64).reshape(-1) for v in values.values()])
