"""What a page says of single owners: a few of them, where the rest lie, and all of them one click away."""

from __future__ import annotations

from statistics import median

from secure_fedgraph.report import text
from secure_fedgraph.report.measures import measure_of
from secure_fedgraph.report.sections.trained import Trained, mean

FEW = 8


def each_owner(run: Trained) -> dict[str, object] | None:
    """The last round's score of each owner on its own test data, the mean where there are several seeds.

    Returns:
        ``summary``, ``heads``, ``rows`` of all owners and the ``few`` that stand open; None where no round
        says anything about single owners.
    """
    last = [history[-1].owners for history in run.histories if history]
    names = list(dict.fromkeys(name for scores in last for name in scores))
    means = {name: mean(scores.get(name) for scores in last) for name in names}
    scores = {name: value for name, value in means.items() if value is not None}
    if not scores:
        return None
    headline = measure_of(run.results[0])
    # another seed splits otherwise
    nodes = run.results[0].data.partition.sizes if len(run.results) == 1 else []
    sized = len(nodes) == len(scores)
    rows = [
        [name, *([text.count(nodes[i])] if sized else []), headline.write(value)]
        for i, (name, value) in enumerate(scores.items())
    ]
    low, high = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
    middle = headline.write(median(scores.values()))
    return {
        "summary": f"{len(scores)} owners on their own test data: "
        f"lowest {headline.write(scores[low])} ({low}), median {middle}, "
        f"highest {headline.write(scores[high])} ({high}).",
        "heads": ["owner", *(["nodes"] if sized else []), "last round"],
        "rows": rows,
        "few": rows[:FEW] if len(rows) > 2 * FEW else rows,
    }
