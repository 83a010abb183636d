"""Accuracy under privacy, side by side: algorithms x policies x budgets x seeds, resumable, on all cores."""

from secure_fedgraph.experiment.compare.output import compare_result as compare_result
from secure_fedgraph.experiment.compare.output import write_table as write_table
from secure_fedgraph.experiment.compare.points import ALONE as ALONE
from secure_fedgraph.experiment.compare.points import Point as Point
from secure_fedgraph.experiment.compare.points import points as points
from secure_fedgraph.experiment.compare.runner import check as check
from secure_fedgraph.experiment.compare.runner import check_folder as check_folder
from secure_fedgraph.experiment.compare.runner import checked_points as checked_points
from secure_fedgraph.experiment.compare.runner import compare as compare
from secure_fedgraph.experiment.compare.runner import is_begun as is_begun
from secure_fedgraph.experiment.compare.runner import unfinished as unfinished
from secure_fedgraph.experiment.compare.without_graph import added as added
from secure_fedgraph.experiment.compare.without_graph import references as references
