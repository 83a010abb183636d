"""What values and payoffs of FairGraphFL give away: who is of low quality, and who is a member.

    python benchmarks/incentives.py [--data proteins] [--first 0] [--seeds 3] [--rounds 10]
                                    [--only worth|again] [--json]

**Quality.** Agents of low, medium and high quality as in ``fairness.py``. Whoever reads the payoffs of the
last round guesses that who is paid less is of lower quality: the AUC of that for low against high, for the
printed and the shared diversity, and for the shared one under a budget for one graph (``local_dp``).

**Membership.** Who knows all other graphs, and reads an agent's diversity to the last digit, sees whether a
graph is among them where its removal changes that number: the share of training graphs of which this holds.
Noise bounds it for the shared one: (e^epsilon - 1) / (e^epsilon + 1) is the advantage at most.

**Worth, copies, cheats** (``--only worth``: these alone, in seconds), of links as they are. What graphs with
rewired links are worth by the shared diversity, over what they are worth as they are; how many graphs have
the triangles of another graph that is not the same; and an agent's share of all structure once it cheats,
over its honest share.

**Graphs held again** (``--only again``). What an agent is paid once it holds each of its training graphs two
or three times, over what it is paid without that.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fairgraphfl import shared_structure
from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.graph import motifs
from secure_fedgraph.graph.colours import mix, sums
from secure_fedgraph.graph.data.datasets import load as load_data
from secure_fedgraph.graph.partition.agents import rewired
from secure_fedgraph.graph.sample.packing import pack, select_graphs
from secure_fedgraph.graph.triangles import ROUNDS, pieces_with_triangles

SPLIT = {"perturbed": True, "own_test": 0.3}
NOISED = (8.0, 1.0)
KEEP, RINGS = 0.85, 4
HELD = (2, 3)
REWIRED = (0.0, 0.1, 0.3, 0.5, 1.0)


def auc(low: list[float], high: list[float]) -> float:
    """The chance that one of high quality is paid more than one of low."""
    wins = [1.0 if h > one else 0.5 if h == one else 0.0 for one in low for h in high]
    return fmean(wins)


def payoffs(
    federation: sfg.Federation, rounds: int, seed: int, epsilon: float | None, **settings: Any
) -> Any:
    """Agent -> what it was paid in the last round."""
    algorithm = sfg.FairGraphFL(**settings)
    if epsilon is None:
        run = sfg.train(algorithm, federation, "plaintext", rounds=rounds, seed=seed)
    else:
        budget = sfg.Budget(epsilon, unit="graph")
        run = sfg.train(algorithm, federation, "local_dp", rounds=rounds, seed=seed, budget=budget)
    return algorithm.notes(run.state)["payoffs"]


def members_by_motifs(federation: sfg.Federation) -> float:
    """The share of graphs whose removal changes their agent's printed diversity."""
    found = {
        name: motifs.motifs_of(graph, graph.train_mask.nonzero().flatten(), RINGS)
        for name, graph in federation.owners.items()
    }
    listed = {name: _listed(one, torch.ones(one.graphs, dtype=torch.bool)) for name, one in found.items()}
    changed, graphs = 0, 0
    for name, one in found.items():
        others = set().union(*(codes for other, codes in listed.items() if other != name))
        before = len(listed[name]) / len(others | listed[name])
        for graph in range(one.graphs):
            kept = torch.ones(one.graphs, dtype=torch.bool)
            kept[graph] = False
            codes = _listed(one, kept)
            changed += len(codes) / len(others | codes) != before
            graphs += 1
    return changed / graphs


def _listed(one: motifs.Motifs, kept: torch.Tensor) -> set[tuple[int, ...]]:
    entries = kept[one.graph]
    place = kept.cumsum(0) - 1
    codes, of = one.codes, one.motif[entries]
    there, number = of.unique(return_inverse=True)
    rest = motifs.Motifs(codes[there], place[one.graph[entries]], number, one.count[entries], int(kept.sum()))
    return {tuple(code) for code in rest.codes[motifs.most_distinctive(rest, KEEP)].tolist()}


def members_by_structure(federation: sfg.Federation) -> float:
    """The share of graphs whose removal changes their agent's structure above chance, copies left out."""
    changed = []
    for graph in federation.owners.values():
        graphs = _training(graph)
        before = structure([graphs], "own")[0]
        changed += [
            abs(structure([graphs[:i] + graphs[i + 1 :]], "own")[0] - before) > 1e-6
            for i in range(len(graphs))
        ]
    return fmean(changed)


@dataclass
class Holder:
    """What shared diversity asks of an agent: its name, its graphs, its memory."""

    name: str
    graph: Data
    memory: dict[str, Any] = field(default_factory=dict)


def structure(agents: Sequence[Sequence[Data]], copies: str = "all") -> list[float]:
    """What each agent's graphs are worth, once all have shown their fingerprints."""
    settings = FairGraphFLSettings(diversity="shared", copies=copies, prototypes="none")
    holders = [Holder(str(number), pack(graphs)) for number, graphs in enumerate(agents)]
    for one in holders:
        one.graph.train_mask = torch.ones(len(one.graph.y), dtype=torch.bool)
    prints = {one.name: shared_structure.own_fingerprints(one) for one in holders}  # type: ignore[arg-type]
    found = []
    for one in holders:
        others = {name: mine for name, mine in prints.items() if name != one.name}
        shared_structure.count_copies(one, others)  # type: ignore[arg-type]
        rows = shared_structure.structure(one, settings)  # type: ignore[arg-type]
        found.append(float(rows.values[shared_structure.TRIANGLES].sum()) / shared_structure.SHARE)
    return found


def worth_of_rewired(graphs: Sequence[Data], seed: int) -> dict[str, float]:
    """Share of links that are rewired -> what the graphs are worth, over what they are worth as they are."""
    worth = {}
    for share in REWIRED:
        changed = [rewired(one, share, np.random.default_rng((seed, i))) for i, one in enumerate(graphs)]
        (worth[f"{share:g}"],) = structure([changed])
    return {share: one / worth["0"] for share, one in worth.items()}


def same_triangles(graphs: Sequence[Data]) -> dict[str, float]:
    """How many graphs there are, how many have the triangles of another that differs, and what that costs.

    Two graphs differ where colour refinement with features, over all links, tells them apart.
    """
    packed = pack(graphs)
    pieces = pieces_with_triangles(packed)
    of_triangles = sums(mix(pieces.fingerprint), pieces.graph, len(graphs))
    nodes, of_graph = len(packed.x), packed.graph.numpy()
    row, column = packed.x.nonzero(as_tuple=True)
    bits = packed.x[row, column].float().numpy().view(np.uint32).astype(np.uint64)
    colours = sums(mix(mix(column.numpy().astype(np.uint64)) ^ bits), row.numpy(), nodes)
    one, other = to_undirected(packed.edge_index).numpy()
    for _ in range(ROUNDS):
        colours = mix(mix(colours) ^ mix(sums(mix(colours[other]), one, nodes)))
    whole = sums(mix(colours), of_graph, len(graphs))
    worth = np.bincount(pieces.graph, pieces.worth, minlength=len(graphs))
    group = np.unique(of_triangles, return_inverse=True)[1]
    kinds = np.bincount(
        group[np.unique(np.stack([group.astype(np.uint64), whole]), axis=1, return_index=True)[1]]
    )
    return {
        "graphs": len(graphs),
        "worth something": int((worth > 0).sum()),
        "of these with the triangles of another graph": int(((kinds[group] > 1) & (worth > 0)).sum()),
        "worth left where triangles count once": structure([graphs])[0] / float(worth.sum()),
    }


def cheats(agents: list[list[Data]], seed: int) -> dict[str, float]:
    """What one agent's share of all structure is once it cheats, over its honest share."""
    mine, rest = agents[0], agents[1:]
    honest = structure(agents)
    share = honest[0] / sum(honest)
    junk = [rewired(one, 1.0, np.random.default_rng((seed, i))) for i, one in enumerate(mine)]
    pairs = list(zip(mine, mine[1:] + mine[:1], strict=True))
    held = {
        "copies with a node without links": mine + [_grown(one, []) for one in mine],
        "junk beside the own": mine + junk,
        "junk alone, 60 hanging nodes each": [_hung(one, 60) for one in junk],
        "two of the own in one, beside the own": mine + [_joined(*pair, link=False) for pair in pairs],
        "links left out: copies that fall apart": mine + [_cut_loose(one) for one in mine],
        "links left out: those that keep nothing connected": [_tied(one) for one in mine],
        "graphs cut into connected pieces": [piece for one in mine for piece in _pieces(one)],
        "a link changed: two of the own joined by a link": mine
        + [_joined(*pair, link=True) for pair in pairs],
        "a link changed: copies with a triangle hanging on": mine + [_triangle_on(one) for one in mine],
        "links left out: the triangles of junk alone": [piece for one in junk for piece in _trimmed(one)],
        "a tenth more links, which close triangles": [
            _closed(one, 0.1, np.random.default_rng((seed, i))) for i, one in enumerate(mine)
        ],
    }
    found = {}
    for name, graphs in held.items():
        cheated = structure([graphs, *rest])
        found[name] = cheated[0] / sum(cheated) / share
    for copies in ("all", "own"):
        one, two = structure(agents, copies), structure([mine[::2], mine[1::2], *rest], copies)
        found[f"two agents with half each, copies={copies}"] = sum(two[:2]) / sum(two) * sum(one) / one[0]
    return found


def _grown(graph: Data, links: list[tuple[int, int]], nodes: int = 1) -> Data:
    more = torch.tensor(links, dtype=torch.long).reshape(-1, 2).t()
    x = torch.cat([graph.x, graph.x[:1].repeat(nodes, 1)])
    return Data(x=x, edge_index=torch.cat([graph.edge_index, more, more.flip(0)], 1), y=graph.y)


def _hung(graph: Data, nodes: int) -> Data:
    first = len(graph.x)
    return _grown(graph, [(i % first, first + i) for i in range(nodes)], nodes)


def _triangle_on(graph: Data) -> Data:
    n = len(graph.x)
    return _grown(graph, [(0, n), (n, n + 1), (n, n + 2), (n + 1, n + 2)], 3)


def _joined(graph: Data, other: Data, link: bool) -> Data:
    n = len(graph.x)
    links = torch.cat([graph.edge_index, other.edge_index + n], 1)
    both = Data(x=torch.cat([graph.x, other.x]), edge_index=links, y=graph.y)
    return _grown(both, [(0, n)] if link else [], 0)


def _closed(graph: Data, share: float, draws: np.random.Generator) -> Data:
    """The graph with links more between nodes that share a neighbour, as many as ``share`` of its links."""
    table = _table(graph)
    open_ = sparse.triu((table @ table) - (table @ table).multiply(table), k=1).tocoo()
    open_.eliminate_zeros()
    pairs = np.stack(open_.coords, axis=1)
    wanted = min(math.ceil(share * table.nnz / 2), len(pairs))
    chosen = draws.choice(len(pairs), wanted, replace=False) if wanted else np.zeros(0, dtype=np.int64)
    return _grown(graph, [(int(one), int(other)) for one, other in pairs[chosen]], 0)


def _table(graph: Data) -> sparse.csr_array:
    ends = graph.edge_index.numpy()
    table = sparse.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(len(graph.x),) * 2)
    return (table > 0).astype(np.float64)


def _pieces(graph: Data) -> list[Data]:
    table = _table(graph)
    component = torch.from_numpy(csgraph.connected_components(table, directed=False)[1]).long()
    return [
        Data(x=graph.x, edge_index=graph.edge_index[:, component[graph.edge_index[0]] == one], y=graph.y)
        for one in component.unique()
    ]


def _trimmed(graph: Data) -> list[Data]:
    table = _table(graph)
    closed = (table @ table).multiply(table).tocoo()
    links = torch.from_numpy(np.stack(closed.coords)[:, closed.data > 0].astype(np.int64))
    return _pieces(Data(x=graph.x, edge_index=links, y=graph.y))


def _cut_loose(graph: Data) -> Data:
    """The graph without its links outside triangles."""
    closed = _in_triangles(graph)
    return Data(x=graph.x, edge_index=graph.edge_index[:, closed], y=graph.y)


def _tied(graph: Data) -> Data:
    """The graph with as few links outside triangles as keep connected what was connected."""
    kept = _in_triangles(graph)
    one, other = graph.edge_index.numpy()
    order = np.argsort(~kept.numpy(), kind="stable")  # links in triangles first
    table = sparse.csr_array((1.0 + np.argsort(order), (one, other)), shape=(len(graph.x), len(graph.x)))
    tree = csgraph.minimum_spanning_tree(table).tocoo()
    tree_links = set(zip(*(axis.tolist() for axis in tree.coords), strict=True))
    in_tree = [
        (a, b) in tree_links or (b, a) in tree_links
        for a, b in zip(one.tolist(), other.tolist(), strict=True)
    ]
    return Data(x=graph.x, edge_index=graph.edge_index[:, kept | torch.tensor(in_tree)], y=graph.y)


def _in_triangles(graph: Data) -> torch.Tensor:
    """``[links]`` whether a link is in a triangle."""
    table = _table(graph)
    one, other = graph.edge_index.numpy()
    return torch.from_numpy(np.asarray((table @ table)[one, other]).reshape(-1) > 0)


def worth_table(args: argparse.Namespace) -> dict[str, Any]:
    """Worth, copies and cheats: means over seeds."""
    found: dict[str, list[dict[str, float]]] = {"worth_of_rewired": [], "cheats": []}
    graphs = list(load_data(args.data).graphs)
    for seed in range(args.first, args.first + args.seeds):
        found["worth_of_rewired"].append(worth_of_rewired(graphs, seed))
        federation = sfg.federate(
            args.data, clients=10, partition="random", seed=seed, split={"own_test": 0.3}
        )
        found["cheats"].append(cheats([_training(one) for one in federation.owners.values()], seed))
    means = {
        what: {k: round(fmean(one[k] for one in all_), 4) for k in all_[0]} for what, all_ in found.items()
    }
    return {**means, "same_triangles": {k: round(v, 3) for k, v in same_triangles(graphs).items()}}


def _training(graph: Data) -> list[Data]:
    """An agent's training graphs, one by one."""
    return _single(graph, graph.train_mask.nonzero().flatten().tolist())


def _single(graph: Data, rows: Sequence[int]) -> list[Data]:
    found = []
    for row in rows:
        one = select_graphs(graph, torch.tensor([row]))
        found.append(Data(x=one.x, edge_index=one.edge_index, y=one.y))
    return found


def held_again(args: argparse.Namespace) -> dict[str, Any]:
    """What one agent is paid once it holds each of its graphs several times, over its honest pay.

    Its structure stays the same, since copies count once. It takes more steps in a round, so the agreement of
    its update may grow.
    """
    over: dict[str, list[float]] = {f"each graph {times} times": [] for times in HELD}
    for seed in range(args.first, args.first + args.seeds):
        federation = sfg.federate(
            args.data, clients=10, partition="random", seed=seed, split={"own_test": 0.3}
        )
        (cheat,) = list(federation.owners)[:1]
        honest = payoffs(federation, args.rounds, seed, None, diversity="shared")[cheat]
        for times, found in zip(HELD, over.values(), strict=True):
            graph = federation.owners[cheat]
            rows = torch.arange(len(graph.y))
            rows = torch.cat([rows, rows[graph.train_mask].repeat(times - 1)])
            single = _single(graph, range(len(graph.y)))
            more = pack([single[row] for row in rows.tolist()])
            for name in ("train_mask", "val_mask", "test_mask"):
                if name in graph:
                    more[name] = graph[name][rows]
            owners = {**federation.owners, cheat: more}
            paid = payoffs(replace(federation, owners=owners), args.rounds, seed, None, diversity="shared")
            found.append(paid[cheat] / honest)
    return {"paid": {way: round(fmean(values), 3) for way, values in over.items()}, "seeds": args.seeds}


def table(args: argparse.Namespace) -> dict[str, Any]:
    """Means over seeds."""
    ways: dict[str, tuple[float | None, dict[str, Any]]] = {
        "printed": (None, {}),
        "shared": (None, {"diversity": "shared"}),
    }
    unread = {"diversity": "shared", "copies": "own", "prototypes": "none"}
    ways |= {f"shared, epsilon {one:g}": (one, unread) for one in NOISED}
    quality: dict[str, list[float]] = {way: [] for way in ways}
    printed, shared = [], []
    for seed in range(args.first, args.first + args.seeds):
        federation = sfg.federate(args.data, clients=10, partition="random", seed=seed, split=SPLIT)
        groups = federation.facts["partition"]["quality"]
        for way, (epsilon, settings) in ways.items():
            paid = payoffs(federation, args.rounds, seed, epsilon, **settings)
            low, high = ([paid[a] for a in groups if groups[a] == group] for group in ("low", "high"))
            quality[way].append(auc(low, high))
        printed.append(members_by_motifs(federation))
        shared.append(members_by_structure(federation))
    bounds = {f"shared, epsilon {one:g}": math.tanh(one / 2) for one in NOISED}
    return {
        "quality_auc": {way: round(fmean(values), 3) for way, values in quality.items()},
        "membership": {
            "printed": round(fmean(printed), 3),
            "shared": round(fmean(shared), 3),
            **{way: f"an advantage of {bound:.3f} at most" for way, bound in bounds.items()},
        },
        "seeds": args.seeds,
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="proteins")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", choices=["worth", "again"], help="one part alone")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # that plaintext protects nothing is the point
    found = {"worth": worth_table, "again": held_again}.get(args.only, table)(args)
    if args.json:
        print(json.dumps(found))
        return
    for what, figures in found.items():
        for way, figure in figures.items() if isinstance(figures, dict) else ():
            print(f"{what:16} {way:52} {figure}")


if __name__ == "__main__":
    main()
