"""Names and shapes of what this package's algorithms send follow from public facts.

Other labels, features, classes, links and splits give the same ones, but for the numbers of rows that
docs/sharp_edges.md declares.
"""

from __future__ import annotations

import pytest
import small

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.policies import plaintext
from secure_fedgraph.protocol.channel import Channel, Reveal
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import Prepared, prepare
from secure_fedgraph.running.rehearsal import rehearse

ROWS_MAY_DIFFER = {("fairgraphfl", channel) for channel in ("motifs", "prototypes", "prototype_sums")}
"""One row a motif: those that an agent has, which ``motifs`` declares, or all that were read there."""


def prepared(name: str) -> Prepared:
    options = RunOptions(rounds=2)
    return prepare(small.algorithm(name), small.federation(name), plaintext(), options)


@pytest.mark.parametrize("name", list(ALGORITHMS.own))
def test_layouts_do_not_depend_on_data(name: str):
    run = prepared(name)
    one, other = (rehearse(run, variant=variant) for variant in (0, 1))
    assert one.keys() == other.keys()
    asked: list[Channel] = [c for c in run.algorithm.in_use if c.to != "referee"]
    assert not one or {channel for _, channel in one} <= {c.name for c in asked}
    assert bool(one) is any(c.reveal is not Reveal.NOTHING for c in asked)
    for (client, channel), layouts in one.items():
        if (name, channel) in ROWS_MAY_DIFFER:
            assert {found.fields for found in layouts} == {f.fields for f in other[client, channel]}
        else:
            assert layouts == other[client, channel], (client, channel)
