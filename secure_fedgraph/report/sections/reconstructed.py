"""True against reconstructed, side by side: what an attack wrote down and what was there."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from secure_fedgraph.report import text
from secure_fedgraph.report.figures import plots
from secure_fedgraph.report.figures.ego_graphs import ego_graphs
from secure_fedgraph.report.figures.feature_heatmaps import feature_heatmaps
from secure_fedgraph.report.figures.svg import Picture
from secure_fedgraph.report.grouping import AS_CONFIGURED, EACH, subject_of

VOCABULARY, LABELS, FEATURES = "vocabulary", "label shares", "node features"
LINKS = ("links from answers", "links from lists", "links by likeness", "links of embeddings")
ROWS = (
    "rows of another owner",
    "words from embeddings",
    "features of neighbours",
    "training node",
    "mashes under repeated noise",
    "motifs of one graph",
    "graph embeddings",
    "the graph that came or went",
    "mean update",
    "first update",
    "update without its noise",
)
MOST_NODES = 4
MOST_OWNERS = 5  # drawn; the numbers of all stand in audit.json


def reconstructed(guesses: Sequence[dict[str, Any]], policies: Sequence[str]) -> list[dict[str, Any]]:
    """A section for each attack whose guesses can be drawn; the first seed is shown.

    Returns:
        sections with ``attack``, ``text``, ``pictures`` and, for each picture, ``captions`` and ``tables``.
    """
    sections = []
    for attack in dict.fromkeys(str(r.get("attack")) for r in guesses):
        mine = [r for r in guesses if r.get("attack") == attack and r.get("targets")]
        mine = [r for r in mine if r.get("seed") == mine[0].get("seed")]
        mine.sort(key=lambda r: policies.index(r["policy"]) if r.get("policy") in policies else 99)
        kind = mine[0].get("kind") if mine else None
        if kind in MAKERS and (kind != FEATURES or not attack.endswith("-columns")):
            sections.append(
                {
                    "attack": attack,
                    "code": attack.split("-")[0].upper(),
                    "subject": subject_of(mine[0]),
                    "kind": kind,
                    "seed": mine[0].get("seed"),
                    **MAKERS[kind](attack.split("-")[0], mine),
                }
            )
    return [s for s in sections if s["pictures"]]


def _vocabulary(code: str, guesses: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Strips of words, owner by owner; where only the union was read, it is compared with each owner."""
    guesses = [r for r in guesses if r.get("variant", AS_CONFIGURED) == AS_CONFIGURED]
    each = [r for r in guesses if r.get("aim") == EACH]
    opened = {r["policy"] for r in each}
    truth = each[0]["targets"] if each else []
    section = _empty()
    for policies, record in _alike(each):
        owners = [_finite(t) for t in record["targets"][:MOST_OWNERS]]
        alt = f"{text.listed(policies)}: {_strip_words(owners)}"
        caption = f"{text.listed(policies)}: what the attack wrote down about each owner"
        _add(section, plots.vocabulary(_stem(code, policies[0], "each"), _axis(owners), owners, alt), caption)
        section["tables"].append(_strip_table(owners))
    for policies, record in _alike(
        [r for r in guesses if r.get("aim") != EACH and r["policy"] not in opened]
    ):
        union = record["targets"][0]
        fits = truth and all(len(t["true"]) == len(union["guess"]) for t in truth)
        held = [{**t, "guess": union["guess"]} for t in truth] if fits else record["targets"]
        owners = [_finite(t) for t in held[:MOST_OWNERS]]
        caption = f"{text.listed(policies)}: all that is left is the union of all owners"
        if fits:
            caption += ", here compared with each of them"
        alt = f"{text.listed(policies)}: the union of all owners as a guess; {_strip_words(owners)}"
        _add(
            section, plots.vocabulary(_stem(code, policies[0], "union"), _axis(owners), owners, alt), caption
        )
        section["tables"].append(_strip_table(owners))
    return section


def _labels(code: str, guesses: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Bars by class, as configured beside the attack's best settings, on one scale."""
    section = _empty()
    opened = {r["policy"] for r in guesses if r.get("aim") == EACH}
    for aim, name in ((EACH, "each"), (None, "union")):
        mine = [
            r
            for r in guesses
            if (r.get("aim") == EACH) == (aim == EACH) and (aim == EACH or r["policy"] not in opened)
        ]
        if not mine:
            continue
        top = 1.3 * max((v or 0) for r in mine for t in r["targets"] for v in t["true"]) or 1.0
        for variant in dict.fromkeys(r.get("variant", AS_CONFIGURED) for r in mine):
            for policies, record in _alike([r for r in mine if r.get("variant", AS_CONFIGURED) == variant]):
                owners = [_finite(t) for t in record["targets"][:MOST_OWNERS]]
                usual = variant == AS_CONFIGURED
                how = AS_CONFIGURED if usual else "in the settings that suit the attack best"
                caption = f"{text.listed(policies)}, {how}"
                alt = f"{caption}: {_bar_words(owners)}"
                stem = _stem(code, policies[0], name if usual else f"{name}-control")
                classes = [str(i) for i in range(len(owners[0]["true"]))]
                _add(section, plots.label_counts(stem, owners, top, classes, alt), caption)
                section["tables"].append(_bar_table(owners))
    return section


def _features(code: str, guesses: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Strips of words, node by node, in the first setting in which an adversary got a node right.

    Adversaries that read the same share a picture.
    """
    section = _empty()
    drawn: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for record in sorted(guesses, key=lambda r: r.get("variant", AS_CONFIGURED) != AS_CONFIGURED):
        place = (str(record.get("policy")), str(record.get("aim")), str(record.get("adversary", "server")))
        if place not in drawn and any(_right(node) for node in _nodes(record)):
            drawn[place] = [record]
    for place, (record, *_) in list(drawn.items()):
        for other in (p for p in drawn if p[:2] == place[:2] and p != place):
            if drawn[other] and drawn[place] and record["targets"] == drawn[other][0]["targets"]:
                drawn[place] += drawn[other]
                drawn[other] = []
    for (policy, aim, adversary), records in drawn.items():
        if not records:
            continue
        nodes, record = _nodes(records[0]), records[0]
        who = text.listed(text.named(text.ADVERSARIES, r.get("adversary", "server")) for r in records)
        what = "single owners' answers" if aim == EACH else "the sum of all owners' answers"
        caption = f"{policy}: nodes that {who} read{'' if len(records) > 1 else 's'} from {what}"
        if record.get("variant", AS_CONFIGURED) != AS_CONFIGURED:
            caption += f" ({record['variant']})"
        if record.get("stopped"):
            caption += f"; {record['stopped']}"
        stem = _stem(code, policy, adversary, "each" if aim == EACH else "union")
        axis, strips = _some_words(nodes)
        picture = plots.vocabulary(stem, axis, strips, f"{caption}: {_strip_words(nodes)}")
        _add(section, picture, caption)
        section["tables"].append(_strip_table(nodes))
    return section


def _right(node: dict[str, Any]) -> bool:
    return bool(((node["true"] > 0) == (node["guess"] > 0)).all())


def _nodes(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A few recovered nodes, from every target in turn, as strips have them."""
    nodes = []
    for rank in range(MOST_OWNERS):
        for target in record["targets"]:
            if rank < min(len(target["true"]), len(target["guess"])):
                row = {"true": target["true"][rank], "guess": target["guess"][rank]}
                nodes.append(_finite({**row, "owner": f"{target['owner']}, node {rank + 1}"}))
    return nodes[:MOST_NODES]


MAKERS: dict[str, Callable[[str, Sequence[dict[str, Any]]], dict[str, Any]]] = {
    VOCABULARY: _vocabulary,
    LABELS: _labels,
    FEATURES: _features,
    "nodes found by an oracle": _features,
    **dict.fromkeys(LINKS, ego_graphs),
    **dict.fromkeys(ROWS, feature_heatmaps),
}


def _empty() -> dict[str, Any]:
    return {"pictures": [], "captions": [], "tables": []}


def _add(section: dict[str, Any], picture: Picture, caption: str) -> None:
    section["pictures"].append(picture)
    section["captions"].append(caption)


def _stem(*parts: str) -> str:
    """A name that can stand in a file system and in an id, whatever the policy is called."""
    return "-".join(re.sub(r"[^A-Za-z0-9_]+", "-", part).strip("-") or "x" for part in parts)


def _alike(records: Sequence[dict[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """Policies whose guesses round to the same picture share it."""
    groups: list[tuple[list[str], dict[str, Any]]] = []
    for record in records:
        for policies, first in groups:
            if _same(first["targets"], record["targets"]):
                policies.append(str(record["policy"]))
                break
        else:
            groups.append(([str(record["policy"])], record))
    return groups


def _same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    return len(one) == len(other) and all(
        a["owner"] == b["owner"]
        and len(a["guess"]) == len(b["guess"])
        and np.allclose(_array(a["guess"]), _array(b["guess"]), atol=0.5, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


def _array(values: Sequence[Any]) -> np.ndarray:
    return np.array([np.nan if text.real(v) is None else v for v in values], dtype=float)


def _finite(target: dict[str, Any]) -> dict[str, Any]:
    return {
        "owner": str(target["owner"]),
        "true": np.nan_to_num(_array(target["true"])),
        "guess": np.nan_to_num(_array(target["guess"])),
    }


def _axis(owners: Sequence[dict[str, Any]]) -> str:
    return f"words of the data set, 1 to {len(owners[0]['true']):,}"


def _some_words(nodes: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The axis and the strips of nodes: a node has a handful of words, too thin to be seen among thousands.

    So only the words are drawn that one of the nodes has or was guessed to have, if they are few.
    """
    used = np.any([node[key] > 0 for node in nodes for key in ("true", "guess")], axis=0)
    if 4 * used.sum() >= len(used) or not used.any():
        return _axis(nodes), nodes
    axis = f"the {used.sum():,} words true or guessed here, of {len(used):,} in the data set"
    return axis, [{**node, **{key: node[key][used] for key in ("true", "guess")}} for node in nodes]


def _strip_table(owners: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = []
    for owner in owners:
        true, guess = _array(owner["true"]) > 0, _array(owner["guess"]) > 0
        rows.append(
            [
                str(owner["owner"]),
                f"{true.sum():,}",
                f"{guess.sum():,}",
                f"{(guess & ~true).sum():,}",
                f"{(true & ~guess).sum():,}",
                text.percent((true == guess).mean(), 2),
            ]
        )
    return {
        "heads": ["owner", "words it holds", "words guessed", "guessed wrongly", "missed", "words right"],
        "rows": rows,
    }


def _strip_words(owners: Sequence[dict[str, Any]]) -> str:
    parts = [f"{row[0]} {row[5]} of the words right" for row in _strip_table(owners)["rows"]]
    return f"{text.listed(parts)}."


def _bar_table(owners: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rows = [
        [str(o["owner"]), what, *(text.count(v) for v in o[key])]
        for o in owners
        for what, key in (("true", "true"), ("guessed", "guess"))
    ]
    return {"heads": ["owner", "", *(f"class {i}" for i in range(len(owners[0]["true"])))], "rows": rows}


def _bar_words(owners: Sequence[dict[str, Any]]) -> str:
    parts = [
        f"{o['owner']} {np.abs(o['true'] - o['guess']).sum():,.0f} labels off of {o['true'].sum():,.0f}"
        for o in owners
    ]
    return f"{text.listed(parts)}."
