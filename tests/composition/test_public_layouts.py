"""Names and shapes of what this package's algorithms send follow from public facts.

Other labels, features, classes, links and splits give the same ones, but for the numbers of rows that
docs/sharp_edges.md declares.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
import small
import torch
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core.message import CARRIER, Message
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.graph.sample.links import EDGE_FIELDS
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, everything

ROWS_MAY_DIFFER = {("fairgraphfl", channel) for channel in ("motifs", "prototypes", "prototype_sums")}
"""One row a motif: those that an agent has, which ``motifs`` declares, or all that were read there."""


def changed(graph: Data) -> Data:
    """Other features, classes, links and ratings, and another split, between as many nodes and items."""
    made = graph.clone()
    if "x" in graph:
        made.x = graph.x.roll(1, 0) * (torch.arange(len(graph.x)) % 3 > 0)[:, None]
    if "y" in graph:
        top = max(int(graph.y.max()), 1)  # of classes there is one less
        made.y = (
            graph.y.roll(1, 0) if graph.y.is_floating_point() else graph.y.where(graph.y < 1, graph.y % top)
        )
    if "rating" in graph:
        made.rating = graph.rating.roll(1)
    elif "pairs" not in graph:
        kept = graph.edge_index.sum(0) % 3 > 0
        for key in ("edge_index", *(key for key in EDGE_FIELDS if key in graph)):
            made[key] = graph[key][..., kept] if key == "edge_index" else graph[key][kept]
    moved = graph.train_mask & (torch.arange(len(graph.train_mask)) % 4 == 0)
    made.train_mask, made.val_mask = graph.train_mask & ~moved, graph.val_mask | moved
    return made


def sent(name: str, variant: int) -> dict[tuple[str, str], set[Layout]]:
    """(client, channel) -> layouts of what is sent on data, or on others of the same public facts."""
    real = small.federation(name)
    owners = {owner: changed(graph) if variant else graph for owner, graph in real.owners.items()}
    federation = replace(real, owners=owners)
    run = sfg.train(
        small.algorithm(name), federation, "plaintext", rounds=2, keep=everything, evaluation="at_home"
    )
    found: dict[tuple[str, str], set[Layout]] = defaultdict(set)
    for one in run.transcript.sent:
        if one.sender not in (SERVER, REFEREE) and not one.channel.startswith(CARRIER):
            tree = Message.from_bytes(run.transcript.body(one.number)).tree()
            if "layout" in tree:
                found[one.sender, one.channel].add(Layout.from_text(tree["layout"]))
    return found


@pytest.mark.parametrize("name", list(ALGORITHMS.own))
def test_layouts_do_not_depend_on_data(name: str):
    one, other = (sent(name, variant) for variant in (0, 1))
    assert one.keys() == other.keys()
    for (client, channel), layouts in one.items():
        if (name, channel) in ROWS_MAY_DIFFER:
            assert {found.fields for found in layouts} == {f.fields for f in other[client, channel]}
        else:
            assert layouts == other[client, channel], (client, channel)
