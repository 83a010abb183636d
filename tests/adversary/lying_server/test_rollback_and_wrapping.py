"""Attacks of threats.md, F, on what is drawn and added up: rollback (F10), wrap-around (F6), seeds (F8).

Each is refused or harmless, and succeeds with the defence taken out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from parties import Session, Toy, introduced, people, scope, session, vectors

import secure_fedgraph as sfg
from secure_fedgraph.core.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.core.crypto import seal
from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.core.protection import fixed_point, gaussian
from secure_fedgraph.core.protection.bound import CutWarning
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.core.protection.fixed_point import FixedPoint
from secure_fedgraph.policies import local_dp, masked

NAMES = ("a", "b", "c")


class TestRollback:
    """A run that goes back to a checkpoint asks under old numbers: masks and nonces must not repeat."""

    def difference(self, parties: Any, again: Any) -> float:
        """How often two uploads under one number differ by what their values differ by."""
        generator = np.random.default_rng(0)
        values = [generator.integers(-999, 1000, (1, 200)) for _ in range(2)]
        place = scope(7, cohort=NAMES)
        first = Pairwise().seal(values[0], place, parties["a"])
        second = Pairwise().seal(values[1], place, again["a"])
        return float(np.mean((second - first).view(np.int32) == (values[1] - values[0]).reshape(-1)))

    def test_a_process_that_came_back_has_agreed_on_fresh_keys(self):
        assert self.difference(introduced(NAMES), introduced(NAMES)) < 0.02

    def test_keys_that_outlive_the_process_would_repeat_the_masks(self):
        kept = introduced(NAMES)
        assert self.difference(kept, kept) == 1.0

    def test_secrets_are_not_kept(self, tmp_path):
        owners = sfg.federate("synthetic-citation", clients=3, nodes=60, features=16)
        sfg.train(sfg.FedAvg(hidden=(4, 4)), owners, masked(), rounds=2, out=tmp_path)
        kept = b"".join(p.read_bytes() for p in (tmp_path / "checkpoint").rglob("*") if p.is_file())
        assert b"optimizer" in kept or b"step" in kept  # it is the clients' memory that is looked at
        for word in (b"agreement", b"masked/session", b"masked/pairs", b"homomorphic/key"):
            assert word not in kept
        with pytest.raises(TypeError, match="does not leave its process"):
            people(NAMES)["a"].__reduce__()

    def test_a_client_answers_no_number_that_may_have_been_used(self):
        made = session(masked())
        back = made.clients["owner-0"]
        back._answered = 40  # what a resumed run starts its clients with
        with pytest.raises(HostileMessage, match="exchange 40 was already answered"):
            back.handle(made.message("owner-0", "carrier/keys", exchange=40, step="advertise").to_bytes())

    def test_seals_of_the_same_bytes_have_nonces_of_their_own(self):
        """Drawn, not counted: a counter would start again after a rollback."""
        key = bytes(32)
        drawn = {seal(key, b"parcel", b"")[:12] for _ in range(500)}
        assert len(drawn) == 500

    def test_counted_nonces_would_give_the_difference_of_two_parcels(self, monkeypatch):
        monkeypatch.setattr("secure_fedgraph.core.crypto.os.urandom", lambda size: bytes(size))
        key, one, two = bytes(32), b"counts 00012", b"counts 00007"
        sealed = [np.frombuffer(seal(key, text, b"")[12:24], "u1") for text in (one, two)]
        apart = np.frombuffer(one, "u1") ^ np.frombuffer(two, "u1")
        assert np.array_equal(sealed[0] ^ sealed[1], apart)


class TestWrapping:
    """Sums that leave the ring come back on the other side: a large update would turn into its opposite."""

    def total(self, made: Session) -> np.ndarray:
        found: np.ndarray = made.round().reduce(Toy.UPDATE).total["w"].numpy()
        return found

    @pytest.mark.parametrize("bits", [16, 20, 32])
    def test_everybody_at_the_limit_does_not_wrap(self, bits):
        made = session(masked(limit=4.0, bits=bits)).set_up()
        for client in made.clients.values():
            client.memory["w"] = torch.full((5,), 4.0)
        assert np.allclose(self.total(made), 12.0, atol=1e-3)

    def test_beyond_the_limit_values_are_cut_and_nothing_wraps(self):
        made = session(masked(limit=4.0, bits=16)).set_up()
        for client in made.clients.values():
            client.memory["w"] = torch.full((5,), 1e30)
        with pytest.warns(CutWarning, match="3 of 3 uploads"):
            assert np.allclose(self.total(made), 12.0, atol=1e-3)

    def test_a_step_that_leaves_the_others_out_would_turn_the_sum_round(self, monkeypatch):
        real = FixedPoint.bind

        def alone(self: Any, sensitivity: Any, context: BindContext) -> Any:
            one = BindContext(context.channel, context.clients[:1], context.relation, context.ring)
            return real(self, sensitivity, one)

        monkeypatch.setattr(fixed_point.FixedPoint, "bind", alone)
        made = session(masked(limit=4.0, bits=16)).set_up()
        for client in made.clients.values():
            client.memory["w"] = torch.full((5,), 4.0)
        assert self.total(made).max() < 0


class TestSeeds:
    """Whoever knows where noise comes from subtracts it (F8)."""

    def left(self, seeded: Callable[[], None]) -> float:
        """How far an upload is from the client's vector, once noise from the same seeds is taken off."""
        sent = []
        for scale in (1.0, 0.0):
            seeded()
            made = session(local_dp(1e4, 1.0), width=500)
            made.clients["owner-0"].memory["w"] *= scale
            sent.append(np.asarray(made.tell(made.message("owner-0"))["data"]))
        return float(
            np.abs(sent[0] - sent[1] - vectors(session(local_dp(1e4, 1.0), width=500))["owner-0"]).max()
        )

    @staticmethod
    def every_seed() -> None:
        torch.manual_seed(5)
        np.random.seed(5)  # noqa: NPY002
        random.seed(5)

    def test_no_public_seed_gives_the_noise_again(self):
        assert self.left(self.every_seed) > 1e3

    def test_noise_that_followed_from_one_would_be_subtracted(self, monkeypatch):
        monkeypatch.setattr(
            gaussian.Gaussian,
            "_draw",
            lambda self, shape, keys=(): np.rint(self.sigma * np.random.standard_normal(shape)),  # noqa: NPY002
        )
        assert self.left(self.every_seed) < 1.0
