"""The forms that families take under a budget: the claim of a whole run, trials of it, and removals.

    python benchmarks/form_audits.py [--trials 20000] [--only "FedEgo"] [--json]
    python benchmarks/form_audits.py --check

For each form, planned as ``secure-fedgraph run`` plans it (epsilon 4, delta 1e-5, all rounds):

- trials: one unit in every sum of the run, through the real coins, clip, shares of noise and opening, against
  the epsilon of the whole run (``audits/empirical_dp/whole_runs.py``);
- removals: 20 random units and the 5 with the most links (or nodes) taken out of real data, and how far the
  sums of a real first round move, in parts of what is counted (``benchmarks/real_removals.py``);
- mistakes: each is put into the code, and a quarter of the trials, or removals, have to show it.

Results are kept in ``benchmarks/results/form_audits.json``, from which the table of ``docs/audits.md`` is
written; ``--check`` changes nothing and ends with status 1 where the page has another table.
"""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from real_removals import Removed
from written_pages import options, with_part, write_or_check

from secure_fedgraph.algorithm import Form as AlgorithmForm
from secure_fedgraph.algorithms.fedridge.algorithm import FedRidge, GraphFedRidge
from secure_fedgraph.algorithms.glasu import at_home
from secure_fedgraph.algorithms.glasu.at_home import GlasuAtHome
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.audits.empirical_dp.epsilon import Audit
from secure_fedgraph.audits.empirical_dp.whole_runs import audit_run
from secure_fedgraph.client import Client
from secure_fedgraph.core.accounting.events import Event
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.protection import bound as doors
from secure_fedgraph.core.protection import moments, pooling
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.federation import federate
from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.planned_noise import Forecast
from secure_fedgraph.running.preparation import Prepared, prepare

ROOT = Path(__file__).resolve().parent.parent
KEPT, PAGE = ROOT / "benchmarks" / "results" / "form_audits.json", ROOT / "docs" / "audits.md"
BEGIN = "<!-- written by benchmarks/form_audits.py -->"
EPSILON, DELTA = 4.0, 1e-5
Patches = list[tuple[Any, str, Any]]


@dataclass(frozen=True)
class Form:
    """A family under a budget.

    Args:
        unit: whose data the budget is for.
        algorithm: the family, as typed.
        data: and how it is handed out.
        mistakes: by name, of :data:`MISTAKES`.
        policy: by name.
        settings: of the algorithm.
        also: families that take the same form, with the same claim.
    """

    unit: str
    algorithm: str
    data: Mapping[str, Any]
    mistakes: tuple[str, ...]
    policy: str = "distributed_dp"
    settings: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    def prepared(self, algorithm: str = "", seed: int = 0) -> Prepared:
        """The run before its first message, with its noise planned."""
        options = RunOptions(budget=Budget(EPSILON, DELTA, self.unit), seed=seed)
        made = algorithm_named(algorithm or self.algorithm)(**self.settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which form it takes is asked for here
            return prepare(made, federate(**self.data, seed=seed), self.policy, options)

    def planned(self, prepared: Prepared) -> tuple[dict[str, int], Counter[Event] | None]:
        """How often a client is asked on each channel, and all that it pays at the unit; None if nothing."""
        channels = [one.channel for one in prepared.bound.bounds.values()]
        names, budget = prepared.federation.names, prepared.options.budget
        assert budget is not None
        forecast = Forecast(prepared.algorithm, channels, names, prepared.rounds, budget)
        return forecast.uses, forecast.events(prepared.bound) if _noised(prepared) else None

    def audited(self, prepared: Prepared, trials: int) -> Audit | None:
        """The whole run's claim and what trials show; None where nothing that is sent depends on the unit."""
        (uses, events), noised = self.planned(prepared), _noised(prepared)
        if events is None:
            return None
        turns = any(one.unit.value != self.unit for one in noised.values())
        return audit_run(noised, uses, events, turns=turns, trials=trials, delta=DELTA)


def _noised(prepared: Prepared) -> dict[str, Bound]:
    return {n: one for n, one in prepared.bound.bounds.items() if any(s.noise() for s in one.stages)}


GRAPHS = ("the clip is left out", "noise of half the width", "a graph's record depends on the others")
CORA = {"data": "cora", "clients": 3}
EGOS = {"data": "cora", "clients": 5, "partition": "label_skew"}
COLUMNS = {"data": "cora", "clients": 3, "partition": "vertical"}
PROTEINS = {"data": "proteins", "clients": 10, "partition": "random"}
OF_STEPS = (
    "the clip is left out", "noise of half the width", "every record is in every step",
    "class sums are over links",
)  # fmt: skip
OF_SUMS = ("the clip is left out", "noise of half the width", "class sums are over links")
FORMS = {
    "FedSage, node": Form("node", "fedsage", CORA, OF_STEPS, also=("fedsage+", "fedavg", "fedprox")),
    "FedGCN, node": Form("node", "fedgcn", CORA, OF_STEPS),
    "FedEgo, node": Form("node", "fedego", EGOS, (*OF_SUMS, "every holder counts a node")),
    "FedEgo, label": Form("label", "fedego", EGOS, (*OF_SUMS[:2], "every holder counts a node")),
    "fedridge, own moments, node": Form(
        "node", "fedridge", CORA, OF_SUMS, settings={"second_moments": "own"}
    ),
    "fedridge, sent moments, node": Form(
        "node", "fedridge", {"data": "pubmed", "clients": 3}, OF_SUMS, settings={"second_moments": "sent"}
    ),
    "fedridge, all moments, node": Form(
        "node", "fedridge", {"data": "pubmed", "clients": 3}, OF_SUMS, settings={"second_moments": "all"}
    ),
    "FedAvg, graph": Form("graph", "fedavg", PROTEINS, GRAPHS, also=("fedprox",)),
    "APFLGate, graph": Form(
        "graph", "apflgate", {"data": "bbbp", "clients": 16, "partition": "dirichlet"}, GRAPHS, also=("apfl",)
    ),
    "FairGraphFL, graph": Form("graph", "fairgraphfl", PROTEINS, GRAPHS),
    "GLASU, edge": Form(
        "edge", "glasu", COLUMNS,
        ("columns are smoothed over links", "columns weigh by degree", "lonely nodes send nothing"), "masked",
    ),
    "GLASU, label": Form(
        "label", "glasu", COLUMNS,
        ("columns weigh by class", "labels stand in a column", "columns less the class's mean"), "masked",
    ),
    "GLASU, feature": Form(
        "feature", "glasu", COLUMNS,
        ("labels weigh by features", "features stand in a class", "empty nodes send nothing"), "masked",
    ),
    "GLASU, node": Form(
        "node", "glasu", COLUMNS, ("columns are sent", "labels are sent", "columns that read links are sent"),
        "masked",
    ),
}  # fmt: skip


# --- mistakes


def _answer(name: str, change: Callable[[Client, torch.Tensor], torch.Tensor]) -> Patches:
    """GLASU's form with other rows in an answer, by clients whose door shows everything."""
    real = getattr(GlasuAtHome, name)

    def answer(self: GlasuAtHome, client: Any, given: Any) -> Upload:
        return Upload({"rows": change(client, real(self, client, given).values["rows"])})

    return [(GlasuAtHome, name, answer), (Client, "_seen_by", _all_is_seen)]


@contextmanager
def _all_is_seen(client: Client, channel: Any) -> Iterator[None]:
    yield


def _unclipped(matrix: np.ndarray, norm: float) -> np.ndarray:
    return np.asarray(matrix, dtype=np.float32)


def _halved() -> Patches:
    real = Gaussian._draw

    def draw(stage: Gaussian, *given: Any) -> np.ndarray:
        return np.rint(real(stage, *given) / 2).astype(np.int64)

    return [(Gaussian, "_draw", draw)]


def _of_neighbours(rows: torch.Tensor, links: torch.Tensor) -> torch.Tensor:
    near = 1 + torch.bincount(links[1], minlength=len(rows))[:, None]
    return (rows + SparseMatrix.of_links(links, len(rows)).times(rows)) / near


def _over_links() -> Patches:
    real = FedRidge.records

    def records(self: FedRidge, graph: Any, schema: Any) -> torch.Tensor:
        return _of_neighbours(real(self, graph, schema), graph.edge_index)

    return [(FedRidge, "records", records), (Client, "_seen_by", _all_is_seen)]


def _centred() -> Patches:
    real = GraphFedRidge.describe

    def describe(self: GraphFedRidge, graph: Any, schema: Any) -> torch.Tensor:
        found = real(self, graph, schema)
        return found - found.mean(dim=0)

    return [(GraphFedRidge, "describe", describe)]


def _degrees(client: Client) -> torch.Tensor:
    degrees: torch.Tensor = torch.bincount(client.graph.edge_index[1], minlength=int(client.graph.num_nodes))
    return degrees[:, None]


def _with_first(column: Callable[[Client], torch.Tensor]) -> Callable[[Client, torch.Tensor], torch.Tensor]:
    return lambda client, rows: torch.cat([column(client).float()[:, None], rows[:, 1:]], dim=1)


def _less_mean(client: Client, rows: torch.Tensor) -> torch.Tensor:
    of = client.graph.train_mask
    means = torch.zeros(client.schema.classes, rows.shape[1])
    means.index_reduce_(0, client.graph.y[of], rows[of], "mean", include_self=False)
    return rows - torch.where(of[:, None], means[client.graph.y.clamp(min=0)], 0.0)


def _lengths(client: Client) -> torch.Tensor:
    lengths: torch.Tensor = client.graph.x.norm(dim=1, keepdim=True)
    return lengths


def _sends(what: str) -> Patches:
    return [(at_home, "FORMS", {**at_home.FORMS, "node": AlgorithmForm({"sends": what}, "a mistake")})]


TRIALS, REMOVALS, LINKS = "trials", "removals", "links"
MISTAKES: dict[str, tuple[str, Callable[[], Patches]]] = {
    "the clip is left out": (
        TRIALS, lambda: [(pooling, "clipped", _unclipped), (moments, "clipped", _unclipped)]
    ),
    "noise of half the width": (TRIALS, _halved),
    "every record is in every step": (
        TRIALS, lambda: [(doors, "secret_coins", lambda units, rate: torch.arange(units))]
    ),
    "class sums are over links": (LINKS, _over_links),
    "every holder counts a node": (
        REMOVALS, lambda: [(Client, "_seen_by", _all_is_seen)]  # and pay as one
    ),
    "a graph's record depends on the others": (REMOVALS, _centred),
    "columns are smoothed over links": (
        REMOVALS,
        lambda: _answer("columns", lambda c, rows: _of_neighbours(rows, c.graph.edge_index)),
    ),
    "columns weigh by degree": (
        REMOVALS, lambda: _answer("columns", lambda c, rows: rows / (1 + _degrees(c)))
    ),
    "lonely nodes send nothing": (
        REMOVALS, lambda: _answer("columns", lambda c, rows: rows * (_degrees(c) > 0))
    ),
    "columns weigh by class": (
        REMOVALS, lambda: _answer("columns", lambda c, rows: rows / (2 + c.graph.y[:, None]))
    ),
    "labels stand in a column": (REMOVALS, lambda: _answer("columns", _with_first(lambda c: c.graph.y / 10))),
    "columns less the class's mean": (REMOVALS, lambda: _answer("columns", _less_mean)),
    "labels weigh by features": (
        REMOVALS, lambda: _answer("labels", lambda c, rows: rows / (1 + _lengths(c)))
    ),
    "features stand in a class": (
        REMOVALS, lambda: _answer("labels", _with_first(lambda c: c.graph.x.mean(dim=1)))
    ),
    "empty nodes send nothing": (
        REMOVALS, lambda: _answer("labels", lambda c, rows: rows * (_lengths(c) > 0))
    ),
    "columns are sent": (REMOVALS, lambda: _sends("columns")),
    "labels are sent": (REMOVALS, lambda: _sends("labels")),
    "columns that read links are sent": (
        REMOVALS, lambda: [*_sends("columns"), *MISTAKES["columns are smoothed over links"][1]()]
    ),
}  # fmt: skip
"""What is wrong -> what has to show it, and what is patched."""


def caught(form: Form, mistake: str, trials: int) -> bool:
    """Whether a mistake shows: in trials, in removals of hubs (or their links), or before round 1."""
    by, patches = MISTAKES[mistake]
    with ExitStack() as stack:
        for target, name, changed in patches():
            stack.enter_context(patch.object(target, name, changed))
        try:
            prepared = form.prepared()
        except BadInput:
            return True
        if by == TRIALS:
            audited = form.audited(prepared, trials)
            return audited is not None and audited.broken
        removed = Removed(prepared, "edge" if by == LINKS else form.unit)
        return any(removed.moved(one) > 1 for one in removed.chosen()[1])


# --- the table


def made(name: str, form: Form, trials: int, random: int = 20, hubs: int = 5) -> dict[str, Any]:
    """One row."""
    started, prepared = time.perf_counter(), form.prepared()
    audited, removed = form.audited(prepared, trials), Removed(prepared, form.unit)
    some, most = removed.chosen(random, hubs)
    for other in form.also:
        same = form.prepared(other)
        assert type(same.algorithm) is type(prepared.algorithm), other
        assert form.planned(same) == form.planned(prepared), other
    return {
        "form": prepared.algorithm.name,
        "also": list(form.also),
        "unit": form.unit,
        "data": form.data["data"],
        "owners": form.data["clients"],
        "claim": audited.claim if audited else 0.0,
        "lower": max(audited.lower.epsilon, audited.any_noise.epsilon) if audited else 0.0,
        "plain": audited.any_noise.epsilon if audited else 0.0,
        "refuted": bool(audited and audited.broken),
        "trials": trials if audited else 0,
        "random": max(map(removed.moved, some)),
        "hubs": max(map(removed.moved, most)),
        "removed": [len(some), len(most)],
        # nothing is counted for a link, unless the mistake is in
        "links": max(map(Removed(prepared, "edge").moved, most)) if form.unit == "node" else 0.0,
        "mistakes": {one: caught(form, one, trials // 4) for one in form.mistakes},
        "seconds": round(time.perf_counter() - started),
    }


def lines(kept: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The table."""
    yield "| family, unit | data | claim | at least | removals | hubs |"
    yield f"|{'---|' * 6}"
    for name, row in kept.items():
        figures = f"{row['claim']:.2f} | {row['lower']:.2f} | {row['random']:.3f} | {row['hubs']:.3f}"
        yield f"| {name} | {row['data']} | {figures} |"


def page() -> str:
    """The page as the kept file makes it."""
    return with_part(PAGE.read_text(encoding="utf-8"), BEGIN, lines(json.loads(KEPT.read_text())))


def main() -> None:
    """The command line."""
    asked = options(__doc__, page=True)
    asked.add_argument("--trials", type=int, default=20_000, help="runs in each of the two worlds")
    asked.add_argument("--only", default="", help="rows whose names start so")
    given = asked.parse_args()
    if not given.check:
        kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
        for name, form in FORMS.items():
            if name.startswith(given.only):
                kept[name] = made(name, form, given.trials)
                kept = {one: kept[one] for one in FORMS if one in kept}
                KEPT.write_text(json.dumps(kept, indent=1) + "\n")
                if not given.json:
                    print("\n".join(list(lines({name: kept[name]}))[2:]), kept[name]["seconds"], flush=True)
        if given.json:
            print(json.dumps({"rows": kept}))
    write_or_check(PAGE, page(), given.check)


if __name__ == "__main__":
    main()
