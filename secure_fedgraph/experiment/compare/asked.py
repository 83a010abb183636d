"""What a caller asks of a comparison, checked before any work starts."""

from __future__ import annotations

from secure_fedgraph.arguments import several, several_names
from secure_fedgraph.core.errors import BadInput, check_number, check_whole, wrong_type
from secure_fedgraph.experiment.compare.points import Point, points
from secure_fedgraph.experiment.compare.runner import make_all
from secure_fedgraph.experiment.config import Experiment


def checked_points(
    experiment: object, algorithms: object, policies: object, epsilons: object, workers: object
) -> list[Point]:
    """The points of a comparison, after a check of all that they are made of.

    Args:
        experiment, algorithms, policies, epsilons, workers: as
            :func:`secure_fedgraph.comparison.compare`'s, of whatever type a caller gave.

    Raises:
        BadInput: for what is unknown, of another type or out of range, and for a setting that a point's
            algorithm or policy does not take.
    """
    if not isinstance(experiment, Experiment):
        raise wrong_type("experiment", experiment, "give an Experiment")
    named = several_names("algorithms", algorithms, "fedsage", empty=True) or [experiment.algorithm]
    under = several_names("policies", policies, "masked", empty=True) or [experiment.policy]
    budgets = checked_epsilons(epsilons)
    check_whole("workers", workers, 1)
    chosen = points(experiment, named, under, budgets)
    make_all(chosen)
    return chosen


def checked_epsilons(given: object) -> list[float]:
    """Budgets, of which ``inf`` is the baseline without privacy.

    Raises:
        BadInput: for what is no positive number.
    """
    epsilons = several("epsilons", given, "give budgets as a list, such as [1, 8]", empty=True)
    for epsilon in epsilons:
        check_number("one of epsilons", epsilon)
        if not epsilon > 0:
            raise BadInput(f"epsilon = {epsilon} is no budget: give positive numbers or inf")
    return [float(epsilon) for epsilon in epsilons]
