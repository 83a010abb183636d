"""Strips of recovered nodes: words that nobody has are left out, and no word that was guessed wrongly is."""

from __future__ import annotations

from typing import Any

import numpy as np

from secure_fedgraph.report.sections.reconstructed import _some_words, reconstructed


def node(words: int, true: list[int], guess: list[int]) -> dict[str, Any]:
    found = {"owner": "owner-1, node 1", "true": np.zeros(words), "guess": np.zeros(words)}
    found["true"][true] = 1.0
    found["guess"][guess] = 1.0
    return found


def test_only_words_true_or_guessed_are_drawn() -> None:
    axis, strips = _some_words([node(1433, [3, 700], [3, 700]), node(1433, [9], [9, 1432])])
    assert axis == "the 4 words true or guessed here, of 1,433 in the data set"
    assert [s["true"].tolist() for s in strips] == [[1, 0, 1, 0], [0, 1, 0, 0]]
    assert [s["guess"].tolist() for s in strips] == [[1, 0, 1, 0], [0, 1, 0, 1]]  # the wrong word stays


def test_a_dense_or_an_empty_guess_is_drawn_whole() -> None:
    for nodes in ([node(8, [0], [1, 2])], [node(8, [], [])]):
        axis, strips = _some_words(nodes)
        assert axis == "words of the data set, 1 to 8"
        assert len(strips[0]["true"]) == 8


def test_the_numbers_and_the_caption_are_about_all_words_and_name_a_stopped_search() -> None:
    row = np.zeros(1433)
    row[[5, 80]] = 1.0
    target = {"owner": "all owners together", "true": [row.tolist()], "guess": [row.tolist()]}
    record = {
        "attack": "c2-neighgen-batch", "kind": "node features", "seed": 0, "variant": "as configured",
        "policy": "strictest", "adversary": "client", "aim": "what the defence leaves", "targets": [target],
        "stopped": "search stopped after 20 s: a lower bound",
    }  # fmt: skip
    (section,) = reconstructed([record], ["strictest"])
    assert section["captions"] == [
        "strictest: nodes that an owner reads from the sum of all owners' answers; "
        "search stopped after 20 s: a lower bound"
    ]
    assert "100.00" in section["tables"][0]["rows"][0][-1]
    assert "the 2 words true or guessed here, of 1,433 in the data set" in section["pictures"][0].svg
