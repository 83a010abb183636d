"""The form in which an algorithm runs under a policy: as configured where that binds, else one that does."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.core.channel import Channel, Recipient, Reveal
from secure_fedgraph.core.errors import BadInput, LeftInPlaintext, Refused
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.privacy.policies import RECIPES, needs_multiplier
from secure_fedgraph.privacy.policy import BoundPolicy, PlaintextWarning, Policy

Channels = Callable[[Algorithm], Sequence[Channel]]
"""What an algorithm sends, and so a policy has to bind."""
TRIED = ("masked", "homomorphic", "distributed_dp", "local_dp")
"""The recipes that a refusal may recommend, in this order."""


class FormWarning(UserWarning):
    """A policy that made an algorithm run in another form than it was configured in."""


def sent(algorithm: Algorithm) -> Sequence[Channel]:
    """The channels of an algorithm whose clients answer, but for the referee's."""
    return [c for c in algorithm.in_use if c.to != Recipient.REFEREE and c.reveal is not Reveal.NOTHING]


def fit(
    algorithm: Algorithm,
    policy: Policy,
    clients: tuple[str, ...],
    allow_plaintext: bool = False,
    channels: Channels = sent,
    check: Callable[[Algorithm], None] = lambda algorithm: None,
) -> Algorithm:
    """The first form of an algorithm that a policy protects: as configured, or one that the class declares.

    A form that binds may still be passed over for a later one: under ``strictest`` if one of its channels
    declares a leak that noise does not cover, and where clients take noisy steps if the form has no records
    for them. If no later form is better, the first that binds is taken.

    A setting that was given by hand is never changed. A channel left in plaintext counts as not protected,
    unless that was allowed; choosing the policy ``plaintext`` allows it.

    Args:
        clients: everybody who may ever contribute.
        channels: what the policy has to bind.
        check: raises :class:`BadInput` for a form that does not fit the data.

    Raises:
        Refused: where no form fits, naming the channel, and the command that works where there is one.
        BadInput: for a norm or noise by channel that names no channel of the algorithm.
    """
    policy.check_amounts(algorithm.channel_names(), algorithm.name)
    allowed = allow_plaintext or policy.name == "plaintext"
    tried = [_try(algorithm, policy, clients, allowed, channels)]
    if tried[0].fits and not tried[0].wanting:
        return algorithm
    for one in _others(algorithm, check, without_leak=tried[0].fits):
        try:
            tried.append(_try(one, policy, clients, allowed, channels))
        except BadInput:  # a named exception for a channel that this form does not send
            continue
        if tried[-1].fits and not tried[-1].wanting:
            return tried[-1].algorithm
    if tried[0].fits:  # what is wanting is named where the policy is bound, or refused before round 1
        return algorithm
    for other in tried[1:]:
        if other.fits:
            return other.algorithm
    raise _refusal(tried, policy, clients, channels, check)


def said(algorithm: Algorithm, policy: str) -> str:
    """A sentence on the form that an algorithm takes; empty where it runs as configured."""
    form = algorithm.form
    return "" if form is None else f"{algorithm.name} takes the form {form} under policy {policy}: {form.why}"


@dataclass(frozen=True)
class _Tried:
    """The outcome for one form.

    Args:
        failed: how many channels do not bind.
        refusal: of the first of them.
        wanting: whether it runs, but with a leak that the strictest policy avoids where it can, or without
            records for the noisy steps that clients are to take.
    """

    algorithm: Algorithm
    failed: int
    refusal: Refused | None
    wanting: bool = False

    @property
    def fits(self) -> bool:
        return self.refusal is None


def _try(
    algorithm: Algorithm, policy: Policy, clients: tuple[str, ...], allowed: bool, channels: Channels
) -> _Tried:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaintextWarning)  # binding warns again when the run starts
        try:
            bound = policy.bind(channels(algorithm), clients)
        except Refused as refusal:
            return _Tried(algorithm, _failing(channels(algorithm), policy, clients), refusal)
    left = [] if allowed else _left(bound, algorithm)
    in_plaintext = LeftInPlaintext(_in_plaintext(bound, algorithm)) if left else None
    leaks = policy.name == "strictest" and any(one.leaks for one in bound.bounds.values())
    return _Tried(algorithm, len(left), in_plaintext, leaks or _lacks_records(algorithm, policy))


def _lacks_records(algorithm: Algorithm, policy: Policy) -> bool:
    """Whether clients are to take noisy steps on records that the algorithm does not have."""
    if policy.steps is None:
        return False
    try:
        algorithm.occurrences(policy.steps.unit)
    except BadInput:
        return True
    return False


def _failing(channels: Sequence[Channel], policy: Policy, clients: tuple[str, ...]) -> int:
    """How many channels do not bind when each is bound alone."""
    failing = 0
    for channel in channels:
        mine = {name: one for name, one in policy.exceptions.items() if name == channel.name}
        try:
            replace(policy, exceptions=mine).bind([channel], clients)
        except (Refused, BadInput):
            failing += 1
    return failing


def _left(bound: BoundPolicy, algorithm: Algorithm) -> list[str]:
    """The channels that a policy leaves in plaintext without having been asked to."""
    if bound.policy.name != "strictest":  # every other recipe says by its name what it does
        return []
    return [name for name in bound.unprotected if name not in bound.policy.exceptions]


def _in_plaintext(bound: BoundPolicy, algorithm: Algorithm) -> str:
    left = _left(bound, algorithm)
    names = " and ".join(repr(name) for name in left)
    several = len(left) > 1
    return (
        f"{bound.policy.name} leaves channel{'s' * several} {names} of {algorithm.name} in plaintext, since "
        f"nothing stricter binds to {'them' if several else 'it'}"
    )


def _others(
    algorithm: Algorithm, check: Callable[[Algorithm], None], without_leak: bool = False
) -> Iterator[Algorithm]:
    """The declared forms that keep the settings made by hand and fit the data, in order.

    Args:
        without_leak: whether only those count that are there to avoid a leak.
    """
    for form in type(algorithm).forms:
        if without_leak and not form.without_leak:
            continue
        try:
            made = algorithm.in_form(form)
            check(made)
        except BadInput:
            continue
        yield made


def _refusal(
    tried: Sequence[_Tried],
    policy: Policy,
    clients: tuple[str, ...],
    channels: Channels,
    check: Callable[[Algorithm], None],
) -> Refused:
    """The refusal of the form with the fewest failing channels, and what would work."""
    nearest = min(tried, key=lambda one: one.failed)
    first, refusal = tried[0].algorithm, nearest.refusal
    assert refusal is not None
    form = nearest.algorithm.form
    reason = f"with {form}: {refusal}" if form is not None and nearest is not tried[0] else str(refusal)
    mends = []
    if first.pools:
        mends.append(f"{first.name} pools all data: run it with --policy plaintext")
    elif in_the_way := _in_the_way(first, policy, clients, channels, check):
        mends.append(in_the_way)
    elif recipe := _that_fits(first, clients, channels, check, policy.name):
        mends.append(f"--policy {recipe} works for {first.name}")
    mends += [
        f"--epsilon with --unit {unit} works under {policy.name}, as {summed.name}"
        for unit in (Unit.NODE, Unit.GRAPH)
        if (summed := _on_sums(first, unit, check)) and _try(summed, policy, clients, False, channels).fits
    ]
    if isinstance(refusal, LeftInPlaintext):
        mends.append("--allow-plaintext accepts it")
    return type(refusal)("; ".join([reason, *mends]))


def _in_the_way(
    algorithm: Algorithm,
    policy: Policy,
    clients: tuple[str, ...],
    channels: Channels,
    check: Callable[[Algorithm], None],
) -> str:
    """Which setting made by hand keeps a form away that would fit."""
    for form in type(algorithm).forms:
        kept = {key: value for key, value in algorithm.by_hand.items() if key not in form.settings}
        try:
            made = type(algorithm)(**algorithm.made_with(), **kept).in_form(form)
            check(made)
        except BadInput:
            continue
        if _try(made, policy, clients, False, channels).fits:
            try:
                algorithm.in_form(form)
            except BadInput as in_the_way:
                return str(in_the_way)
    return ""


def _on_sums(algorithm: Algorithm, unit: Unit, check: Callable[[Algorithm], None]) -> Algorithm | None:
    """The form for a budget of such units, where there is another that fits the data."""
    made = algorithm.on_sums(unit)
    try:
        check(made)
    except BadInput:
        return None
    return None if made is algorithm else made


def _that_fits(
    algorithm: Algorithm,
    clients: tuple[str, ...],
    channels: Channels,
    check: Callable[[Algorithm], None],
    but: str,
) -> str:
    """A recipe that some form of the algorithm fits."""
    for name in (one for one in TRIED if one != but):
        amounts = dict.fromkeys(("norm", "multiplier"), 1.0) if needs_multiplier(name) else {}
        policy = RECIPES[name](**amounts)
        for one in (algorithm, *_others(algorithm, check)):
            if _try(one, policy, clients, False, channels).fits:
                return name
    return ""
