"""What a page says of single owners: where they lie, and all of them one click away."""

from __future__ import annotations

from statistics import median

from secure_fedgraph.report import text
from secure_fedgraph.report.measures import AT_HOME, measure_of, of_owners
from secure_fedgraph.report.sections.trained import Trained


def each_owner(run: Trained) -> dict[str, object] | None:
    """The last round's score of each owner on its own test data.

    Returns:
        ``summary``, ``heads`` and ``rows`` of all owners; None where no round says anything about them.
    """
    last = next((history[-1].owners for history in run.histories if history), {})
    scores = {name: value for name, value in last.items() if value is not None}
    if not scores:
        return None
    result = run.results[0]
    measure = of_owners(result)
    nodes = (
        result.data.partition.sizes
        if len(result.data.partition.sizes) == len(scores)
        else [None] * len(scores)
    )
    what = "accuracy " if measure is AT_HOME and measure_of(result).key not in ("global", "local") else ""
    low, high = min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)
    return {
        "summary": f"{len(scores)} owners on their own test data: {what}"
        f"lowest {measure.write(scores[low])} ({low}), median {measure.write(median(scores.values()))}, "
        f"highest {measure.write(scores[high])} ({high}).",
        "heads": ["owner", "nodes", f"{what}last round"],
        "rows": [
            [name, text.count(size), measure.write(value)]
            for size, (name, value) in zip(nodes, scores.items(), strict=True)
        ],
    }
