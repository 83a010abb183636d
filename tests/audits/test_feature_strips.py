"""Strips of recovered nodes: words that nobody has are left out, and no word that was guessed wrongly is."""

from __future__ import annotations

import numpy as np
from result_parts import guess

from secure_fedgraph.report.figures.plots import Strip
from secure_fedgraph.report.sections.reconstructed import _some_words, reconstructed


def node(words: int, true: list[int], guessed: list[int]) -> Strip:
    found = Strip("owner-1, node 1", np.zeros(words), np.zeros(words))
    found.true[true] = 1.0
    found.guess[guessed] = 1.0
    return found


def test_only_words_true_or_guessed_are_drawn() -> None:
    axis, strips = _some_words([node(1433, [3, 700], [3, 700]), node(1433, [9], [9, 1432])])
    assert axis == "the 4 words true or guessed here, of 1,433 in the data set"
    assert [s.true.tolist() for s in strips] == [[1, 0, 1, 0], [0, 1, 0, 0]]
    assert [s.guess.tolist() for s in strips] == [[1, 0, 1, 0], [0, 1, 0, 1]]  # the wrong word stays


def test_a_dense_or_an_empty_guess_is_drawn_whole() -> None:
    for nodes in ([node(8, [0], [1, 2])], [node(8, [], [])]):
        axis, strips = _some_words(nodes)
        assert axis == "words of the data set, 1 to 8"
        assert len(strips[0].true) == 8


def test_the_numbers_and_the_caption_are_about_all_words_and_name_a_stopped_search() -> None:
    row = np.zeros(1433)
    row[[5, 80]] = 1.0
    target = {"owner": "all owners together", "true": [row.tolist()], "guess": [row.tolist()]}
    record = {
        "attack": "c2-neighgen-batch", "kind": "node features", "seed": 0, "variant": "as configured",
        "policy": "strictest", "adversary": "client", "aim": "what the defence leaves", "targets": [target],
        "stopped": "search stopped after 20 s: a lower bound",
    }  # fmt: skip
    (section,) = reconstructed([guess(record)], ["strictest"])
    (drawn,) = section.drawn
    assert drawn.caption == (
        "strictest: nodes that an owner reads from the sum of all owners' answers; "
        "search stopped after 20 s: a lower bound"
    )
    assert "100.00" in str(drawn.table.rows[0][-1])
    assert "the 2 words true or guessed here, of 1,433 in the data set" in drawn.picture.svg
