"""What a result is measured by: which figure stands at the top of a page, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from secure_fedgraph.experiment.schema import RunResult
from secure_fedgraph.experiment.schema.run import RoundReport
from secure_fedgraph.report import text as words


@dataclass(frozen=True)
class Measure:
    """A figure of ``accuracy``.

    Args:
        key: its name there.
        title: on axes and in headings.
        as_percent: or as a number.
    """

    key: str
    title: str
    as_percent: bool = True

    def write(self, value: float | None, places: int = 1) -> str:
        """A value in words: a percentage with so many places, or a number with two more."""
        return words.percent(value, places) if self.as_percent else decimals(value, places + 2)


def decimals(value: float | None, places: int = 3) -> str:
    """A number with so many places."""
    number = words.real(value)
    return words.MISSING if number is None else f"{number:.{places}f}"


MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("global", "accuracy on all test data"),
    "auc": Measure("auc", "ROC-AUC on all owners' test items together", as_percent=False),
    "average_precision": Measure("average_precision", "average precision", as_percent=False),
    "balanced_accuracy": Measure("balanced_accuracy", "balanced accuracy"),
    "f1": Measure("f1", "F1", as_percent=False),
    "f1_macro": Measure("f1_macro", "F1, macro", as_percent=False),
    "brier": Measure("brier", "Brier score", as_percent=False),
    "calibration_error": Measure("calibration_error", "calibration error", as_percent=False),
    "rmse": Measure("rmse", "root mean squared error", as_percent=False),
    "r2": Measure("r2", "R2", as_percent=False),
    "hits": Measure("hits", "hits at 10", as_percent=False),
    "mae": Measure("mae", "mean absolute error, mean over owners", as_percent=False),
}
AT_HOME = Measure("local", "accuracy on the owners' own test data")
NAMES: Mapping[str, str] = {
    **{one.key: one.title for one in MEASURES.values()},
    "local": "accuracy on the owners' own test data, mean over owners",
    "personal": "accuracy on the owners' own test data, the model combined with each owner's own",
    "personal_global": "accuracy on all test data, the model combined with each owner's; mean over owners",
    "own": "accuracy on the owners' own test data of what each has without the released model",
    "own_global": "accuracy on all test data of what each owner has without the released model",
    "mae_pooled": "mean absolute error, all ratings together",
}


def measure_of(result: RunResult) -> Measure:
    """The headline figure of a result: of owners who score at home, that on their own test data."""
    measure = MEASURES.get(result.metric, MEASURES["accuracy"])
    scored = result.accuracy
    if measure.key == "global" and scored.get("global") is None and scored.get("local") is not None:
        return AT_HOME
    return measure


def followed(result: RunResult, rounds: Sequence[RoundReport]) -> Measure:
    """What rounds are scored by: the headline where they have it, else what stands in them."""
    headline = measure_of(result)
    if not rounds or rounds[-1].accuracy.get(headline.key) is not None:
        return headline
    of_rounds = (MEASURES["accuracy"], MEASURES["mae"], AT_HOME)
    return next((one for one in of_rounds if rounds[-1].accuracy.get(one.key) is not None), headline)


def of_owners(result: RunResult) -> Measure:
    """What a single owner's score is, whatever the headline: an accuracy, but of numbers and of links."""
    headline = measure_of(result)
    if headline.key in ("mae", "rmse", "r2"):
        return MEASURES["mae"]
    return headline if "hits" in result.metrics else AT_HOME


def others(result: RunResult) -> list[dict[str, str]]:
    """Every figure of a result but the headline's, by name, last round."""
    headline = measure_of(result)
    rows = []
    for key, value in result.accuracy.named().items():
        if key != headline.key and value is not None:
            percent = not key.startswith(("mae", "auc"))
            text = words.percent(value) if percent else decimals(value)
            rows.append({"name": NAMES.get(key, key.replace("_", " ")), "value": text})
    return rows
