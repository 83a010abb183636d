"""Names and shapes of what this package's algorithms send follow from public facts.

Other labels, features, classes, links and splits give the same ones, but for the numbers of rows that
docs/sharp_edges.md declares.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
import small
from stand_in import stand_in

import secure_fedgraph as sfg
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core.message import CARRIER, Message
from secure_fedgraph.core.upload import Layout
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, everything

ROWS_MAY_DIFFER = {("fairgraphfl", channel) for channel in ("motifs", "prototypes", "prototype_sums")}
"""One row a motif: those that an agent has, which ``motifs`` declares, or all that were read there."""


def sent(name: str, variant: int) -> dict[tuple[str, str], set[Layout]]:
    """(client, channel) -> layouts of what the algorithm sends on made-up data of the same public facts."""
    real = small.federation(name)
    owners = {owner: stand_in(graph, real.schema, variant) for owner, graph in real.owners.items()}
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
