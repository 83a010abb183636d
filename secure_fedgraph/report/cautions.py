"""What a score is no better than, in a sentence: the first that a reader should see."""

from __future__ import annotations

from secure_fedgraph.experiment.schema import RunResult

SAME = 1e-6
"""Shares that differ by less are the same: some are kept in single precision."""
LOWER_IS_BETTER = ("mae", "rmse", "brier")


def no_better_than(result: RunResult) -> str:
    """What the model is no better than, as the end of a sentence; empty where it is better than all.

    Compared are the accuracy with that of always naming the commonest class, numbers with always naming
    their mean, and the headline with the best that owners do alone, on the same test items. Where that is
    better, what their personal models have is told too.
    """
    found = []
    commonest, accuracy = result.commonest_class, _accuracy(result)
    if commonest is not None and accuracy is not None and accuracy <= commonest + SAME:
        named, of = "no better than always naming the commonest class", "accuracy "
        if result.headline != "accuracy":  # beside an AUC both are to be told
            named, of = f"in accuracy ({accuracy:.1%}) {named}", ""
        found.append(f"{named} ({of}{commonest:.1%})")
    explained = result.metrics.get("r2")  # share of the answers' variance
    if explained is not None and explained.value <= 0:
        found.append(f"no better than always naming the mean (R² {explained.value:.2f})")
    alone, score = best_alone(result), headline_of(result)
    if alone is not None and score is not None:
        worse = score >= alone - SAME if result.headline in LOWER_IS_BETTER else score <= alone + SAME
        if worse:
            found.append(f"no better than what owners do alone ({written(result.headline, alone)})")
    said, personal = ", and ".join(found), result.accuracy.get("personal")
    if personal is None or result.headline != "accuracy" or "alone" not in said:
        return said
    return f"{said}; owners' own models combined with it reach {written(result.headline, personal)}"


def headline_of(result: RunResult) -> float | None:
    """The headline's figure."""
    figure = result.metrics.get(result.headline)
    if figure is not None:
        return figure.value
    return _accuracy(result) if result.headline == "accuracy" else None


def best_alone(result: RunResult) -> float | None:
    """The headline's figure of owners' own models, of all test items together where it is known."""
    alone = result.baselines.alone
    return alone.metrics.get(result.headline, alone.best)


def written(metric: str, value: float) -> str:
    """A figure as people write it: accuracies in percent.

    >>> written("accuracy", 0.5), written("auc", 0.7312)
    ('50.0 %', '0.731')
    """
    return f"{100 * value:.1f} %" if metric in ("accuracy", "balanced_accuracy") else f"{value:.3f}"


def _accuracy(result: RunResult) -> float | None:
    figure = result.metrics.get("accuracy")
    return figure.value if figure is not None else result.accuracy.get("global")
