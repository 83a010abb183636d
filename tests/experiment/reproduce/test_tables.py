"""The papers' tables: every case is an experiment that can be made, and rough versions are rough."""

from __future__ import annotations

import pytest

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.reproduce import TABLES, Case, Cell, table_named
from secure_fedgraph.experiment.reproduce.running import experiment_of


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_case_makes_its_algorithm_on_data_that_there_are(name: str) -> None:
    for case in TABLES[name].cases:
        experiment = experiment_of(case, 1)
        made = experiment.make_algorithm()
        assert (
            made.settings.model_dump().items()
            >= {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in case.config.get("training", {}).items()
            }.items()
        )
        assert experiment.rounds


def test_cases_of_one_name_are_one_experiment_in_all_tables() -> None:
    seen: dict[str, Case] = {}
    for table in TABLES.values():
        for case in table.cases:
            assert seen.setdefault(case.folder, case).config == case.config


def test_owners_alone_are_scored_on_everybodys_test_nodes() -> None:
    """As in the paper's Table 2: on their own nodes they would be twice as good."""
    assert {cell.measure for cell in TABLES["fedsage-2"].cells} == {"global"}


def test_a_cell_is_run_or_says_why_not() -> None:
    with pytest.raises(BadInput, match="a case, or the reason"):
        Cell("row", "column", 0.5, 0.1)
    assert all(cell.case or cell.why_not for table in TABLES.values() for cell in table.cells)


def test_a_part_of_a_table() -> None:
    part = table_named("fedsage-2").only(("locsage+", "M=10"))
    assert {one.row for one in part.cells} == {one.row for one in TABLES["fedsage-2"].cells}
    assert {cell.column for cell in part.cells if cell.row == "FedSage"} == {
        column for column in {one.column for one in part.cells} if "M=10" in column
    }


@pytest.mark.parametrize("word", ["", "nobody", "x/../../escaped", "m" * 300])
def test_each_word_has_to_be_in_a_cell(word):
    with pytest.raises(BadInput, match="--only"):
        table_named("fedsage-2").only(("Cora", word))
