"""Links as items: a graph whose rows are links, so that what learns of nodes learns of links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.splits import MASKS, stratified
from secure_fedgraph.graph.sample.links import distinct_pairs, undirected_links
from secure_fedgraph.graph.schema import NO_EDGE_ATTR, Schema, Task
from secure_fedgraph.graph.seeds import sub_seed

PAIRS, ENDS, MESSAGES, OWN, WRONG, LEARNED = "pairs", "ends", "messages", "own", "wrong", "learned"
"""Fields of a graph of pairs: each row's two nodes ``[2, rows]``; features of the nodes ``[N, F]``; the links
that a network reads ``[2, M]``; columns of the links themselves ``[rows, D]``; of links that are there or not
the wrong ones for each validation and test row ``[2, tested, RANKS]``; and, in a question about other pairs,
the training rows of the graph that it was made of."""
RANKS = 50
"""Wrong links that a right one is ranked among."""
TRAIN, VAL = 0.6, 0.2
"""Shares of links that are trained on and chosen by; the rest is test."""
WIDE, PROJECTED = 200, 64
"""Nodes of more features than the first are looked at along so many random directions, which are public."""
AT_ONCE = 2**22
"""Numbers of features that are compared at once."""
FEW = 2**12
"""Nodes of which all are compared with all, where more pairs than that are asked about."""
ASKED_AT_ONCE = 2**16
"""Pairs that a model is asked about at once."""
COSINE = 3.0
"""What the cosine of two nodes' features counts beside one other column: of links it says most."""
_DIRECTIONS = 2024


def paired(
    graphs: Mapping[str, Data], schema: Schema, seed: int
) -> tuple[dict[str, Data], Schema, list[str]]:
    """Every owner's graph as a graph of pairs: its rows are links.

    A row is of one link alone: what its two nodes' features and its own columns say. So with one link one row
    goes, and no other row changes. How many rows there are is public, and stays. The rows are

    - of ``link-classes`` the links of ``edge_label_index`` that have a class in ``edge_label``, with what
      ``edge_attr`` and ``edge_weight`` say of them in ``edge_index``;
    - of ``links`` the links themselves, and as many wrong ones as there are to train on. A wrong link is
      drawn uniformly from all pairs of two of the owner's nodes, whichever links there are, so that none but
      its own row says that there is a link: a wrong one may be one.

    Networks read ``messages``, which are links that are in no validation and in no test row.

    Args:
        graphs: by name; each with ``x`` and ``edge_index``.
        schema: of them; ``task`` is one of links.
        seed: of splits and wrong links.

    Returns:
        The graphs of pairs, their schema, and notes on what is not used.

    Raises:
        BadInput: for an owner without a link to train on, or links without a class.
    """
    for name, graph in graphs.items():
        _check(graph, name, schema.task)
    directed = any(_is_directed(graph) for graph in graphs.values())
    classed = schema.task == Task.LINK_CLASSES
    fields = [key for key in ("edge_attr", "edge_weight") if key in schema.edge_fields]
    columns = max(schema.edge_attr, 1) if schema.edge_attr != NO_EDGE_ATTR else 0
    own = columns + schema.edge_weight if classed else 0
    made = replace(
        schema,
        features=_width(schema.features, own, directed),
        classes=schema.classes if classed else 2,
        edge_weight=False,
        edge_attr=NO_EDGE_ATTR,
        ends=schema.features,
        own=own,
        directed=directed,
    )
    notes = []
    if fields and not classed:
        notes.append(
            f"{' and '.join(fields)} {'are' if len(fields) > 1 else 'is'} not used: what is no link has none"
        )
    found = {}
    for number, (name, graph) in enumerate(graphs.items()):
        one = _classed if classed else _linked
        found[name], said = one(graph, name, made, sub_seed(seed, f"links/{number}"))
        notes += said
        if not bool(found[name].train_mask.any()):
            raise BadInput(
                f"{name} has no link to train on (of {graph.edge_index.shape[1]} in edge_index): use fewer "
                "owners or another seed"
            )
    if not any(bool(graph.test_mask.any()) for graph in found.values()):
        raise BadInput(
            "no owner has a link to test on: give edge_label to more links, or a test_mask to some"
        )
    return found, made, notes


def chosen(graph: Data, rows: Tensor) -> Data:
    """Some rows of a graph of pairs, for a network: with all nodes, and without what a row says itself."""
    parts = {PAIRS: graph[PAIRS][:, rows], OWN: graph[OWN][rows]}
    return Data(**parts, **{key: graph[key] for key in (ENDS, MESSAGES)})


def one_alone(graph: Data, row: int) -> Data:
    """A graph of one tested row, with the nodes that it and its wrong links have, and without messages."""
    asked = graph[PAIRS][:, row : row + 1]
    if WRONG in graph:
        place = int((graph.val_mask | graph.test_mask)[:row].sum())
        asked = torch.cat([asked, graph[WRONG][:, place]], dim=1)
    nodes, ends = asked.unique(return_inverse=True)
    made = Data(x=graph.x[row : row + 1], edge_index=graph.edge_index[:, :0], y=graph.y[row : row + 1])
    none = torch.zeros(1, dtype=torch.bool)
    made.train_mask, made.val_mask, made.test_mask = none, none, ~none
    made[PAIRS], made[OWN], made[ENDS] = ends[:, :1], graph[OWN][row : row + 1], graph[ENDS][nodes]
    made[MESSAGES], made[LEARNED] = graph[MESSAGES][:, :0], graph.x[:0]
    if WRONG in graph:
        made[WRONG] = ends[:, 1:].reshape(2, 1, RANKS)
    return made


def learned(graph: Data) -> Tensor:
    """The rows that a model was trained on, also where a graph asks about other pairs: ``[n, width]``."""
    rows: Tensor = graph[LEARNED] if LEARNED in graph else graph.x[graph.train_mask]
    return rows


def ranked(says: Callable[[Data], Tensor], graph: Data, schema: Schema) -> Tensor:
    """Scores of links and of the wrong ones drawn for each, ``[rows, 1 + RANKS]``, the right one first.

    Rows outside of validation and test have none drawn, and zeros.

    Args:
        says: a graph of pairs -> outputs of its rows, ``[rows, 2]``.
        graph: the owner's.
        schema: of it.
    """

    def margins(outputs: Tensor) -> Tensor:
        return outputs[:, 1] - outputs[:, 0]

    scores = torch.zeros(len(graph.y), 1 + RANKS)
    tested = _tested(graph)
    scores[tested, 0] = margins(says(graph))[tested]
    wrong = graph[WRONG].flatten(1)
    parts = [margins(says(_asked(graph, some, schema))) for some in wrong.split(ASKED_AT_ONCE, dim=1)]
    scores[tested, 1:] = torch.cat(parts).reshape(-1, RANKS) if len(tested) else scores[tested, 1:]
    return scores


def _asked(graph: Data, pairs: Tensor, schema: Schema) -> Data:
    """A question about other pairs of the same nodes."""
    own = torch.zeros(pairs.shape[1], schema.own)
    nothing = torch.zeros(2, 0, dtype=torch.long)
    made = Data(x=_rows(graph[ENDS], pairs, own, schema.directed), edge_index=nothing)
    for key, value in ((PAIRS, pairs), (OWN, own), (LEARNED, learned(graph))):
        made[key] = value
    for key in (ENDS, MESSAGES):
        made[key] = graph[key]
    return made


def _tested(graph: Data) -> Tensor:
    rows: Tensor = (graph.val_mask | graph.test_mask).nonzero().flatten()
    return rows


def _check(graph: Data, name: str, task: str) -> None:
    label = graph.get("edge_label")
    if int(graph.num_nodes or 0) < 2:
        raise BadInput(f"{name} has one node, and a link has two: give it more, or use fewer owners")
    if task == Task.LINKS and label is not None:
        raise BadInput(
            f"{name}: edge_label beside task = {str(Task.LINKS)!r}, of which the links of edge_index are the "
            f"answers: leave edge_label out, or give task={str(Task.LINK_CLASSES)!r}"
        )
    if task == Task.LINK_CLASSES and not isinstance(label, Tensor):
        raise BadInput(f"{name}: task = {str(Task.LINK_CLASSES)!r} needs edge_label, a class for each link")
    ends = graph.get("edge_label_index", graph.edge_index)
    if label is not None and ends.shape != (2, len(label)):
        raise BadInput(
            f"{name}: edge_label has {len(label)} classes for {ends.shape[1]} links of edge_label_index: "
            "give one each"
        )


def _linked(graph: Data, name: str, schema: Schema, seed: int) -> tuple[Data, list[str]]:
    """Rows of links that are there, and of wrong ones to train on."""
    nodes = int(graph.num_nodes or 0)
    links = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]]
    loops = graph.edge_index.shape[1] - links.shape[1]
    right = distinct_pairs(links) if schema.directed else undirected_links(links)
    # a coin of a link's own two ends, so that no link decides in which part another is
    coins = torch.rand(2, nodes, generator=_generator(seed, "split"), dtype=torch.float64)
    coin = (coins[0, right[0]] + coins[1, right[1]]) % 1.0
    train, val = coin < TRAIN, (coin >= TRAIN) & (coin < TRAIN + VAL)
    false = torch.zeros(int(train.sum()), dtype=torch.bool)
    y = torch.cat([torch.ones(len(coin)), torch.zeros(len(false))]).long()
    masks = (torch.cat([train, ~false]), torch.cat([val, false]), torch.cat([~train & ~val, false]))
    pairs = torch.cat([right, _drawn(nodes, len(false), _generator(seed, "training"))], dim=1)
    made = _made(graph, pairs, torch.zeros(len(y), 0), y, masks, schema)
    # by its own two ends, so that no link decides which wrong ones another stands among
    coins = torch.randint(nodes * (nodes - 1), (2, nodes), generator=_generator(seed, "wrong"))
    steps = torch.randint(nodes * (nodes - 1), (RANKS,), generator=_generator(seed, "ranks"))
    source, target = pairs[:, _tested(made)]
    made[WRONG] = _pair(nodes, coins[0, source, None] + coins[1, target, None] + steps)
    return made, [f"{name}: {loops} links of a node to itself are not used"] if loops else []


def _classed(graph: Data, name: str, schema: Schema, seed: int) -> tuple[Data, list[str]]:
    """Rows of links that have a class."""
    label, ends = graph.edge_label, graph.get("edge_label_index", graph.edge_index)
    kept, notes = label >= 0, []
    if not schema.directed and _is_symmetric(ends):  # each stands in both directions, with one class
        twice = kept & (ends[0] > ends[1])
        kept &= ~twice
        notes.append(f"{name}: {int(twice.sum())} links stand in both directions and are used once")
    own, missing = _own_columns(graph, ends, schema)
    if missing:
        notes.append(
            f"{name}: {missing} of {len(label)} links of edge_label_index are not in edge_index, so their "
            "own columns are 0"
        )
    given = [graph.get(key) for key in MASKS]
    if all(one is not None and one.shape == label.shape for one in given):
        masks = tuple(one[kept] for one in given)
    else:
        masks = stratified(label[kept], sub_seed(seed, "split"), TRAIN, VAL)
    return _made(graph, ends[:, kept], own[kept], label[kept], masks, schema), notes


def _made(
    graph: Data, pairs: Tensor, own: Tensor, y: Tensor, masks: tuple[Tensor, ...], schema: Schema
) -> Data:
    nothing = torch.zeros(2, 0, dtype=torch.long)
    made = Data(x=_rows(graph.x, pairs, own, schema.directed), edge_index=nothing, y=y)
    for key, mask in zip(MASKS, masks, strict=True):
        made[key] = mask
    made[PAIRS], made[OWN], made[ENDS] = pairs, own, graph.x
    held_out = pairs[:, _tested(made)]
    if not schema.directed:
        held_out = torch.cat([held_out, held_out.flip(0)], dim=1)
    nodes = int(graph.num_nodes or 0)
    read = ~torch.isin(_keys(graph.edge_index, nodes), _keys(held_out, nodes))
    made[MESSAGES] = graph.edge_index[:, read]
    return made


def _width(features: int, own: int, directed: bool) -> int:
    """Columns of a row."""
    blocks = (2 * PROJECTED if features > WIDE else 3 * features) + (
        PROJECTED if directed and features > WIDE else 0
    )
    return 1 + blocks + own + 1


def _rows(x: Tensor, pairs: Tensor, own: Tensor, directed: bool) -> Tensor:
    """What pairs look like, each by its two nodes and its own columns alone: ``[n, width]``.

    The cosine of the two nodes' features; their products; how far apart they are and their sums, or where
    direction counts the features of both, first the source's; the own columns; and a constant.
    """
    step, wide = max(1, AT_ONCE // x.shape[1]), x.shape[1] > WIDE
    lengths = torch.cat([some.float().norm(dim=1) for some in x.split(step)]).clamp(min=1e-12)
    if wide and len(x) <= FEW < pairs.shape[1]:  # products of all nodes take less than those of so many pairs
        products = (x.float() @ x.float().T)[pairs[0], pairs[1]]
    else:
        some = [(x[one[0]].float() * x[one[1]].float()).sum(1) for one in pairs.split(step, dim=1)]
        products = torch.cat([torch.zeros(0), *some])
    cosines = products / (lengths[pairs[0]] * lengths[pairs[1]])
    seen = _projected(x, lengths) if wide else x.float()
    source, target = seen[pairs[0]], seen[pairs[1]]
    if directed:
        blocks = [source * target, source, target]
    else:
        blocks = [source * target, source + target, *([] if wide else [(source - target).abs()])]
    return torch.cat([COSINE * cosines[:, None], *blocks, own, torch.ones(len(cosines), 1)], dim=1)


def _projected(x: Tensor, lengths: Tensor) -> Tensor:
    """Nodes, of length 1, along public random directions."""
    random = torch.Generator().manual_seed(_DIRECTIONS)
    directions = torch.randn(x.shape[1], PROJECTED, generator=random) / PROJECTED**0.5
    step = max(1, AT_ONCE // x.shape[1])
    seen = torch.cat([some.float() @ directions for some in x.split(step)])
    return seen / lengths[:, None]


def _own_columns(graph: Data, ends: Tensor, schema: Schema) -> tuple[Tensor, int]:
    """What ``edge_index`` says of each link; and how many of them are not in it."""
    if not schema.own:
        return torch.zeros(ends.shape[1], 0), 0
    carried = [graph[key] for key in ("edge_attr", "edge_weight") if graph.get(key) is not None]
    columns = torch.cat([one.float().reshape(len(one), -1) for one in carried], dim=1)
    if ends is graph.edge_index or torch.equal(ends, graph.edge_index):
        return columns, 0
    nodes = int(graph.num_nodes or 0)
    keys, order = _keys(graph.edge_index, nodes).sort()
    wanted = _keys(ends, nodes)
    if not len(keys):
        return torch.zeros(len(wanted), schema.own), len(wanted)
    place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
    there = keys[place] == wanted
    return columns[order[place]] * there[:, None], int((~there).sum())


def _is_directed(graph: Data) -> bool:
    """Whether a link says something else than the same one backwards."""
    if not _is_symmetric(graph.edge_index):
        return True
    label, ends = graph.get("edge_label"), graph.get("edge_label_index", graph.edge_index)
    if label is None or not _is_symmetric(ends):
        return False
    return not _is_symmetric(ends, label)


def _is_symmetric(pairs: Tensor, label: Tensor | None = None) -> bool:
    """Whether all pairs, with what is said of each, stand in both directions."""
    nodes = int(pairs.max()) + 1 if pairs.numel() else 1
    there, back = _keys(pairs, nodes), _keys(pairs.flip(0), nodes)
    if label is not None:
        many = int(label.max()) + 2 if len(label) else 1
        there, back = there * many + label + 1, back * many + label + 1
    return torch.equal(there.unique(), back.unique())


def _keys(pairs: Tensor, nodes: int) -> Tensor:
    return pairs[0].long() * nodes + pairs[1]


def _drawn(nodes: int, number: int, random: torch.Generator) -> Tensor:
    """Pairs of two different nodes, uniformly: ``[2, number]``. A longer draw begins with the same pairs."""
    return _pair(nodes, torch.randint(nodes * (nodes - 1), (number,), generator=random))


def _pair(nodes: int, number: Tensor) -> Tensor:
    """The pairs of different nodes that numbers stand for, which go round."""
    number = number % (nodes * (nodes - 1))
    first, second = number // (nodes - 1), number % (nodes - 1)
    return torch.stack([first, second + (second >= first)])


def _generator(seed: int, purpose: str) -> torch.Generator:
    return torch.Generator().manual_seed(sub_seed(seed, purpose))
