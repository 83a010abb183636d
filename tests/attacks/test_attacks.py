"""What each attack declares, how it is chosen, and its arithmetic on hand-made views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from secure_fedgraph.attacks import ATTACKS, Blind, Knowledge, LabelCounts, VocabularySupport, families
from secure_fedgraph.attacks.attack import ALL
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.audits.grid.choices import adversaries, choose, played_by, readers
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS
from secure_fedgraph.models import GraphSage
from secure_fedgraph.models.parameters import glorot, parameters_of
from secure_fedgraph.protocol.transcript import Seen

WORDS, CLASSES = 6, 3


class MadeView:
    """A view with values put in by hand: what an attack may ask of it, and no more."""

    def __init__(self, uploads: list[Seen], sums: list[Seen], asked: list[Seen], rate: float = 0.5) -> None:
        self.public = {
            "schema": {"features": WORDS, "classes": CLASSES},
            "settings": {"hidden": (4, 2), "learning_rate": rate, "fanout": (5, 5)},
        }
        self._uploads, self._sums, self._asked = uploads, sums, asked

    def uploads(self, channel: str) -> list[Seen]:
        return self._uploads if channel == "update" else []

    def sums(self, channel: str) -> list[Seen]:
        return self._sums if channel == "update" else []

    def asked(self, channel: str) -> list[Seen]:
        return self._asked

    def why_unreadable(self, channel: str) -> str:
        return "every upload is masked"


def seen(clients: tuple[str, ...], values: dict[str, Any], round: int = 1) -> Seen:
    return Seen(round, round, clients, {k: np.asarray(v, dtype=np.float32) for k, v in values.items()})


def columns(*moved: int) -> dict[str, np.ndarray]:
    own, neighbour = np.zeros((2, WORDS)), np.zeros((2, WORDS))
    for word in moved[: len(moved) // 2]:
        own[1, word] = 0.5
    for word in moved[len(moved) // 2 :]:
        neighbour[0, word] = -0.25
    return {"layers.0.own.weight": own, "layers.0.neighbour.weight": neighbour, "head.bias": np.ones(CLASSES)}


def test_vocabulary_reads_the_columns_that_moved_in_any_round_and_of_sums_the_union() -> None:
    uploads = [seen(("a",), columns(0, 3)), seen(("b",), columns(5, 1)), seen(("a",), columns(2, 3), round=2)]
    guess = VocabularySupport().run(MadeView(uploads, [], []), Knowledge())  # type: ignore[arg-type]
    assert (guess.about, guess.messages) == ("vocabulary", 3)
    assert guess.targets == {"a": ("a",), "b": ("b",)}
    assert guess.values["a"].tolist() == [0.5, 0, 0.5, 0.5, 0, 0]  # word 3 twice .25
    assert (guess.values["b"] > 0).nonzero()[0].tolist() == [1, 5]
    # scores of all rounds are added up, so they are about all who contributed to any of them
    both = MadeView([], [seen(("a", "b"), columns(0, 3)), seen(("b", "c"), columns(5))], [])
    guess = VocabularySupport().residual(both, Knowledge())  # type: ignore[arg-type]
    assert guess.targets == {ALL: ("a", "b", "c")}
    assert (guess.values[ALL] > 0).nonzero()[0].tolist() == [0, 3, 5]


@pytest.mark.parametrize("kind", [VocabularySupport, LabelCounts])
def test_nothing_readable_is_blind_with_the_views_reason(kind: type) -> None:
    with pytest.raises(Blind, match=rf"{kind.id}: every upload is masked"):
        kind().run(MadeView([], [], []), Knowledge())
    with pytest.raises(Blind, match="no sum of channel 'update' was opened"):
        kind().residual(MadeView([], [], []), Knowledge())


def test_vocabulary_is_blind_where_no_layer_reads_the_features() -> None:
    view = MadeView([seen(("a",), {"head.bias": np.ones(CLASSES)})], [], [])
    with pytest.raises(Blind, match="no layer that reads the features"):
        VocabularySupport().run(view, Knowledge())  # type: ignore[arg-type]


def start(zero_head: bool) -> dict[str, np.ndarray]:
    model = GraphSage(WORDS, CLASSES, (4, 2))
    glorot(model, 0)
    if zero_head:
        torch.nn.init.zeros_(model.head.weight)
    return {name: p.numpy() for name, p in parameters_of(model).items()}


def one_step(shares: list[float], rate: float) -> np.ndarray:
    """The last bias's step of full-batch SGD from a head of zeros: -rate * (1/C - shares)."""
    return rate * (np.array(shares) - 1 / CLASSES)


def test_label_shares_use_the_gradient_of_cross_entropy_as_autograd_has_it_of_the_first_round() -> None:
    logits = torch.zeros(10, CLASSES, requires_grad=True)
    F.cross_entropy(logits, torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2])).backward()
    first = columns(0, 1) | {"head.bias": -0.5 * logits.grad.sum(0).numpy()}  # type: ignore[union-attr]
    later = columns(0, 1) | {"head.bias": np.full(CLASSES, 7.0)}
    uploads = [seen(("a",), later, round=2), seen(("a",), first)]
    view = MadeView(uploads, [], [seen(("a",), start(zero_head=True))])
    guess = LabelCounts().run(view, Knowledge())  # type: ignore[arg-type]
    assert guess.messages == 1
    assert guess.values["a"] == pytest.approx([0.5, 0.3, 0.2], abs=1e-6)


def test_the_mean_share_comes_from_the_sum_divided_by_the_contributors() -> None:
    step = one_step([0.5, 0.3, 0.2], 0.5) + one_step([0.1, 0.3, 0.6], 0.5)
    opened = seen(("a", "b"), columns(0, 1) | {"head.bias": step})
    view = MadeView([], [opened], [seen(("a",), start(zero_head=True))])
    guess = LabelCounts().residual(view, Knowledge())  # type: ignore[arg-type]
    assert guess.values[ALL] == pytest.approx([0.3, 0.3, 0.4], abs=1e-6)


def test_label_counts_is_blind_without_the_broadcast_or_a_classifiers_bias() -> None:
    upload = seen(("a",), columns(0, 1))
    for view in (
        MadeView([upload], [], []),
        MadeView(
            [seen(("a",), {"layers.0.own.weight": np.zeros((2, WORDS))})], [], [seen(("a",), start(True))]
        ),
    ):
        with pytest.raises(Blind, match="lacks the broadcast model or a classifier's bias"):
            LabelCounts().run(view, Knowledge())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ATTACKS.values(), ids=ATTACKS)
def test_every_attack_says_what_it_is(kind: Any) -> None:
    assert kind.summary and kind.channel
    assert kind.id == kind.id.lower() and " " not in kind.id
    assert kind.adversaries and set(kind.adversaries) <= {
        "server",
        "client",
        "malicious-server",
        "malicious-client",
        "coalition",
        "outsider",
        "last client",
    }
    assert kind.family in families()
    assert ATTACKS[kind.id] is kind
    assert not any("," in control.name for control in kind.controls)  # --control takes names by commas


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["all"], [kind.id for kind in ATTACKS.values() if not kind.harms]),
        (["neighgen"], [kind.id for kind in ATTACKS.values() if kind.family == "neighgen"]),
        (["c2"], ["c2-neighgen-batch", "c2-neighgen-columns"]),
        (["c1"], ["c1-neighgen-single"]),
        (["a1"], ["a1-vocabulary-support"]),
        (["a4-label-counts"], ["a4-label-counts"]),
        (
            ["weights"],
            [kind.id for kind in ATTACKS.values() if kind.id.startswith("a")],
        ),
        (["a4", "a1", "a4"], ["a4-label-counts", "a1-vocabulary-support"]),
        (["label-counts", "vocabulary-support"], ["a4-label-counts", "a1-vocabulary-support"]),
        (["d1-glasu-index-sets"], ["d1-index-lists"]),
        (["mash"], [kind.id for kind in ATTACKS.values() if kind.id.startswith("b")]),
        (["mashes"], [kind.id for kind in ATTACKS.values() if kind.id.startswith("b")]),
        (["glasu"], [kind.id for kind in ATTACKS.values() if kind.id.startswith("d")]),
        (["aggregation"], [kind.id for kind in ATTACKS.values() if kind.id.startswith(("f", "h"))]),
        (["prototypes"], ["e1-singleton-motif", "e2-subset-algebra", "e3-round-differencing"]),
        (["payoffs"], ["e5-listed-members", "e6-payoff-quality", "e6-payoff-sizes"]),
        (["released"], [kind.id for kind in ATTACKS.values() if kind.id.startswith("g")]),
    ],
)
def test_attacks_are_chosen_by_id_number_slug_family_or_all(names: list[str], found: list[str]) -> None:
    assert [kind.id for kind in choose(names)] == found


def test_an_unknown_attack_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"'weight'.*'weights'"):
        choose(["a1", "weight"])


@pytest.mark.parametrize("asked", ["own-z", "own", "z"])
def test_a_plugins_attack_that_cannot_be_used_is_refused_with_its_reason(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ATTACKS, "_loaded", {})
    monkeypatch.setattr(
        ATTACKS, "_broken", {"own-z": "attack 'own-z' of Somebody cannot be used: ImportError"}
    )
    with pytest.raises(BadInput, match="of Somebody cannot be used"):
        choose([asked])


def test_adversaries_are_chosen_by_name_several_and_by_whether_they_cheat() -> None:
    neighgen = choose(["neighgen"])
    assert adversaries(neighgen) == ("server", "client")
    assert adversaries(neighgen, "client,server") == ("client", "server")
    assert adversaries(neighgen, "malicious-client") == ("client",)
    assert [kind.id for kind in played_by(neighgen, "malicious-client")] == ["c3-neighgen-oracle"]
    assert "c3-neighgen-oracle" in [kind.id for kind in played_by(neighgen, "client")]
    assert played_by(neighgen, "server") == [k for k in neighgen if "server" in k.adversaries]
    assert played_by(neighgen) == neighgen
    with pytest.raises(BadInput, match="'malicious-server'"):
        adversaries(neighgen, "client,malicious-server")
    assert [kind.id for kind in played_by(choose(["weights"]), "malicious-server")] == ["a5-planted-units"]


def test_attacks_on_a_channel_that_settings_may_put_in_use_are_tried() -> None:
    """FairGraphFL sends prototypes as sums as configured, and one by one only where it is asked to."""
    found = [kind.id for kind in readers(load(None, {"algorithm": "fairgraphfl"}, []), ATTACKS.values())]
    assert {"e1-singleton-motif", "e2-subset-algebra"} <= set(found)
    assert "e3-round-differencing" not in found
    assert not any(name.startswith(("b", "c", "d")) for name in found)
    bounded = [k.id for k in readers(load(None, {"algorithm": "fairgraphfl-bounded"}, []), ATTACKS.values())]
    assert {"e3-round-differencing", "e6-payoff-quality"} <= set(bounded)
    assert not {"e1-singleton-motif", "e2-subset-algebra"} & set(bounded)
    found = [kind.id for kind in readers(load(None, {"algorithm": "fedsage"}, []), ATTACKS.values())]
    assert {name[0] for name in found} == {"a", "f", "g", "h", "j"}


def test_the_grid_has_every_cell_and_its_controls_and_refused_ones() -> None:
    base = {"data": "synthetic-citation", "dataset": {"nodes": 300, "features": 600}, "rounds": 1}
    one, four = VocabularySupport.id, LabelCounts.id
    found = grid.audit(load(None, base, []), ["plaintext", "masked"], [VocabularySupport, LabelCounts], [0])
    cells = {
        (c["policy"], c["attack"], c["settings"]["aim"], c["settings"]["variant"] != "as configured"): c
        for c in found.cells
    }
    assert len(cells) == len(found.cells) == 2 * (2 + 2 + 2)
    assert cells["plaintext", one, SINGLE_OWNERS, False]["verdict"] in ("exact", "leak")
    assert cells["plaintext", four, SINGLE_OWNERS, True]["verdict"] == "exact"
    assert cells["masked", four, SINGLE_OWNERS, True]["outcome"] == "blind"
    assert cells["masked", one, RESIDUAL, False]["leaks"]
    assert all((c["score"] is None) == (c["outcome"] != "score") == bool(c["reason"]) for c in found.cells)
    pooled = load(None, {**base, "algorithm": "globsage"}, [])
    (cell,) = grid.audit(pooled, ["masked"], [VocabularySupport], [0]).cells
    assert cell["outcome"] == "refused" and "masked needs at least 2" in cell["reason"]
