"""The pages hold what the kept files and the code make of their tables."""

from __future__ import annotations

import pytest

from tests.scripts import status_of

WRITERS = (
    "attacks_page",
    "budget_figures",
    "by_round",
    "cheat_sheet",
    "devices",
    "families",
    "form_audits",
    "race",
    "readings",
    "reproduced",
)


@pytest.mark.parametrize("script", WRITERS)
def test_no_figure_stands_in_the_page_that_no_file_holds(script: str) -> None:
    assert status_of(script, "--check") == 0
