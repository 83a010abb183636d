"""The first screen of an audit's page: what was stolen, what is left under a policy, who could read what."""

from __future__ import annotations

from typing import Any

import pytest
from test_report_page import cell, run_json, scored

from secure_fedgraph.experiment.schema import AuditResult, as_read
from secure_fedgraph.report.first_screens.audit import AuditOpening, audit_opening

LEFT = "what the defence leaves"
LABELS = {"attack": "a4-label-counts", "subject": "numbers of training nodes by class"}
COUNTS = {"owner": "owner-0", "true": [10.0, 4.0], "guess": [10.0, 4.0]}
NODE = [0, 1, 0, 0, 1, 0]
NODES = {"attack": "a5-planted-units", "subject": "single nodes"}


def guess(policy: str, target: dict[str, Any], kind: str = "label shares", **changes: Any) -> dict[str, Any]:
    value = {"seed": 0, "variant": "as configured", "adversary": "server", "kind": kind, "policy": policy,
             "aim": "each owner", "targets": [target], **LABELS}  # fmt: skip
    return {**value, **changes}


def opening(
    cells: list[dict[str, Any]],
    guesses: list[dict[str, Any]] = [],  # noqa: B006
    policies: tuple[str, ...] = ("plaintext", "masked"),
    **runs: dict[str, Any],
) -> AuditOpening:
    value = {
        "schema": "secure-fedgraph/audit/1", "config": {}, "policies": [*policies], "cells": cells,
        "reconstructions": guesses,
        "runs": [{"variant": "as configured", "policy": p, "result": r} for p, r in runs.items()],
    }  # fmt: skip
    return audit_opening(as_read(AuditResult, value), policies)


STOLEN = scored("plaintext", 1.0, True, **LABELS)
HIDDEN = cell("masked", "blind", **LABELS)


def test_a_defence_that_worked_looks_like_one() -> None:
    told = opening([STOLEN, HIDDEN], [guess("plaintext", COUNTS)])
    assert [hero.state for hero in told.heroes] == ["leaks", "nothing"]
    before, after = told.heroes
    assert "2 of 2 classes read right" in before.picture.alt and "nothing was read" in after.picture.alt
    assert [row[1:] for row in after.table.rows] == [["10", "–"], ["4", "–"]]
    assert (told.figures[0].figure, told.figures[0].state) == ("0 of 1", "nothing")
    assert told.sentence == (
        "Without protection (plaintext), the server read single owners’ numbers of training nodes by class. "
        "With masks (masked), the same attacks read nothing beyond a trivial guess."
    )


def test_an_attack_of_which_no_run_started_is_not_one_that_failed() -> None:
    refused = cell("masked", "refused", **{**LABELS, "attack": "a1-vocabulary-support"})
    told = opening([STOLEN, HIDDEN, refused], [guess("plaintext", COUNTS)])
    assert "1 of these 2 attacks ran and read nothing" in told.sentence


def test_a_sum_that_is_left_is_drawn_and_named() -> None:
    union = {"owner": "all owners together", "true": [30.0, 9.0], "guess": [30.0, 9.0]}
    left = scored("masked", 1.0, True, LEFT, **LABELS, owners=3)
    told = opening([STOLEN, HIDDEN, left], [guess("plaintext", COUNTS), guess("masked", union, aim=LEFT)])
    assert [hero.state for hero in told.heroes] == ["leaks", "together"]
    assert "all owners together" in told.heroes[1].picture.alt
    assert told.heroes[1].caption.endswith("reads the sum of all owners, and no single one")
    card = told.figures[0]
    assert (card.state, card.figure) == ("together", "0 of 1")
    assert "1 of 1 read all owners together." in card.lines


def test_a_node_in_a_sum_is_not_called_hidden() -> None:
    """Whose it is, is hidden; what it says, is not."""
    target = {"owner": "owner-0", "true": [NODE], "guess": [NODE]}
    union = {"owner": "all owners together", "true": [[1, 0, 0, 0, 0, 0], NODE],
             "guess": [[1, 0, 0, 0, 0, 0], NODE]}  # fmt: skip
    kind = "nodes found by an oracle"
    told = opening(
        [scored("plaintext", 1.0, True, **NODES), cell("masked", "blind", **NODES),
         scored("masked", 1.0, True, LEFT, owners=3, **NODES)],
        [guess("plaintext", target, kind, **NODES), guess("masked", union, kind, aim=LEFT, **NODES)],
    )  # fmt: skip
    after = told.heroes[1]
    assert after.state == "together" and "still reads nodes out of the sum" in after.caption
    assert after.table.rows == [["Words of a node of all owners together", "0", "0"]]


def test_a_guess_that_noise_spoils_is_drawn_beside_the_truth() -> None:
    spoilt = scored("local_dp", 0.1, False, **LABELS)
    told = opening(
        [STOLEN, spoilt],
        [guess("plaintext", COUNTS), guess("local_dp", {**COUNTS, "guess": [0.0, 14.0]})],
        ("plaintext", "local_dp"),
    )
    assert told.heroes[1].state == "nothing"
    assert [row[1:] for row in told.heroes[1].table.rows] == [["10", "0"], ["4", "14"]]


def test_a_control_shows_the_before_where_the_attack_needs_its_own_settings() -> None:
    control = {"aim": "each owner", "variant": "one full step"}
    told = opening(
        [scored("plaintext", 0.1, False, **LABELS),
         scored("plaintext", 1.0, True, **LABELS, settings=control),
         cell("masked", "blind", **LABELS, settings=control)],
        [guess("plaintext", COUNTS, variant="one full step")],
    )  # fmt: skip
    assert [hero.state for hero in told.heroes] == ["leaks", "nothing"]
    assert "(in settings that suit the attack)" in told.readers[0].sentence
    assert "(in settings" not in told.sentence


def test_small_values_that_noise_spoils_are_not_read_right() -> None:
    about = {"attack": "f1-cohort-differencing", "subject": "updates"}
    target = {"owner": "owner-0", "true": [[1e-4, -2e-4, 3e-4]], "guess": [[0.3, -2e-4, 2e-3]]}
    record = guess("plaintext", target, "mean update", **about)
    (hero,) = opening([scored("plaintext", 1.0, True, **about)], [record], ("plaintext",)).heroes
    assert "1 of 3 values read right" in hero.picture.alt


def test_sizes_and_shares_of_test_nodes_are_drawn() -> None:
    owners = [{"owner": f"owner-{i}", "true": [true], "guess": [read]} for i, (true, read) in
              enumerate([(40, 40), (30, 15), (20, 20)])]  # fmt: skip
    about = {"attack": "i1-test-sizes", "subject": "numbers of test nodes"}
    record = {**guess("plaintext", {}, about["subject"], **about), "targets": owners}
    (hero,) = opening([scored("plaintext", 1.0, True, **about)], [record], ("plaintext",)).heroes
    assert "Numbers of test nodes, by owner: 2 of 3 numbers read right." in hero.picture.alt

    shares = {"attack": "i2-constant-answers", "subject": "class shares of test nodes"}
    record = guess("plaintext", COUNTS, shares["subject"], **shares)
    (hero,) = opening([scored("plaintext", 1.0, True, **shares)], [record], ("plaintext",)).heroes
    assert "Test nodes of owner-0 by class: 2 of 2 classes read right." in hero.picture.alt


def test_every_reader_has_a_sentence_and_who_was_not_tried_is_named() -> None:
    by_owner = {"attack": "c2-neighgen-batch", "subject": "raw node features", "adversary": "client"}
    told = opening(
        [STOLEN, HIDDEN, scored("masked", 1.0, True, **by_owner), cell("plaintext", "blind", **by_owner)]
    )
    assert [(one.name, one.state) for one in told.readers] == [
        ("The server", "nothing"), ("An owner", "leaks"), ("An outsider", "absent"),
    ]  # fmt: skip
    server, owner, _ = (one.sentence for one in told.readers)
    assert server.startswith(
        "Under policy plaintext it read single owners’ numbers of training nodes by class. Under policy"
    )
    assert "under policy masked it read single owners’ raw node features" in owner.replace("Under", "under")


def test_of_one_policy_that_holds_a_second_one_is_advised() -> None:
    weak = scored("masked", 0.3, False, attack="a1-vocabulary-support", subject="vocabulary")
    told = opening([HIDDEN, weak], policies=("masked",))
    assert told.heroes == [] and told.figures[0].figure == "0 of 2"
    assert "--policy masked,plaintext" in told.hint
    assert opening([HIDDEN, weak]).hint == ""  # the other policy was asked for, and is named where it failed


def test_what_was_refused_or_never_ran_is_said() -> None:
    refused = cell("masked", "refused", reason="no")
    assert opening([refused], policies=("masked",)).sentence.startswith(
        "With masks (masked), the server got nothing: training was refused"
    )
    nothing = opening([])
    assert (nothing.heroes, nothing.figures) == ([], []) and "No attack has a result" in nothing.sentence


def test_what_masks_did_is_said_in_figures_and_a_larger_epsilon_where_it_stands() -> None:
    runs = {"plaintext": run_json(epsilon="inf"), "masked": run_json(epsilon=3.0)}
    for policy, singly in (("plaintext", 6), ("masked", 0)):
        runs[policy]["channels"][0] |= {"uploads": 6, "read_singly": singly, "to": "server"}
    runs["masked"]["privacy"]["node"] |= {"epsilon": 9.0, "relation": "zero-out"}
    told = opening([STOLEN, HIDDEN], [], **runs)
    reads, noise, accuracy = told.figures
    assert "The server read 6 of 6 single uploads under policy plaintext." in reads.lines
    assert any(
        line.startswith("The server read 0 of 6 single uploads under policy masked") for line in reads.lines
    )
    assert noise.figure == "ε = 3" and noise.lines[-1].startswith("One node's epsilon is 9, 3.0 times")
    assert accuracy.figure == "84.0\u202f%" and "84.0\u202f% under policy plaintext" in accuracy.lines


def test_words_and_classes_have_their_names_where_the_data_name_them() -> None:
    run = run_json()
    words = ["age", "debt", "income", "kin", "loan", "rent"]
    run["data"] |= {"feature_names": words, "class_names": ["good", "bad"]}
    kind, target = "nodes found by an oracle", {"owner": "owner-0", "true": [NODE], "guess": [NODE]}
    told = opening(
        [STOLEN, scored("plaintext", 1.0, True, **NODES)],
        [guess("plaintext", COUNTS), guess("plaintext", target, kind, **NODES)],
        ("plaintext",),
        plaintext=run,
    )
    (hero,) = told.heroes
    assert "read: debt, loan" in hero.picture.svg and ">good<" in hero.picture.svg
    assert hero.table.rows[-1][1:] == ["debt, loan", "debt, loan"]


@pytest.mark.parametrize("bad", ["words", [["a"]], [[1.0], [1.0, 2.0]], {}])
def test_a_guess_that_cannot_be_drawn_costs_its_picture_alone(bad: Any) -> None:
    told = opening([STOLEN, HIDDEN], [guess("plaintext", {**COUNTS, "true": bad, "guess": bad})])
    assert told.figures and told.heroes == []


def test_a_run_that_was_refused_is_not_called_unread() -> None:
    words = [scored("plaintext", 1.0, True, **NODES), cell("masked", "refused", **NODES), HIDDEN]
    target = {"owner": "owner-0", "true": [NODE], "guess": [NODE]}
    told = opening(words, [guess("plaintext", target, "nodes found by an oracle", **NODES)])
    assert "training was refused" in told.heroes[1].picture.svg
    assert "nothing was read" not in told.heroes[1].picture.svg
    assert "1 more had nothing to attack" in " ".join(told.figures[0].lines)


def test_what_is_left_stands_beside_the_attacks_that_read_nobody() -> None:
    union = {"owner": "all owners together", "true": [30.0, 9.0], "guess": [30.0, 9.0]}
    left = scored("masked", 1.0, True, LEFT, **LABELS, owners=3)
    told = opening([HIDDEN, left], [guess("masked", union, aim=LEFT)], ("masked",))
    assert [hero.state for hero in told.heroes] == ["together"]
    assert "Training nodes of all owners together" in told.heroes[0].picture.alt


def test_links_are_drawn_as_right_missed_and_invented() -> None:
    graph = {"centre": 5, "nodes": [2, 5, 7, 9], "true": [[2, 5], [5, 7]], "guess": [[5, 7], [5, 9]]}
    d1 = {"attack": "d1-index-lists", "subject": "links from lists of sampled nodes"}
    target = {"owner": "owner-0", "true": [], "guess": [], "graph": graph}
    told = opening(
        [scored("plaintext", 0.9, True, **d1), cell("masked", "blind", **d1)],
        [guess("plaintext", target, "links from lists", **d1)],
    )
    before, after = (hero.picture for hero in told.heroes)
    assert "1 of 2 read, 1 invented" in before.alt and "none of 2 read" in after.alt
    assert all(before.svg.count(f">link {kind}<") == 1 for kind in ("right", "missed", "invented"))


def test_links_that_nobody_read_are_drawn_as_missed() -> None:
    about = {"attack": "d1-index-lists", "subject": "links"}
    graph = {"centre": 0, "nodes": [0, 1, 2], "true": [[0, 1], [1, 2]], "guess": [[0, 1], [1, 2]]}
    target = {"owner": "owner-0", "true": [], "guess": [], "graph": graph}
    told = opening(
        [scored("plaintext", 1.0, True, **about), cell("masked", "blind", **about)],
        [guess("plaintext", target, "links from lists", **about)],
    )
    stolen, left = (hero.picture for hero in told.heroes)
    assert "2 of 2 read" in stolen.alt and "none of 2 read" in left.alt
    # the dots of a missed link, in the graph and in its legend
    dots = "stroke-dasharray"
    assert left.svg.count(dots) > stolen.svg.count(dots)
