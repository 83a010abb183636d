"""Accuracy under privacy, side by side: algorithms x policies x budgets x seeds, resumable, on all cores."""

from secure_fedgraph.experiment.compare.asked import checked_points
from secure_fedgraph.experiment.compare.folder import check_folder, forget, is_begun
from secure_fedgraph.experiment.compare.output import compare_result, flat, write_tables
from secure_fedgraph.experiment.compare.points import ALONE, NO_PRIVACY, NOISED, SILENT, Point, points
from secure_fedgraph.experiment.compare.runner import Leaks, check, compare, unfinished
from secure_fedgraph.experiment.compare.runs import run_key, run_point
from secure_fedgraph.experiment.compare.summary import gains, pareto, score_of
from secure_fedgraph.experiment.compare.without_graph import added, references

__all__ = [
    "ALONE",
    "NOISED",
    "NO_PRIVACY",
    "SILENT",
    "Leaks",
    "Point",
    "added",
    "check",
    "check_folder",
    "checked_points",
    "compare",
    "compare_result",
    "flat",
    "forget",
    "gains",
    "is_begun",
    "pareto",
    "points",
    "references",
    "run_key",
    "run_point",
    "score_of",
    "unfinished",
    "write_tables",
]
