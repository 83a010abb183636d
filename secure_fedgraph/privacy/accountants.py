"""One budget by several accountants, side by side: the table in which an expert compares them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.accounting.epsilon import check_delta, epsilon, renyi
from secure_fedgraph.core.accounting.events import OccurringGaussian, SampledGaussian
from secure_fedgraph.core.errors import Refused

ACCOUNTANTS = ("pld", "rdp", "prv")
_UNDER_REPORTS = ("gdp", "gaussian", "gaussianaccountant")
_PRV_UP_TO = 40.0
"""Above this epsilon Opacus' PRV accountant needs gigabytes."""


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


def node_budget(noise: float, rate: float, steps: int, occurrences: int, delta: float) -> dict[str, float]:
    """Epsilon of DP-SGD where one node changes several records' gradients, by each accountant.

    Args:
        noise: standard deviation of the noise on the sum, over the clip of one gradient.
        rate: each record's probability of being in a step.
        steps: how many.
        occurrences: records that one node touches at most.
        delta: the failure probability.

    Returns:
        ``pld``, which runs report, and ``rdp``, for releases that are chosen later.
    """
    one = OccurringGaussian(noise, rate, steps, occurrences)
    return {"pld": epsilon([one], check_delta(delta)).epsilon, "rdp": renyi({one: 1}, delta)}
