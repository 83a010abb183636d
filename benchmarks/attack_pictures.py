"""The pictures of the attacks' pages: what is stolen, and what is left under what the page recommends.

    python benchmarks/attack_pictures.py [--only weights] [--out runs/pictures]   # measure, keep, draw
    python benchmarks/attack_pictures.py --draw                                   # draw what is kept
    python benchmarks/attack_pictures.py --text --only weights                    # the lines of a page

Every picture is of one run with seed 0. What an attack wrote down and its score are kept in
``benchmarks/results/attack_pictures/``, the pictures in ``docs/images/attacks/``; a test holds the pages to
what is kept.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from attack_table import control
from written_pages import options

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid import grid
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.schema import AuditResult, as_read
from secure_fedgraph.experiment.schema.audit import Target
from secure_fedgraph.experiment.schema.score_verdict import SINGLE_OWNERS
from secure_fedgraph.report.figures.ego_graphs import Sample
from secure_fedgraph.report.figures.reconstructions import Bars, Links, Panel, Words, stolen
from secure_fedgraph.report.figures.svg import VARIABLES, Picture
from secure_fedgraph.report.first_screens.reconstructions import Names, panel_of, record_of, what_is_left

ROOT = Path(__file__).resolve().parents[1]
KEPT, IMAGES = ROOT / "benchmarks/results/attack_pictures", ROOT / "docs/images/attacks"
PANELS: Mapping[str, type[Bars] | type[Words]] = {"bars": Bars, "words": Words}
READERS = {"server": "the server", "client": "an owner", "outsider": "an outsider"}
STATES = {
    "leaks": "reads single owners",
    "together": "reads all owners together, and no single one",
    "nothing": "reads nothing beyond a trivial guess",
}


@dataclass(frozen=True)
class Under:
    """A policy with its settings, over those of the scene.

    Args:
        policy: its name.
        changes: as ``--set`` has them.
    """

    policy: str
    changes: Sequence[str] = ()


@dataclass(frozen=True)
class Scene:
    """One attack before and after.

    Args:
        page: whose pictures it is part of.
        attack, adversary: who reads what.
        config: the experiment.
        before: where it reads single owners.
        after: what the page recommends against it.
    """

    page: str
    attack: str
    adversary: str
    config: Mapping[str, Any]
    before: Under
    after: Under


FREE = {"data": "cora"}
SAGE = {"algorithm": "fedsage", **FREE, "rounds": 1}
PLUS = {"algorithm": "fedsage+", **FREE, "rounds": 1}
GLASU = {"algorithm": "glasu", **FREE, "rounds": 4}
FAIR = {"algorithm": "fairgraphfl", "data": "proteins", "rounds": 1}
EGO = {"algorithm": "fedego", **FREE, "rounds": 5}
NOISE = ("protection.norm=1.0", "protection.multiplier=1.0")
FULL, ONE = control("a4-label-counts"), control("a2-single-sample")
SCORED = {**SAGE, "clients": 10, "rounds": 10, "evaluation": "in_band"}
LISTS = control("d1-index-lists")
SCENES = (
    Scene("weights", "a4-label-counts", "server", SAGE, Under("plaintext", FULL),
          Under("distributed_dp", (*FULL, *NOISE))),
    Scene("weights", "a2-single-sample", "server", SAGE, Under("plaintext", ONE),
          Under("distributed_dp", (*ONE, *NOISE))),
    Scene("mashes", "b1-mash-single", "server", EGO, Under("plaintext", control("b1-mash-single")),
          Under("masked", ("training.mash=across", "training.hidden=[64,64]", "training.epochs=1"))),
    Scene("mashes", "b2-mash-labels", "server", EGO, Under("plaintext", control("b2-mash-labels")),
          Under("masked", (*control("b4-mash-dictionary"), "training.mash=across"))),
    Scene("neighgen", "c2-neighgen-batch", "client", PLUS,
          Under("plaintext", control("c2-neighgen-batch", 1)),
          Under("masked", ("training.feedback=prototypes", "training.generator_epochs=2"))),
    Scene("vertical", "d1-index-lists", "server", GLASU, Under("plaintext", LISTS),
          Under("masked", (*LISTS, "training.sampler=public"))),
    Scene("vertical", "d2-subtracted-rows", "client", GLASU,
          Under("plaintext", control("d2-subtracted-rows")),
          Under("masked", ("training.sampler=public",))),
    Scene("prototypes", "e3-round-differencing", "server", {**FAIR, "algorithm": "fairgraphfl-bounded"},
          Under("plaintext", control("e3-round-differencing")),
          Under("local_dp", (*control("e3-round-differencing"), "protection.norm=1.0",
                             "protection.multiplier=4.0"))),
    Scene("rounds", "f1-cohort-differencing", "server", SAGE,
          Under("masked", control("f1-cohort-differencing")),
          Under("distributed_dp", (*control("f1-cohort-differencing"), *NOISE, "protection.quorum=7"))),
    Scene("released", "g7-link-teller", "outsider", {**SAGE, "rounds": 20}, Under("plaintext"),
          Under("local_dp", ("protection.norm=1.0", "protection.multiplier=4.0"))),
    Scene("scores", "i1-test-sizes", "server", SCORED,
          Under("plaintext"), Under("masked")),
    Scene("scores", "i2-constant-answers", "server", SCORED,
          Under("plaintext"), Under("masked")),
)  # fmt: skip


@dataclass(frozen=True)
class Half:
    """What is drawn of one scene on one side.

    Args:
        panel: the drawing's values.
        state: ``leaks``, ``together`` or ``nothing``.
        scores: what became of both aims, a sentence each.
    """

    panel: Mapping[str, Any]
    state: str
    scores: Mapping[str, str] = field(default_factory=dict)


def audited(scene: Scene, under: Under, out: Path) -> AuditResult:
    """One run with one attack on it."""
    chosen = load(None, {**scene.config, "policy": under.policy}, list(under.changes))
    kinds = [ATTACKS[scene.attack]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing protects it is the point
        made = grid.audit(chosen, [under.policy], kinds, [0], out, controls=(), effort=60, workers=1)
    for row in made.not_run:
        raise SystemExit(f"{scene.page}: {row['reason']}")
    value = {"schema": "secure-fedgraph/audit/1", "config": {}, "cells": made.cells}
    return as_read(AuditResult, {**value, "reconstructions": made.reconstructions})


def halves(scene: Scene, out: Path) -> tuple[Half, Half]:
    """The scene before and after.

    Raises:
        SystemExit: where nothing is stolen, or what was stolen cannot be drawn.
    """
    before, after = (
        audited(scene, under, out / f"{scene.page}-{scene.attack}-{name}")
        for name, under in (("before", scene.before), ("after", scene.after))
    )
    mine, there = (
        [cell for cell in one.cells if cell.adversary == scene.adversary] for one in (before, after)
    )
    cell = next(c for c in mine if c.settings.aim == SINGLE_OWNERS)
    record = record_of(before, cell)
    panel = None if record is None else panel_of(record, Names())
    if record is None or panel is None or not cell.leaks:
        raise SystemExit(f"{scene.page}: {scene.attack} has nothing to draw: {cell.outcome} {cell.reason}")
    left, state = what_is_left(after, record, there, Names())
    return (
        Half(as_json(panel), "leaks", scores(mine)),
        Half(as_json(left), state, scores(there)),
    )


def scores(cells: Sequence[Any]) -> dict[str, str]:
    """What became of each aim, in words."""
    return {
        cell.settings.aim: f"{cell.score:.3f} {cell.metric}, trivial {cell.baseline:.3f}"
        if cell.outcome == "score"
        else f"{cell.outcome}: {cell.reason}"
        for cell in cells
    }


def as_json(panel: Panel) -> dict[str, Any]:
    """A panel's values, so that it can be drawn again."""
    if isinstance(panel, Links):
        sample = panel.sample
        graph = {
            "centre": sample.centre,
            "nodes": list(sample.nodes),
            "true": [list(link) for link in sorted(sample.true)],
            "guess": [list(link) for link in sorted(sample.guess)],
            "left_out": sample.left_out,
        }
        return {
            "kind": "links",
            "title": panel.title,
            "owner": sample.owner,
            "graph": graph,
            "read": panel.read,
        }
    kind = next(name for name, made in PANELS.items() if isinstance(panel, made))
    values = {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in asdict(panel).items()  # type: ignore[call-overload]
    }
    return {"kind": kind, **values}


def from_json(values: Mapping[str, Any]) -> Panel:
    """The panel that :func:`as_json` wrote down."""
    given = dict(values)
    kind = given.pop("kind")
    if kind == "links":
        target = Target(owner=given["owner"], true=None, guess=None, graph=given["graph"])
        return Links(given["title"], Sample(target), given["read"])
    for key in ("true", "read"):
        given[key] = None if given[key] is None else np.asarray(given[key])
    made: Panel = PANELS[kind](**given)
    return made


def measured(page: str, out: Path) -> dict[str, Any]:
    """What is kept of a page."""
    kept = []
    for scene in (one for one in SCENES if one.page == page):
        before, after = halves(scene, out)
        kept.append({**asdict(scene), "stolen": asdict(before), "left": asdict(after)})
    return {"page": page, "scenes": kept}


def pictures(kept: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """File name -> the file, and what it shows in words: what is stolen, and what is left."""
    made = {}
    for side, where in (("stolen", "before"), ("left", "after")):
        scenes = kept["scenes"]
        who = " and ".join(dict.fromkeys(READERS[one["adversary"]] for one in scenes))
        caption = "; ".join(_caption(one, side, where) for one in scenes)
        picture = stolen(
            f"{kept['page']}-{side}", caption, [from_json(one[side]["panel"]) for one in scenes], who
        )
        made[f"{kept['page']}-{side}.svg"] = (as_file(picture), picture.alt)
    return made


def as_file(picture: Picture) -> str:
    """A picture as an SVG file with its words as its title, on a white plate."""
    head, body = picture.svg.split(">", 1)
    box = re.search(r'viewBox="([^"]+)"', head)
    left, top, width, height = (float(one) for one in box[1].split()) if box else (0.0, 0.0, 1.0, 1.0)
    for colour, variable in VARIABLES.items():
        body = body.replace(f"var({variable})", colour)
    plate = f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6" fill="white"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}pt" height="{height:g}pt" role="img" '
        f'viewBox="{left:g} {top:g} {width:g} {height:g}" font-family="DejaVu Sans, Verdana, sans-serif">'
        f"<title>{escape(picture.alt)}</title>{plate}{body}\n"
    )


def _caption(scene: Mapping[str, Any], side: str, where: str) -> str:
    code = scene["attack"].split("-")[0].upper()
    who, state = READERS[scene["adversary"]], STATES[scene[side]["state"]]
    return f"{code} under {scene[where]['policy']}: {who} {state}"


def lines(kept: Mapping[str, Any]) -> str:
    """The pictures as a page shows them."""
    return "\n".join(f"![{alt}](../images/attacks/{name})" for name, (_, alt) in pictures(kept).items())


def main() -> None:
    """Measures what is asked for, and draws what is kept."""
    parser = options(__doc__, rows=False)
    parser.add_argument("--only", default="", help="a part of a page's name")
    parser.add_argument("--out", type=Path, default=Path("runs/pictures"), help="folder of the runs")
    parser.add_argument("--images", type=Path, default=IMAGES, help="folder of the pictures")
    parser.add_argument("--draw", action="store_true", help="draw what is kept, run nothing")
    parser.add_argument(
        "--text", action="store_true", help="print what pages say of it, run and draw nothing"
    )
    asked = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    asked.images.mkdir(parents=True, exist_ok=True)
    for page in dict.fromkeys(one.page for one in SCENES if asked.only in one.page):
        path = KEPT / f"{page}.json"
        if not (asked.draw or asked.text):
            path.write_text(json.dumps(measured(page, asked.out), indent=1, default=list) + "\n")
        kept = json.loads(path.read_text())
        if asked.text:
            print(lines(kept))
            continue
        for name, (file, alt) in pictures(kept).items():
            (asked.images / name).write_text(file)
            print(f"{asked.images / name}: {len(file):,} bytes. {alt}")


if __name__ == "__main__":
    main()
