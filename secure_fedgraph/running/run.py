"""What a run leaves."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch_geometric.data import Data

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.core.errors import BadInput, check_number
from secure_fedgraph.core.spending.budget import Budget
from secure_fedgraph.core.spending.ledger import Charge
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.metrics.figures import headline
from secure_fedgraph.models.parameters import load
from secure_fedgraph.privacy.policy import BoundPolicy
from secure_fedgraph.privacy.spent import report
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.running.predicting import predicted

LOWER_IS_BETTER = ("mae",)
OF_ITEMS = ("metrics", "tested")
"""Keys of a scored round that hold what was counted of test items."""


@dataclass(frozen=True, repr=False)
class Run:
    """What a training run leaves: the state, the scores, the record of what was sent, the charges."""

    algorithm: Algorithm
    federation: Federation
    policy: BoundPolicy
    state: State
    history: Sequence[dict[str, Any]]
    transcript: Transcript
    charges: Sequence[Charge]
    seconds: float
    evaluation: str
    budget: Budget | None = None
    evaluate_every: int = 1
    server_scores: bool = False
    """Whether the server is the referee, as over machines where silos hold columns of the same rows."""

    def __repr__(self) -> str:
        number, policy = self.history[-1]["round"], self.policy.policy.name
        return f"Run({self._made_of}, policy {policy}, round {number}: {self._last_scores})"

    @property
    def _made_of(self) -> str:
        data, clients = self.federation.facts["data"], len(self.federation.names)
        return f"{self.algorithm.name} on {data}, {clients} clients"

    @property
    def _last_scores(self) -> str:
        last = self.history[-1]["accuracy"]
        return ", ".join(f"{name} {value:.3f}" for name, value in last.items() if isinstance(value, float))

    @property
    def model(self) -> nn.Module:
        """The trained model that everybody was given, ready to predict.

        Raises:
            BadInput: where models are personal, or the algorithm has no single module.
        """
        released, build = self.algorithm.released(self.state), getattr(self.algorithm, "model", None)
        if released is None or not callable(build):
            raise BadInput(
                f"{self.algorithm.name} releases no single model: its clients keep theirs, or it has several"
            )
        model: nn.Module = build(self.federation.schema)
        load(model, released)
        return model.eval()

    def predict(self, data: Data | Sequence[Data]) -> Tensor:
        """What the trained model that everybody was given says of data that nobody trained on.

        Args:
            data: a graph with the columns that ``federate`` was given, for each of its nodes; a list of
                graphs where the model is of whole graphs. Answers in it are not read.

        Returns:
            The probability of each class ``[n, classes]`` or of each label ``[n, labels]``; or numbers in
            their own unit, ``[n]``.

        Raises:
            BadInput: where models are personal, and for data that the model does not read.
            WrongType: for anything else than PyG's ``Data``.

        Warns:
            DataWarning: names what of the data is not used.
        """
        released = self.algorithm.released(self.state)
        if released is None or self.algorithm.personal() is not None:
            raise BadInput(f"{self.algorithm.name} releases no single model: its clients keep theirs")
        outputs, notes = predicted(self.algorithm, released, data, self.federation.schema)
        if notes:
            warnings.warn("; ".join(notes), DataWarning, stacklevel=2)
        return outputs

    def report(self, delta: float = 1e-5) -> str:
        """What ran, how well, what was spent, and who reads what: a few lines for a terminal or a notebook.

        Args:
            delta: of the epsilons.
        """
        lines = [
            f"{self._made_of}, under policy {self.policy.policy.name}",
            f"round {len(self.history)}: {self._last_scores}",
        ]
        for unit, entry in self.privacy(delta=delta).items():
            epsilon = entry["epsilon"]
            shown = epsilon if isinstance(epsilon, str) else f"{epsilon:g}"  # rounded up already
            why = f" ({entry['reason']})" if entry.get("reason") else ""
            against = f"at delta {delta:g}, against the {entry['against']}"
            lines.append(f"one {unit}: epsilon {shown} {against}{why}")
        for row in self.policy.describe():
            lines.append(f"channel {row['name']}: the {row['to']} learns {row['reveal']}, {row['policy']}")
        return "\n".join(lines)

    @property
    def accuracy(self) -> dict[str, Any]:
        """The last round's scores; beside them the best round by validation and the best test score."""
        if self.evaluation != "referee":
            last = self.history[-1]["accuracy"]
            return {key: value for key, value in last.items() if key != "validation"}
        return scores_of(self.history, self.algorithm.measure(self.federation.schema))

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """The last scored round's metrics: name -> its value over all test items, and its interval."""
        return next((row["metrics"] for row in reversed(self.history) if "metrics" in row), {})

    @property
    def shares(self) -> tuple[float, ...]:
        """The classes' shares of the test items, as they were counted; empty where nothing was."""
        counted: list[Any] = [row["tested"]["shares"] for row in self.history if "tested" in row]
        return tuple(counted[-1]) if counted else ()

    @property
    def headline(self) -> str:
        """The metric that says most on these data."""
        schema, measure = self.federation.schema, self.algorithm.measure(self.federation.schema)
        said = headline(schema, self.shares)
        return measure if measure != "accuracy" or said not in self.metrics else said

    def headlined(self, asked: str | None = None) -> dict[str, float]:
        """The headline's figure among the scores, where it is no accuracy."""
        name = asked or self.headline
        found = self.metrics.get(name)
        return {} if found is None or name == "accuracy" else {name: found["global"]}

    @property
    def commonest_class(self) -> float | None:
        """The accuracy of always naming the commonest class; None where nobody counted test items."""
        known = self.federation.referee.commonest_class if self.evaluation == "referee" else None
        return known if known is not None or not self.shares else max(self.shares)

    @property
    def form(self) -> dict[str, Any]:
        """The settings of the form that the policy made the algorithm take; empty as configured."""
        return dict(self.algorithm.form.settings) if self.algorithm.form else {}

    def privacy(self, unit: str | None = None, delta: float = 1e-5) -> dict[str, Any]:
        """What was spent, by unit; with ``unit`` that entry alone.

        Raises:
            BadInput: for a unit that nothing in the run protects, or a delta outside 0 to 1.
        """
        check_number("delta", delta)
        if not 0 < delta < 1:
            raise BadInput(f"delta = {delta}: give a number between 0 and 1; 1e-5 is usual")
        other_units = [one.unit for one in self.policy.randomizers] + (
            [self.budget.unit] if self.budget else []
        )
        units = tuple(dict.fromkeys((*self.federation.units, *other_units)))
        entries = report(self.charges, delta, self.federation.holders, units, self.server_scores)
        if unit is None:
            return entries
        if not isinstance(unit, str) or unit not in entries:
            raise BadInput(
                f"nothing in this run was charged to unit {unit!r}: units here are {sorted(entries)}"
            )
        entry: dict[str, Any] = entries[unit]
        return entry


def scores_of(history: Sequence[Mapping[str, Any]], measure: str) -> dict[str, Any]:
    """What a referee's scores of all rounds come to: the last, the best by validation, the best on test.

    Args:
        history: the rounds, in order, each with its number and its ``accuracy``.
        measure: of the algorithm: whether more is better depends on it.
    """
    last = history[-1]["accuracy"]
    figures = [key for key in last if key != "validation"]
    scores: dict[str, Any] = {key: last[key] for key in figures}
    scored = [r for r in history if "validation" in r["accuracy"]]
    if scored:
        choose = min if measure in LOWER_IS_BETTER else max
        chosen = choose(scored, key=lambda r: r["accuracy"]["validation"])
        by_validation = {key: chosen["accuracy"][key] for key in figures if key in chosen["accuracy"]}
        scores["best_by_validation"] = {"round": chosen["round"], **by_validation}
    scores["best_on_test"] = {
        key: (min if key.startswith(LOWER_IS_BETTER) else max)(
            r["accuracy"][key] for r in history if key in r["accuracy"]
        )
        for key in figures
    }
    return scores
