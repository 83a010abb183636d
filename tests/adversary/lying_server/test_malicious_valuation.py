"""A server that lies to whoever opens values: what a blind opener gives, and what it checks all the same.

``docs/sharp_edges.md`` says that encrypted values hold against a server that follows the protocol. This is
how much they do not against one that does not: the whole key, in one opening.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from parties import NAMES, introduced, scope

from secure_fedgraph.core.carriers.homomorphic import native
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, Refused
from secure_fedgraph.core.protection.contracts import BindContext
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.privacy.encrypted_values import valuation, valuation_native
from secure_fedgraph.privacy.encrypted_values.valuation import EncryptedValues

WIDTH = 6
LAYOUT = Layout((("w", (WIDTH,)),))
HOLDER, VICTIM = "owner-0", "owner-2"


class Valued:
    """Three clients with keys, and a server that has their ciphertexts of one exchange."""

    def __init__(self) -> None:
        context = BindContext(Channel("valued", Reveal.VALUES), NAMES, "zero-out")
        self.carrier = EncryptedValues(holder=HOLDER).bind(context)
        self.parties, self.place = introduced(NAMES), scope(20, "valued", NAMES)
        self.carrier.set_up(self.ask, NAMES)
        generator = np.random.default_rng(3)
        self.updates = {name: generator.normal(size=(1, WIDTH)) for name in NAMES}
        self.sealed = {
            name: self.carrier.seal(update, self.place, self.parties[name])
            for name, update in self.updates.items()
        }

    def ask(self, step: str, given: Any) -> Any:
        return {n: self.carrier.answer(step, dict(g), self.place, self.parties[n]) for n, g in given.items()}

    def lied(self, asked: dict[str, Any]) -> Any:
        return self.ask("open", {HOLDER: asked})[HOLDER]

    def asked(self, **other: Any) -> dict[str, Any]:
        """What an honest server would ask for, with some of it changed."""
        kept: dict[str, Any] = {}

        def ask(step: str, given: Any) -> Any:
            kept.update(given[HOLDER])
            raise Refused("the server has what it wants to change")

        with pytest.raises(Refused):
            self.carrier.open_values(self.sealed, dict.fromkeys(NAMES, 1.0), LAYOUT, self.place, ask)
        return {**kept, **other}


def chosen(factor: int) -> bytes:
    """A ciphertext of the server's own making, whose plaintext is ``factor`` times the key: (0, factor).

    Encryption takes no part in it: it is a file in SEAL's format, two polynomials of transformed words, a row
    for each prime.
    """
    size, primes = valuation_native.DEGREE, valuation_native.PRIMES
    rows = [np.full(size, factor % prime, dtype="<u8") for prime in primes]
    words = np.concatenate([np.zeros(size * len(primes), dtype="<u8"), *rows])
    head, parameters = valuation_native._form()

    def framed(body: bytes) -> bytes:
        form = valuation_native._HEADER
        return form.pack(*head, 0, 0, form.size + len(body)) + body

    scale = valuation_native.SCALE * valuation_native.WEIGHT_SCALE
    fields = struct.pack("<4Q?3QdQ", *parameters, True, 2, size, len(primes), scale, 1)
    return framed(fields + framed(struct.pack("<Q", len(words)) + words.tobytes()))


def coefficients(words: bytes, factor: int) -> np.ndarray:
    """Of the polynomial that was multiplied by the factor: from its values at the roots of unity, by FFT."""
    size, scale = valuation_native.DEGREE, valuation_native.SCALE
    encoder = native.seal.CKKSEncoder(valuation_native.context())
    with native.Scratch() as file:
        values = np.array(encoder.decode_complex(valuation_native._plaintext(words, scale, file)))
    at = np.zeros(2 * size, dtype=complex)
    powers = np.array([pow(3, i, 2 * size) for i in range(size // 2)])
    at[powers], at[-powers] = values, values.conj()  # the key is real
    found: np.ndarray = (np.fft.fft(at)[:size] / size).real * scale / factor
    return found


class TestTheOpenersChecks:
    """What it sees without the plaintext: sizes, numbers, weights, and that it opens an exchange once."""

    @pytest.mark.parametrize(
        "weights",
        [
            [1.0, 0.0, 0.0],
            [0.9, 0.05, 0.05],
            [math.nan, 1.0, 1.0],
            [1.0, 1.0],
            [-1.0, 1.0, 1.0],
            [math.inf, 1, 1],
        ],
    )
    def test_weights_of_too_few(self, weights: list[float]) -> None:
        made = Valued()
        with pytest.raises((Refused, HostileMessage, BadInput)):
            made.lied(made.asked(weights=np.array(weights)))

    def test_once(self) -> None:
        made = Valued()
        asked = made.asked()
        made.lied(asked)
        with pytest.raises(HostileMessage, match="once"):
            made.lied(asked)

    def test_a_refused_ask_spends_the_opening(self) -> None:
        """Nobody tries weights, or sizes, until some pass."""
        made = Valued()
        with pytest.raises(Refused):
            made.lied(made.asked(weights=np.array([1.0, 0.0, 0.0])))
        with pytest.raises(HostileMessage, match="once"):
            made.lied(made.asked())

    def test_not_by_another_client(self) -> None:
        made = Valued()
        with pytest.raises(HostileMessage, match="once"):
            made.ask("open", {"owner-1": made.asked()})

    def test_more_pieces_than_one_sum_and_its_values(self) -> None:
        made = Valued()
        pieces = native.split(made.asked()["products"])
        with pytest.raises(HostileMessage, match="more or less"):
            made.lied(made.asked(products=bytes(native.join([*pieces, pieces[0]]))))


class TestWhatABlindOpenerGives:
    def test_one_update_in_the_place_of_the_sum(self) -> None:
        """The victim's own ciphertext, times one: the server needs nothing that it does not hold."""
        made = Valued()
        only = np.array([0.0, 0.0, 1.0])
        keys_ = [made.carrier.public["public"], made.carrier.public["relinearisation"]]
        forged = valuation._server_side.call(
            b"V", 0, 0, [*keys_, only.astype("<f8").tobytes(), *made.sealed.values()]
        )
        aggregate, cover, products, _ = native.split(forged)
        reply = made.lied(made.asked(aggregate=aggregate, products=products))
        found = np.frombuffer(
            valuation._server_side.call(b"D", 0, 0, [bytes(reply["aggregate"]), cover]), "<f8"
        )
        assert np.allclose(found[:WIDTH] / valuation.GAIN, made.updates[VICTIM], atol=1e-3)

    def test_the_key_itself_and_with_it_every_update(self) -> None:
        """A ciphertext of no message. The holder's noise hides an honest opening's remainder and not this."""
        made, factor = Valued(), 2**200
        asked = made.asked()
        reply = made.lied({**asked, "aggregate": bytes(native.join([chosen(factor)]))})
        key = coefficients(bytes(reply["aggregate"]), factor)
        assert np.abs(key - np.rint(key)).max() < 1e-3
        assert set(np.rint(key).astype(int)) == {-1, 0, 1}
        seed = made.parties[HOLDER].secrets["valuation/secret"]
        decryptor = native.seal.Decryptor(valuation_native.context(), valuation_native.secret_key(seed))
        with native.Scratch() as file:
            true = coefficients(valuation_native._words(decryptor, chosen(factor), file), factor)
        assert np.array_equal(np.rint(key), np.rint(true))

    def test_the_channel_says_so(self) -> None:
        context = BindContext(Channel("valued", Reveal.VALUES), NAMES, "zero-out")
        assert any("lies" in line and "the key" in line for line in EncryptedValues().excess(context))
