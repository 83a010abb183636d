"""C3 on FedSage+: a malicious owner whose generator turns the nearest-neighbour loss into an oracle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.attacks.active import disguised
from secure_fedgraph.attacks.active.oracle_queries import (
    SPREAD,
    Asked,
    craft,
    directions,
    far_points,
    read,
)
from secure_fedgraph.attacks.attack import ALL, CLIENT, Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.neighgen import SLOTS
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.protocol import View
from secure_fedgraph.protocol.transcript import Seen
from secure_fedgraph.seams import ClientContext, Total

COVERED = "nodes found by an oracle"
QUERIES = 2048
"""The most queries in one message: five for each hidden unit, and for each row that others answer."""
ALL_QUERIES = 2048
"""The exchange batch that lets one message hold all queries, each asked four times."""
REPEATS = 4
"""Rows for each query, where the batch has room: at each owner dropout turns off another half of them."""
_RECOVERED, _ASKED = "oracle_found", "oracle_asked"
_WEIGHT = "outer.weight"


def _messages(number: int, rows: int | None = None, width: int | None = None) -> Control:
    settings: dict[str, Any] = {
        "rounds": 1,
        "training.generator_epochs": 2,
        "training.federated_epochs": number,
    }
    if width is not None:  # as many units as the rows light: more would only lengthen the messages
        settings["training.generator_hidden"] = [256, width]
    name = f"{number} crafted message{'s' * (number > 1)}"
    if rows is None:
        return Control(name, settings)
    return Control(f"{name} of {rows} rows", {**settings, "training.exchange_batch": rows})


class GeneratorOracle(Attack):
    """C3: the first owner offers a crafted generator, and every answer then lists nodes of the other owners.

    Each of its embeddings lights one hidden unit, whose outer weights hold five points ``c``. The gradient of
    those weights shows, for each point, the answering owner's nearest node. With ``c = 1/2 + 0.2 w`` the
    distance to a node of 0 and 1 is a constant less ``0.4 <w, x>``, so the owner is asked for the node
    furthest in the direction ``w``, and every node is furthest in some direction. Later messages give words
    of recovered nodes a negative weight, so that other nodes answer. For dense features the points are
    corners of the cube instead.

    The other owners, and the server, are honest: they follow the protocol, with all its checks of an offer.
    They answer for ``exchange_batch`` rows at most, so a smaller batch takes more messages.

    :meth:`run` reads answers of single owners, :meth:`residual` the sum. Every owner draws its own dropout,
    so in most queries of a sum the owners' rows can still be separated.
    """

    id = "c3-neighgen-oracle"
    subject = "nodes named by a crafted generator"
    family = "neighgen"
    summary = "the others' nodes, by a crafted generator"
    adversaries = (CLIENT,)
    behaviour = "malicious"
    channel = "feedback"
    also_reads = ("generator",)
    controls = (_messages(1), _messages(20, width=64), _messages(1, ALL_QUERIES, 512))
    depends_on = (
        "training.federated_epochs",
        "training.exchange_batch",
    )
    stops = "noise in the answers (local_dp), which ends training too; seals, masks, clips do not"

    @classmethod
    def plays(cls, kind: type[Algorithm]) -> type[Algorithm]:
        """The algorithm with the first owner malicious: the same channels, the other owners unchanged."""
        return playing(kind)

    def run(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of each owner that answered."""
        delivered = view.delivered(self.channel) if self.channel in view.public["channels"] else []
        answers = {(seen.exchange, seen.clients): seen for seen in delivered}
        if not answers:
            raise Blind(f"{self.id}: {view.why_unreadable(self.channel)}")
        by_owner: dict[str, list[Seen]] = {}
        for seen in answers.values():
            by_owner.setdefault(seen.clients[0], []).append(seen)
        values = {owner: self._rows(view, seen) for owner, seen in sorted(by_owner.items())}
        return Guess.of_owners(COVERED, values, len(answers))

    def residual(self, view: View, knowledge: Knowledge) -> Guess:
        """Rows of all that answered, from their sums."""
        sums = self.opened_sums(view)
        return Guess(COVERED, {ALL: self._rows(view, sums)}, {ALL: sums[0].clients}, len(sums))

    def _rows(self, view: View, answers: list[Seen]) -> np.ndarray:
        rows = []
        for seen in answers:
            offer = view.offer(self.channel, seen.exchange)
            if offer is None or not crafted(offer.values):
                raise Blind(
                    f"{self.id}: the owner offered an honest generator: the attack has to play the run"
                )
            asked = Asked(offer.values, 1 / (len(offer.values["z"]) * SLOTS))
            gradient = seen.values[_WEIGHT]
            rows.append(rows_of(gradient, asked, len(seen.clients)))
        return np.unique(np.concatenate(rows), axis=0)


def rows_of(gradient: np.ndarray, asked: Asked, owners: int) -> np.ndarray:
    """Rows of features from one answer: binary rows where the answer fits them, otherwise real ones."""
    width = asked.offer[f"fgen.{_WEIGHT}"].shape
    gradient = np.asarray(gradient).reshape(width)  # clipped answers come as one row
    rows = read(gradient, asked, owners)
    queries = len(asked.units()[0]) * SLOTS
    return rows if len(rows) >= 0.02 * queries else read(gradient, asked, owners, binary=False)


def crafted(offer: Mapping[str, np.ndarray]) -> bool:
    """Whether an offer was crafted: then its first layer passes embeddings on unchanged."""
    first = np.asarray(offer["fgen.inner.0.weight"])
    return bool((np.abs(first - first.round()) < 1e-3).all() and np.any(np.abs(first) > 0.5))


def playing(kind: type[Algorithm]) -> type[Algorithm]:
    """``kind``, whose first owner crafts its offers and uses the answers to craft the next ones.

    An algorithm without these channels is returned unchanged.
    """
    channels = {channel.name: channel for channel in kind.channels}
    if not {"generator", "feedback"} <= channels.keys():
        return kind

    class Played(kind):  # type: ignore[misc,valid-type]
        spares = ("generator",)  # it adds no noise to its own offers

        @channels["generator"].answer
        def offer(self, client: ClientContext, given: State) -> Upload:
            honest: Upload = super().offer(client, given)
            if client.name != min(client.clients) or len(self.settings.generator_hidden) != 2:
                return honest
            return self.made_up(client, honest)

        def made_up(self, client: ClientContext, honest: Upload) -> Upload:
            """A crafted offer with the shape of the honest one and as many rows as owners answer at once."""
            s, words = self.settings, int(client.graph.x.shape[1])
            binary = bool(((client.graph.x == 0) | (client.graph.x == 1)).all())
            units = min(QUERIES // SLOTS, s.generator_hidden[1], s.exchange_batch)
            repeats = max(1, min(REPEATS, s.exchange_batch // units)) if binary else 1
            known = client.memory.get(_RECOVERED, torch.zeros(0, words)).numpy()
            rng = np.random.default_rng(client.generator("oracle").initial_seed())
            if binary:
                points = 0.5 + SPREAD * directions(units * SLOTS, words, known, rng)
            else:
                points = far_points(units * SLOTS, words, known, rng)
            made = craft(
                points.reshape(units, SLOTS, words),
                repeats,
                s.encoder[1],
                s.generator_hidden,
                seed=client.round,
            )
            client.memory[_ASKED] = {name: value.clone() for name, value in made.items()}
            return Upload({name: made[name] for name in honest.values})

        @channels["feedback"].read
        def learn(self, client: ClientContext, answered: Total) -> None:
            if _ASKED not in client.memory:
                super().learn(client, answered)
                return
            offer = {name: value.numpy() for name, value in client.memory.pop(_ASKED).items()}
            if _WEIGHT in answered.total:
                asked = Asked(offer, 1 / (len(offer["z"]) * SLOTS))
                gradient = answered.total[_WEIGHT].float().numpy()
                rows = torch.as_tensor(rows_of(gradient, asked, len(client.clients) - 1))
                before = client.memory.get(_RECOVERED, rows[:0])
                client.memory[_RECOVERED] = torch.unique(torch.cat([before, rows]), dim=0)

    return disguised(Played, kind)
