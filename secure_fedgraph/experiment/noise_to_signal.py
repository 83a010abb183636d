"""How much noise a run leaves of its signal, from public facts: what plans and results say of a budget."""

from __future__ import annotations

import math

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms.fedridge.algorithm import TRAINED, FedRidge
from secure_fedgraph.core import channel as channels
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.federation import Federation
from secure_fedgraph.running.preparation import Prepared


def opened(algorithm: Algorithm) -> list[channels.Channel]:
    """The channels on which clients send something that the server or other clients read."""
    sent = (one for one in algorithm.in_use if one.reveal is not channels.Reveal.NOTHING)
    return [one for one in sent if one.to != channels.Recipient.REFEREE]


def noise_to_signal(prepared: Prepared, channel: channels.Channel) -> float | None:
    """How long the noise on what is opened is, over how long the signal in it can be at most.

    Lengths are L2 norms, and both are of all sums of a run together: noise grows with the root of how many
    there are, and a signal at most with their number. So the figure of one sum, below, is divided by the root
    of how often a client is asked. By what is sent:

    - class sums of ``n`` records in ``C`` classes, with targets of norm ``t``. A class has ``n / C`` records,
      each of length 1 over ``features`` directions, so the signal of its sum is ``t n / C`` at most, and the
      noise ``sqrt(features) deviation``. ``n`` is the share of all nodes or graphs that is taken to train.
    - clipped updates of ``width`` numbers, one a client: ``sqrt(width) deviation`` over ``clients clip``.
    - sums of clipped gradients of ``rate n`` records, which coins take. Those of one class point the same way
      at most: ``sqrt(width) deviation`` over ``rate n clip / C``.
    - noisy steps, with ``n`` records: each client adds noise of ``multiplier clip`` to each of the sums, and
      draws ``rate n / clients`` gradients for it, no longer than the clip:
      ``multiplier sqrt(width clients / steps)`` over ``rate n / C``.

    Returns:
        None where the size of a sum is not known from public facts.
    """
    algorithm, federation = prepared.algorithm, prepared.federation
    schema, clients = federation.schema, len(federation.names)
    times = math.sqrt(algorithm.uses(channel, prepared.rounds, clients))
    bound, contribution = prepared.bound.bounds[channel.name], channel.unit_contribution
    deviation = bound.deviation(clients)
    if isinstance(contribution, channels.UnitContributionMoments):
        features = algorithm.width(schema) if isinstance(algorithm, FedRidge) else schema.features
        records = _trained(federation, channel.unit) or clients * contribution.records
        noise = math.sqrt(features) * deviation * contribution.records
        return noise / (contribution.targets * records / (schema.classes or 1)) / times
    width = sum(one.numel() for one in (algorithm.released(algorithm.init(schema, 0)) or {}).values())
    if not width:  # no single model is released
        return None
    if isinstance(contribution, channels.UnitContributionSampled):
        records = _trained(federation, channel.unit) or clients * contribution.records
        signal = contribution.rate * records * contribution.norm / schema.classes
        return math.sqrt(width) * deviation / signal / times
    if contribution is not None or channel.unit is not Unit.CLIENT:
        return None
    steps = prepared.bound.steps
    if steps is not None:
        drawn = _trained(federation, Unit(steps.unit))
        noise = steps.noise * math.sqrt(width * clients / steps.steps)
        return noise / (steps.rate * (drawn / schema.classes)) / times if drawn else None
    return math.sqrt(width) * deviation / (clients * bound.sensitivity.l2) / times


def _trained(federation: Federation, unit: Unit) -> float:
    """About how many records all owners train on; 0 where nobody knows, as of silos over machines."""
    return TRAINED * federation.sizes.get(unit, 0)


def of_a_run(prepared: Prepared) -> float | None:
    """The figure of a run's best sum; None unless every sum has noise and a size that is known."""
    figures, sent = [], opened(prepared.algorithm)
    for one in sent:
        # of several sums those of whole clients may have any size
        unknown = len(sent) > 1 and one.unit_contribution is None
        if unknown or one.reveal is not channels.Reveal.SUM or one.name not in prepared.bound.bounds:
            return None
        bound = prepared.bound.bounds[one.name]
        noised = bool(bound.deviation(len(prepared.federation.names))) or prepared.bound.steps is not None
        figures.append(noise_to_signal(prepared, one) if noised else None)
    known = [figure for figure in figures if figure is not None]
    return min(known, default=None) if len(known) == len(figures) else None
