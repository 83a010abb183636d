"""One budget by several accountants, side by side: the table in which an expert compares them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
from dp_accounting import rdp
from scipy.stats import hypergeom

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.accounting import pld as losses
from secure_fedgraph.core.accounting.epsilon import COARSE, check_delta, epsilon, grid_for, renyi
from secure_fedgraph.core.accounting.events import OccurringGaussian, SampledGaussian
from secure_fedgraph.core.accounting.rdp import coupled_curve, epsilon_of
from secure_fedgraph.core.errors import BadInput, Refused

ACCOUNTANTS = ("pld", "rdp", "prv")
_UNDER_REPORTS = ("gdp", "gaussian", "gaussianaccountant")
_PRV_UP_TO = 40.0
"""Above this epsilon Opacus' PRV accountant needs gigabytes."""
_DAIGAVANE_ORDERS = np.arange(11, 100) / 10


def budget_figures(
    multiplier: float,
    rate: float,
    steps: int,
    delta: float,
    relation: str,
    accountants: Iterable[str] = ACCOUNTANTS,
) -> dict[str, float]:
    """Epsilon of DP-SGD where a unit is a record, by each accountant that covers it.

    Args:
        multiplier: standard deviation of the noise on the sum, over the clip.
        rate: each record's probability of being in a step.
        steps: how many.
        delta: the failure probability.
        relation: add-remove, zero-out or replace.
        accountants: of ``pld`` (dp-accounting's losses), ``rdp`` (Rényi), ``prv`` (Opacus' PRVAccountant,
            which knows no ``replace``, and is left out where epsilon is too large to be of use).

    Raises:
        Refused: for Opacus' GaussianAccountant, which reports less than was spent.
        BadInput: for numbers out of range, and unknown names.
    """
    names = list(accountants)
    for name in names:
        check_accountant(name)
    one = SampledGaussian(multiplier, rate, steps, relation)
    check_delta(delta)
    bound = renyi({one: 1}, delta)
    figures = {}
    for name in names:
        if name == "rdp":
            figures[name] = bound
        elif name == "pld":
            figures[name] = epsilon([one], delta).epsilon
        elif relation != "replace" and 0 < bound <= _PRV_UP_TO:
            figures[name] = _prv(multiplier, rate, steps, delta)
    return figures


def check_accountant(name: str) -> str:
    """The name of an accountant that may be used.

    Raises:
        Refused: for Opacus' GaussianAccountant.
        BadInput: for an unknown name.
    """
    if name.lower() in _UNDER_REPORTS:
        raise Refused(
            f"accountant {name!r}: Opacus' GaussianAccountant is a limit, no bound, and under-reports (1.62 "
            f"where 1.83 is spent); use {', '.join(ACCOUNTANTS)}"
        )
    if name not in ACCOUNTANTS:
        raise unknown_name("accountant", name, ACCOUNTANTS)
    return name


def _prv(multiplier: float, rate: float, steps: int, delta: float) -> float:
    from opacus.accountants import PRVAccountant  # takes seconds to import

    accountant = PRVAccountant()
    accountant.history = [(multiplier, rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its quadrature; the figure is a cross-check beside ours
        return float(accountant.get_epsilon(delta))


def node_budget(
    noise: float, rate: float, steps: int, occurrences: int, delta: float, records: int | None = None
) -> dict[str, float]:
    """Epsilon of DP-SGD where one node changes several records' gradients, by each accountant.

    Args:
        noise: standard deviation of the noise on the sum, over the clip of one gradient.
        rate: each record's probability of being in a step.
        steps: how many.
        occurrences: records that one node touches at most.
        delta: the failure probability.
        records: how many there are; with it comes the published form, for batches of ``rate * records``
            drawn without replacement.

    Returns:
        ``mirrored pld``, what this package reports, and ``mirrored rdp``, for releases chosen later;
        ``coupled pld`` and ``coupled rdp``, the looser pair; ``daigavane rdp``, the published form.
    """
    one = OccurringGaussian(noise, rate, steps, occurrences)
    check_delta(delta)
    figures = {"mirrored pld": epsilon([one], delta).epsilon, "mirrored rdp": renyi({one: 1}, delta)}
    bound = epsilon_of(coupled_curve(one), delta)
    figures["coupled pld"] = _coupled(one, delta, bound)
    figures["coupled rdp"] = bound
    if records is not None:
        figures["daigavane rdp"] = _daigavane(one, records, delta)
    return figures


def _coupled(one: OccurringGaussian, delta: float, bound: float) -> float:
    if not 0 < bound <= COARSE:
        return bound
    grid = grid_for(bound, losses.reach_of(one), one.steps)
    step = losses.coupled(one.occurrences, one.rate, one.noise_multiplier, grid)
    return min(bound, float(step.self_compose(one.steps).get_epsilon_for_delta(delta)))


def _daigavane(one: OccurringGaussian, records: int, delta: float) -> float:
    """Lemma 5 of the paper, with its orders: batches without replacement touch a hypergeometric number."""
    batch = round(one.rate * records)
    if not (type(records) is int and one.occurrences <= records and batch >= 1):
        raise BadInput(f"{records} records: at least the {one.occurrences} occurrences, and one in each step")
    touched = np.arange(min(one.occurrences, batch) + 1)
    logs = hypergeom(records, one.occurrences, batch).logpmf(touched)
    a = _DAIGAVANE_ORDERS
    exponents = np.outer(a * (a - 1) / 2, (2 * touched / one.noise_multiplier) ** 2) + logs
    top = exponents.max(axis=1)
    curve = (top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))) / (a - 1)
    return float(rdp.compute_epsilon(a, one.steps * np.maximum(curve, 0), delta)[0])
