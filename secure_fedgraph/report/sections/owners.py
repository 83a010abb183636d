"""What a page says of single owners: a few of them, where the rest lie, and all of them one click away."""

from __future__ import annotations

from statistics import median

from secure_fedgraph.report import text
from secure_fedgraph.report.measures import AT_HOME, measure_of, of_owners
from secure_fedgraph.report.sections.trained import Trained

FEW = 8


def each_owner(run: Trained) -> dict[str, object] | None:
    """The last round's score of each owner on its own test data, the mean where there are several seeds.

    Returns:
        ``summary``, ``heads``, ``rows`` of all owners and the ``few`` that stand open; None where no round
        says anything about single owners.
    """
    last = [history[-1].owners for history in run.histories if history]
    names = list(dict.fromkeys(name for scores in last for name in scores))
    means = {name: text.mean(scores.get(name) for scores in last) for name in names}
    scores = {name: value for name, value in means.items() if value is not None}
    if not scores:
        return None
    measure = of_owners(run.results[0])
    about_accuracy = measure_of(run.results[0]).key in ("global", "local")
    what = "accuracy" if measure is AT_HOME and not about_accuracy else ""
    # another seed splits otherwise
    nodes = run.results[0].data.partition.sizes if len(run.results) == 1 else []
    sized = len(nodes) == len(scores)
    rows = [
        [name, *([text.count(nodes[i])] if sized else []), measure.write(value)]
        for i, (name, value) in enumerate(scores.items())
    ]
    low, high = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
    middle = measure.write(median(scores.values()))
    return {
        "summary": f"{len(scores)} owners on their own test data: {what}{' ' * bool(what)}"
        f"lowest {measure.write(scores[low])} ({low}), median {middle}, "
        f"highest {measure.write(scores[high])} ({high}).",
        "heads": ["owner", *(["nodes"] if sized else []), "accuracy, last round" if what else "last round"],
        "rows": rows,
        "few": rows[:FEW] if len(rows) > 2 * FEW else rows,
    }
