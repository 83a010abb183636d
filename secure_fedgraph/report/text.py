"""Numbers and names in words: what a page says, in one place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from secure_fedgraph.core.guarantee import Reader, Relation, Unit
from secure_fedgraph.experiment.schema.run import Claim

MISSING = "–"
MOST_SIZES = 24
"""Of owners, that are told one by one."""

ADVERSARIES = {
    "server": "the server",
    "client": "an owner",
    "last client": "the last owner",
    "coalition": "all owners but the last",
    "outsider": "an outsider",
}
ALGORITHMS = {
    "local": "Local training",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedsage": "FedSage",
    "fedsage+": "FedSage+",
    "globsage": "GlobSage",
    "locsage": "LocSage",
    "locsage+": "LocSage+",
    "fedego": "FedEgo",
    "glasu": "GLASU",
    "fedbcd": "FedBCD",
    "apfl": "APFL",
    "fedgate": "FedGATE",
    "apflgate": "APFLGate",
    "fairgraphfl": "FairGraphFL",
    "fedridge": "FedRidge",
    "fedsgc": "FedSGC",
    "fedsgd": "FedSGD",
}
DATA = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "dblp": "DBLP", "proteins": "PROTEINS"}
DATA |= {"mutag": "MUTAG", "dd": "DD", "bbbp": "BBBP", "ciao": "Ciao"}
POLICIES = {
    "plaintext": "without protection",
    "masked": "with masks",
    "homomorphic": "with encrypted sums",
    "threshold": "with sums that a quorum decrypts",
    "local_dp": "with noise at each owner",
    "central_dp": "with noise at the server",
    "distributed_dp": "with masks and noise",
    "strictest": "with the strictest protection",
}
READERS: dict[str, str] = {
    Reader.SERVER: "the server",
    Reader.PEERS: "the other owners",
    Reader.OUTSIDER: "whoever sees the released model",
}
UNITS: dict[str, str] = {
    Unit.CLIENT: "a whole owner",
    Unit.NODE: "one node",
    Unit.EDGE: "one link",
    Unit.GRAPH: "one graph",
    Unit.LABEL: "one node's label",
    Unit.FEATURE: "one node's features",
    "user": "one user",
}
DOMAINS = {
    "real": "numbers in the clear",
    "ring": "fixed-point numbers in the clear",
    "masked": "masked ring words: each upload looks uniformly random, only the sum opens",
    "cipher": "ciphertexts: they are added unopened, only the holder of the key reads them",
}
REVEALS = {"sum": "the sum over all owners", "each": "every single upload", "nothing": "nothing"}
RELATIONS: dict[str, str] = {
    Relation.ZERO_OUT: "its contribution is replaced by nothing",
    Relation.ADD_REMOVE: "it is there or not",
    Relation.REPLACE: "it is exchanged for another",
}


def real(value: object) -> float | None:
    """A finite number, or None for anything else.

    >>> real(0.5), real("inf"), real(float("nan")), real(True), real(None)
    (0.5, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is there; None where nothing is."""
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None


def percent(value: object, places: int = 1) -> str:
    r"""A share as a percentage.

    >>> percent(0.85288), percent(None)
    ('85.3\u202f%', '–')
    """
    number = real(value)
    return MISSING if number is None else f"{100 * number:.{places}f}\u202f%"


def share(value: object, places: int = 3) -> str:
    """A score between 0 and 1; what is not quite 1 is never printed as 1.

    >>> share(1.0), share(0.99999), share(0.6387), share(None)
    ('1.000', '0.999+', '0.639', '–')
    """
    number = real(value)
    if number is None:
        return MISSING
    text = f"{number:.{places}f}"
    if number < 1 and text == f"{1:.{places}f}":
        return f"{1 - 10**-places:.{places}f}+"
    return text


def count(value: object) -> str:
    """A count with thousands marked; a mean keeps one digit.

    >>> count(2708), count(902.6667), count("inf")
    ('2,708', '902.7', '–')
    """
    number = real(value)
    if number is None:
        return MISSING
    return f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"


def plain(value: object) -> str:
    """A setting or a detail: a number in few digits, anything else as it is.

    >>> plain(1200.0), plain(0.12345), plain("sgd"), plain(None)
    ('1,200', '0.1235', 'sgd', '–')
    """
    number = real(value)
    if number is None:
        return MISSING if value is None else str(value)
    if number == round(number):
        return f"{number:,.0f}"
    return f"{number:,.1f}" if abs(number) >= 1000 else f"{number:.4g}"


def size(value: object) -> str:
    """Bytes for reading; the exact number stands beside it.

    >>> size(9043224), size(1727), size(12), size(None)
    ('9.04 MB', '1.73 kB', '12 B', '–')
    """
    number = real(value)
    if number is None:
        return MISSING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= scale:
            return f"{number / scale:.2f} {unit}"
    return f"{number:.0f} B"


def seconds(value: object) -> str:
    """A duration.

    >>> seconds(116.405), seconds(6.32), seconds(0.031), seconds(None)
    ('1 min 56 s', '6.3 s', '0.031 s', '–')
    """
    number = real(value)
    if number is None:
        return MISSING
    if number >= 60:
        return f"{int(number // 60)} min {int(number % 60)} s"
    return f"{number:.1f} s" if number >= 1 else f"{number:.3f} s"


def epsilon(value: object) -> str:
    """A privacy loss, rounded up; an unbounded one in words.

    >>> epsilon(1.9412), epsilon(8.0), epsilon(12.01), epsilon("inf"), epsilon(None)
    ('1.95', '8', '12.1', 'unbounded', '–')
    """
    if value == "inf" or (isinstance(value, float) and math.isinf(value)):
        return "unbounded"
    number = real(value)
    if number is None or number <= 0:
        return MISSING if number is None else f"{number:.3g}"
    if number >= 10:
        return f"{math.ceil(number * 10 - 1e-9) / 10:.1f}"
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / step - 1e-9) * step:.3g}"


def bounded(value: object) -> bool:
    """Whether a privacy loss is a number at all."""
    return real(value) is not None


def scientific(value: object) -> str:
    """A delta.

    >>> scientific(1e-05), scientific(2.5e-06), scientific(0.0), scientific(None)
    ('10⁻⁵', '2.5·10⁻⁶', '0', '–')
    """
    number = real(value)
    if number is None:
        return MISSING
    if not 0 < number < 0.01:
        return f"{number:g}"
    digits, power = f"{number:.3e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    tail = "10" + str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return tail if digits == "1" else f"{digits}·{tail}"


def named(table: Mapping[str, str], key: object) -> str:
    """The readable name, or the key itself where there is none."""
    return MISSING if key is None else table.get(str(key), str(key))


def under(policy: str) -> str:
    """A policy at the beginning of a sentence.

    >>> under("masked"), under("my_policy")
    ('With masks (masked)', 'Under policy my_policy')
    """
    told = POLICIES.get(policy)
    return f"{told[:1].upper()}{told[1:]} ({policy})" if told else f"Under policy {policy}"


def listed(items: Iterable[str], last: str = "and") -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    names = list(items)
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What is said -> of whom, in order and each once.

    >>> grouped([("it leaks", "a"), ("it does not", "b"), ("it leaks", "c")])
    {'it leaks': ['a', 'c'], 'it does not': ['b']}
    """
    told: dict[str, dict[str, None]] = {}
    for said, whom in pairs:
        told.setdefault(said, {})[whom] = None
    return {said: list(names) for said, names in told.items()}


def policies(names: Iterable[str]) -> str:
    """Policies in a sentence, as names and not as adjectives.

    >>> policies(["masked"]), policies(["masked", "strictest"])
    ('policy masked', 'policies masked and strictest')
    """
    known = list(names)
    return f"{'policy' if len(known) == 1 else 'policies'} {listed(known)}"


def sentence(text: str) -> str:
    """With a capital and a full stop.

    >>> sentence("no attack reads it")
    'No attack reads it.'
    """
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


@dataclass(frozen=True)
class Promise:
    """What is guaranteed of one unit, in a sentence, against the strictest reader."""

    unit: str
    against: str
    text: str
    bounded: bool


def guarantee(privacy: Mapping[Unit, Claim]) -> list[Promise]:
    """One sentence for each unit: the bound against the strictest reader, or who else is bounded."""
    return [_promise(unit, claim) for unit, claim in privacy.items()]


def _promise(unit: Unit, claim: Claim) -> Promise:
    delta, held = scientific(claim.delta), bounded(claim.epsilon)
    reader, subject = named(READERS, claim.against), named(UNITS, unit)
    bound = f"ε = {epsilon(claim.epsilon)} at δ = {delta}" if held else "no bound"
    text = f"Against {reader}, {subject}: {bound}"
    better = [
        f"{named(READERS, r)} ε = {epsilon(e)}" for r, e in claim.readers.items() if bounded(e) and not held
    ]
    if better:
        text += f" (against {listed(better)} at δ = {delta})"
    if claim.computational:
        text += ", as long as nobody breaks the cryptography"
    return Promise(unit, reader, sentence(text), held)


def spread(sizes: Sequence[object]) -> str:
    """Many sizes in few words; few of them one by one.

    >>> spread([3, 1])
    '3, 1'
    >>> spread(range(100))
    '0 to 99, median 49.5'
    """
    known = [size for size in map(real, sizes) if size is not None]
    if len(known) <= MOST_SIZES:
        return ", ".join(count(size) for size in known)
    return f"{count(min(known))} to {count(max(known))}, median {median(known):,g}"
