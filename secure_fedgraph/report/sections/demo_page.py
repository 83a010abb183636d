"""The page of a demonstration: what was read in the open, what was left under a budget, what it cost."""

from __future__ import annotations

import numpy as np

from secure_fedgraph.experiment.schema.demo import DemoResult, NodeRead, Scene
from secure_fedgraph.report import text
from secure_fedgraph.report.figures.drawn import Drawn, Table
from secure_fedgraph.report.figures.reconstructions import Bars, Panel, Words, stolen
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
        _picture(
            "open",
            f"{OPEN}: the server reads label counts and words",
            result.open,
            node,
            result.data.features,
        ),
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
            "private": private,
            "alone": alone,
            "free": free,
            "scenes": scenes,
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
        f"nodes that it named. With noise for a node's epsilon of {float(result.prices[1].epsilon):.3g}, the "
        f"same server read {left}. The joint model then scores {private}; an owner's own model scores "
        f"{alone}, a joint model without noise {free}."
    )


def _reads(scene: Scene) -> bool:
    return bool(scene.named) or any(one.read is not None for one in scene.labels)


def _under_budget(result: DemoResult) -> str:
    read = "the server still reads something" if _reads(result.protected) else "the same attacks read nothing"
    return f"{BUDGET}: {read}"


def _picture(name: str, caption: str, scene: Scene, node: NodeRead | None, words: int) -> Drawn:
    """Truth in outline, and over it what the server read."""
    first = scene.labels[0]
    read = None if first.read is None else np.array(first.read, dtype=float)
    classes = [f"class {place}" for place in range(len(first.true))]
    true = np.array(first.true, dtype=float)
    panels: list[Panel] = [Bars(f"Training nodes of {first.owner} by class", true, read, classes, "classes")]
    if node is not None:
        same = scene.node is not None and (scene.node.owner, scene.node.node) == (node.owner, node.node)
        got = np.array(scene.node.read) if scene.node and same else None
        panels.append(Words(f"Words of its node {node.node}", np.array(node.true), got, words))
    rows: list[list[object]] = [
        [f"{one.owner}, class {place}", true, "-" if one.read is None else one.read[place]]
        for one in scene.labels
        for place, true in enumerate(one.true)
    ]
    picture = stolen(f"demo-{name}", caption, panels, "the server")
    return Drawn(picture, caption, Table(["training labels", "true", "read"], rows))
