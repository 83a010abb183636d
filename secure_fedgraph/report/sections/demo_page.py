"""The page of a demonstration: what was read in the open, what was left under a budget, what it cost."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from secure_fedgraph.experiment.schema.demo import DemoResult, NodeRead, Scene
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.svg import GUESS, INK, MUTED, TRUE, draw
from secure_fedgraph.report.sections.parts import Story

OPEN, MASKS, BUDGET = "Without protection", "With masks alone", "With masks and noise"


def demo_story(result: DemoResult) -> Story:
    """What the template prints, and the two pictures of the first screen."""
    node = result.open.node
    scenes = [
        (OPEN, result.open, "leaks"),
        (MASKS, result.masked, "leaks" if result.masked.named else "nothing"),
        (BUDGET, result.protected, "leaks" if _reads(result.protected) else "nothing"),
    ]
    drawn = [
        _picture("open", f"{OPEN}: the server reads both", result.open, node, result.data.features),
        _picture("budget", _under_budget(result), result.protected, node, result.data.features),
    ]
    alone, private, free = result.prices
    return Story(
        {
            "kind": "demo",
            "title": "What a server reads of three owners, and what stops it",
            "result": result,
            "sentence": sentence(result),
            "drawn": drawn,
            "price_rows": [
                [one.name, text.epsilon(one.epsilon), text.percent(one.everybody), text.percent(one.own)]
                for one in result.prices
            ],
            "private": private,
            "alone": alone,
            "free": free,
            "scenes": [_told(name, scene, state) for name, scene, state in scenes],
            "reads": _reads(result.protected),
        },
        [one.picture for one in drawn],
    )


def sentence(result: DemoResult) -> str:
    """The whole demonstration in a few words.

    Args:
        result: as ``demo.json`` has it.
    """
    exact, owners = sum(one.read == one.true for one in result.open.labels), len(result.owners)
    whose = f"all {owners}" if exact == owners else f"{exact} of {owners}"
    right, named = text.count(result.open.right), text.count(result.open.named)
    nodes = f"all {named}" if right == named else f"{right} of the {named}"
    left = text.count(result.protected.named) + " nodes" if _reads(result.protected) else "nothing"
    alone, private, free = (text.percent(one.everybody) for one in result.prices)
    return (
        f"Without protection, the server read the label counts of {whose} owners and every word of {nodes} "
        f"nodes that it named. With noise for a node's epsilon of {_epsilon(result.prices[1].epsilon)}, the "
        f"same server read {left}. The joint model then scores {private}; an owner's own model scores "
        f"{alone}, a joint model without noise {free}."
    )


def _reads(scene: Scene) -> bool:
    return bool(scene.named) or any(one.read is not None for one in scene.labels)


def _under_budget(result: DemoResult) -> str:
    read = "the server still reads something" if _reads(result.protected) else "the server reads nothing"
    return f"{BUDGET}: {read}"


def _epsilon(value: float | str) -> str:
    return "inf" if isinstance(value, str) else f"{value:.3g}"


def _told(name: str, scene: Scene, state: str) -> dict[str, object]:
    exact = sum(one.read == one.true for one in scene.labels)
    return {
        "name": name,
        "state": state,
        "policy": scene.policy,
        "epsilon": scene.epsilon,
        "uploads": f"{scene.readable} of {scene.uploads}",
        "labels": f"{exact} of {len(scene.labels)}",
        "named": scene.named,
        "right": scene.right,
        "reasons": scene.reasons,
    }


def _picture(name: str, caption: str, scene: Scene, node: NodeRead | None, words: int) -> Drawn:
    """Truth in outline, and over it what the server read."""
    first = scene.labels[0]
    read_node = scene.node if scene is not None and scene.node and _same(scene.node, node) else None

    def paint(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, height_ratios=(2.2, 1))
        _labels(above, first.owner, first.true, first.read)
        if node is not None:
            _words(below, node, read_node, words)
        else:
            below.set_axis_off()

    rows = [
        [f"{one.owner}, class {place}", true, "-" if one.read is None else one.read[place]]
        for one in scene.labels
        for place, true in enumerate(one.true)
    ]
    alt = (
        f"Training labels of {first.owner} by class: "
        + ", ".join(str(value) for value in first.true)
        + ". The server read "
        + ("nothing." if first.read is None else ", ".join(str(value) for value in first.read) + ".")
    )
    if node is not None:
        right = len(set(read_node.read) & set(node.true)) if read_node else 0
        alt += f" Of the {len(node.true)} words of node {node.node} the server read {right}."
    picture = draw(f"demo-{name}", alt, paint, 5.2, 3.6)
    return Drawn(picture, caption, Table(["training labels", "true", "read"], rows))


def _same(one: NodeRead, other: NodeRead | None) -> bool:
    return other is not None and (one.owner, one.node) == (other.owner, other.node)


def _labels(axes: Axes, owner: str, true: list[int], read: list[int] | None) -> None:
    places = range(len(true))
    if read is not None:
        axes.bar(places, read, width=0.62, color=GUESS, label="read by the server")
    axes.bar(places, true, width=0.78, fill=False, edgecolor=TRUE, linewidth=1.6, label="true")
    axes.set_xticks(list(places), [f"class {place}" for place in places])
    axes.set_title(f"Training nodes of {owner} by class")
    axes.set_ylim(0, max(true) * 1.28)
    if read is None:
        axes.text(
            len(true) / 2 - 0.5, max(true) * 1.12, "nothing was read", ha="center", color=INK, fontsize=12
        )
    else:
        axes.legend(ncols=2, loc="upper right", fontsize=8.5, borderaxespad=0)
    axes.tick_params(length=0, labelsize=8.5)


def _words(axes: Axes, node: NodeRead, read: NodeRead | None, words: int) -> None:
    axes.vlines(node.true, 0.08, 1, color=TRUE, linewidth=1.3)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    if read is not None:
        axes.vlines(read.read, -1, -0.08, color=GUESS, linewidth=1.3)
        right = len(set(read.read) & set(node.true))
        below = f"read: {right} of {len(node.true)}"
    else:
        below = "read: none"
    axes.set_xlim(-0.015 * words, words * 1.015)
    axes.set_ylim(-1.15, 1.15)
    axes.set_yticks([0.55, -0.55], ["true", below])
    axes.set_xticks([])
    axes.set_title(f"The {len(node.true)} words of its node {node.node}, of {words:,}")
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
