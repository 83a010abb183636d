"""The referee: it holds the test data, stands outside the federation, and judges released models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from secure_fedgraph.algorithm import ITEMS, TESTED
from secure_fedgraph.core.errors import BadInput, WrongType
from secure_fedgraph.core.upload import unlike_real_numbers
from secure_fedgraph.graph.partition.result import EVERYBODY, TestSet
from secure_fedgraph.graph.partition.sampled import interval, sampled
from secure_fedgraph.graph.schema import Task
from secure_fedgraph.loading import postponed
from secure_fedgraph.metrics.counting import FEW, MANY, Counting
from secure_fedgraph.metrics.figures import Measured, measured
from secure_fedgraph.models import personal
from secure_fedgraph.models.finite import named_classes
from secure_fedgraph.models.targets import loss_of, right

if TYPE_CHECKING:
    from secure_fedgraph.algorithm import Algorithm, State
    from secure_fedgraph.core.channel import Channel
    from secure_fedgraph.graph.schema import Schema
    from secure_fedgraph.round import Round

stats = postponed("scipy.stats")
PARTS = ("test", "validation")
"""Names of the counts in an upload."""
ROUNDED = 0.1
"""Counts that their carrier rounds by more than this carry noise, as far as metrics are concerned."""
MODES = ("referee", "in_band", "at_home")
NOTES = {
    "referee": "test data outside the guarantee: a referee outside the federation holds it",
    "at_home": "nobody scores in the federation: what an owner makes of the model on its own test nodes "
    "stays with it",
    "in_band": "scored by the clients on their own test nodes; uploads like any other, protected and charged",
}


class ScoreWarning(UserWarning):
    """A model that gives NaN for test nodes or graphs: each of them counts as a wrong answer."""


@dataclass(frozen=True)
class Evaluator:
    """Holds the test data that no client owns. It reads released models and what clients send it.

    Guarantees:
        - no client, server or algorithm sees a test label that it holds, and no party's view has what is sent
          to it;
        - test nodes that owners hold are scored by their owners;
        - every result that it scored says that the test data stands outside the guarantee.

    Args:
        test_set: the test inputs and their labels.
        drawn_from: how many test nodes there are, where it holds a sample of them.
    """

    test_set: TestSet
    drawn_from: int | None = None

    def channels(self, algorithm: Algorithm) -> tuple[Channel, ...]:
        """The channels on which it asks, besides those that the algorithm declares."""
        return (algorithm.OWN_TESTS, algorithm.OWN_SCORES) if self.test_set.own_tests else ()

    @property
    def tested(self) -> int:
        """How many test nodes it holds."""
        return sum(len(nodes) for nodes in self.test_set.tests.values())

    def sampled(self, size: int, reach: int, seed: int) -> Evaluator:
        """A referee who holds a sample of these test nodes: arguments as of :func:`sampled`."""
        if self.tested <= size:
            return self
        return Evaluator(sampled(self.test_set, size, reach, seed), self.tested)

    def facts(self, score: float | None) -> dict[str, Any]:
        """What a result says about the sample, with the interval of a score; nothing of a whole test set.

        Args:
            score: ``global``, a share of the sample.
        """
        if self.drawn_from is None or score is None:
            return {}
        low, high = interval(score, self.tested)
        return {"sample": {"nodes": self.tested, "of": self.drawn_from, "low": low, "high": high}}

    @property
    def commonest_class(self) -> float | None:
        """What always answering the commonest class would score; None where it holds no test data."""
        if not self.test_set.tests or self.test_set.labels.is_floating_point():
            return None
        asked = self.test_set.labels[_together(self.test_set.tests)]
        return float(torch.bincount(asked.long()).max() / len(asked)) if len(asked) else None

    def evaluate(
        self, algorithm: Algorithm, state: State, round: Round, schema: Schema, final: bool = False
    ) -> dict[str, Any]:
        """Scores a round.

        Args:
            final: whether all metrics are wanted, with intervals, beside the one that is followed.

        Returns:
            ``global``: accuracy on all test nodes (with personal models: the mean over models); ``local``:
            the mean over owners of the accuracy on their own test nodes, and ``owners`` each one's;
            ``auc`` or ``mae`` where the algorithm's paper measures that; ``validation``: the same measure on
            validation nodes; ``loss``: cross entropy on them; ``metrics``: by name, where they are wanted.
        """
        figures: dict[str, Any] = {}
        metric = algorithm.measure(schema)
        if self.test_set.tests:
            scores = algorithm.predictions(state, round, self.test_set.inputs, schema)
            self._check_scores(scores, algorithm, schema)
            # a module of a user's own records gradients of them, unless it says no_grad
            scores = {owner: rows.detach() for owner, rows in scores.items()}
            asked = _together(self.test_set.tests)
            if any(bool(rows[asked].isnan().any()) for rows in scores.values()):
                # the same words in every round, so that Python prints them once
                what = "graphs" if schema.kind == "graph" else "nodes"
                warnings.warn(
                    f"{algorithm.name}: predict gives NaN for test {what}; each counts as a wrong answer",
                    ScoreWarning,
                    stacklevel=2,
                )
            figures |= self._marked(scores, metric, schema)
            if final and schema.kind != "ratings":
                figures |= self._measured(scores, schema, pooled=metric == "auc")
        if self.test_set.own_tests:
            released = algorithm.released(state)
            figures |= _owners_scores(round.gather(algorithm.OWN_TESTS, released), metric, schema)
            if final and schema.kind != "ratings":
                counted = round.gather(algorithm.OWN_SCORES, released).values()
                figures |= _in_words(_measured_of(counted, Counting(schema, MANY)))
        return {name: value for name, value in figures.items() if value == value}  # NaN: no test data

    def personal(self, algorithm: Algorithm, state: State, round: Round, schema: Schema) -> dict[str, float]:
        """Scores what each owner makes of the released model and its own data.

        Returns:
            ``personal``: the mean over owners of the accuracy on their own test nodes, on their own graphs;
            ``personal_global``: the mean over owners' models of the accuracy on all test nodes; ``own`` and
            ``own_global``: the same of what owners have without the released model. Where an owner could not
            combine the two, the first two figures are left out: they would say nothing of the released model.
        """
        released = algorithm.released(state)
        assert released is not None
        answers = round.gather(algorithm.COMBINED, released)
        combined = [bool(values.pop("combined")) for values in answers.values()]
        figures = {
            "personal": mean([_share(values.pop("test")) for values in answers.values()]),
            "own": mean([_share(values.pop("alone_test")) for values in answers.values()]),
        }
        if self.test_set.tests:
            inputs, everywhere = self.test_set.inputs, _together(self.test_set.tests)
            smoothed = personal.Smoothed(inputs)
            shared = algorithm.predict(released, inputs, schema).detach()
            each, alone = [], []
            models = list(answers.values())
            for model, own in zip(models, personal.each_believes(models, smoothed), strict=True):
                each.append(self._accuracy(personal.scores(model, own, shared), everywhere))
                if own:
                    alone.append(self._accuracy(personal.scores(model, own, None), everywhere))
            figures |= {"personal_global": mean(each), "own_global": mean(alone)}
        left_out = () if all(combined) else ("personal", "personal_global")
        return {name: value for name, value in figures.items() if value == value and name not in left_out}

    def _check_scores(self, scores: object, algorithm: Algorithm, schema: Schema) -> None:
        """Raises WrongType or BadInput for scores by which test nodes cannot be marked."""
        if not isinstance(scores, Mapping) or not scores:
            raise WrongType(
                f"{algorithm.name}: predictions returns a dict from owners to scores, not {scores!r:.60}"
            )
        shape = len(self.test_set.labels), schema.classes
        for rows in scores.values():
            if not isinstance(rows, torch.Tensor):
                what = type(rows).__name__
            else:
                what = unlike_real_numbers(rows) or ("" if rows.is_floating_point() else str(rows.dtype))
            if what:
                raise WrongType(f"{algorithm.name}: predict returns a tensor of real scores, not {what}")
            if tuple(rows.shape) != shape:
                raise BadInput(
                    f"{algorithm.name}: predict returns a score for every node (or graph) and class, "
                    f"{list(shape)} here, and it returned the shape {list(rows.shape)}"
                )

    def _measured(
        self, scores: Mapping[str, torch.Tensor], schema: Schema, pooled: bool = False
    ) -> dict[str, Any]:
        """All metrics, of several models together; pooled, each owner's items are scored by its own model."""
        cells, labels = Counting(schema, MANY), self.test_set.labels

        def counted(items: Mapping[str, torch.Tensor]) -> torch.Tensor:
            total = torch.zeros(cells.size, dtype=torch.float64)
            if pooled and set(items) <= set(scores):
                for owner, own in items.items():
                    total += cells.total(scores[owner][own], labels[own])
            elif items:
                asked = _together(items)
                for rows in scores.values():
                    total += cells.total(rows[asked], labels[asked])
            return total

        test, held = counted(self.test_set.tests), counted(self.test_set.validations)
        return _in_words(measured(cells, test.numpy(), held.numpy()))

    def _marked(self, scores: Mapping[str, torch.Tensor], metric: str, schema: Schema) -> dict[str, Any]:
        test_set, one = self.test_set, next(iter(scores.values()))
        everywhere = _together(test_set.tests)

        def score(rows: torch.Tensor, nodes: torch.Tensor) -> float:
            return self._score(rows, nodes, schema)

        owners = {
            owner: score(scores.get(owner, one), nodes)
            for owner, nodes in test_set.tests.items()
            # where models are personal, no other model replaces one that is gone
            if owner != EVERYBODY and len(nodes) and (owner in scores or EVERYBODY in scores)
        }
        overall = mean([score(rows, everywhere) for rows in scores.values()])
        figures: dict[str, Any] = {"mae" if metric == "mae" else "global": overall}
        if metric != "mae":
            figures["local"] = mean(list(owners.values())) if owners else overall
        figures["owners"] = owners
        if metric == "auc":
            figures["auc"] = self._pooled_auc(scores, test_set.tests)
        if test_set.validations:
            held_out, loss = _together(test_set.validations), loss_of(schema)
            losses = [loss(s[held_out], test_set.labels[held_out]).mean() for s in scores.values()]
            figures["loss"] = mean([float(one) for one in losses])
            figures["validation"] = (
                self._pooled_auc(scores, test_set.validations)
                if metric == "auc"
                else mean([score(rows, held_out) for rows in scores.values()])
            )
        return figures

    def _pooled_auc(self, scores: Mapping[str, torch.Tensor], asked: Mapping[str, torch.Tensor]) -> float:
        """One AUC over all owners' test graphs, each scored by its owner's model."""
        one = next(iter(scores.values()))
        if set(asked) == {EVERYBODY}:
            nodes = asked[EVERYBODY]
            return mean([self._auc(_positive(s[nodes]), nodes) for s in scores.values()])
        asked = {o: nodes for o, nodes in asked.items() if o in scores or EVERYBODY in scores}
        margins = [_positive(scores.get(owner, one)[nodes]) for owner, nodes in asked.items()]
        return self._auc(torch.cat(margins), _together(asked))

    def _auc(self, scores: torch.Tensor, nodes: torch.Tensor) -> float:
        return roc_auc(scores.double().numpy(), self.test_set.labels[nodes].numpy() == 1)

    def _score(self, scores: torch.Tensor, nodes: torch.Tensor, schema: Schema) -> float:
        """The accuracy; of numbers the mean absolute error."""
        if not len(nodes):
            return float("nan")
        share = float(right(scores[nodes], self.test_set.labels[nodes], schema).mean())
        return (1 - share) * (schema.high - schema.low) if schema.task == Task.NUMBER else share

    def _accuracy(self, scores: torch.Tensor, nodes: torch.Tensor) -> float:
        if not len(nodes):
            return float("nan")
        return float((named_classes(scores[nodes]) == self.test_set.labels[nodes]).double().mean())


def _owners_scores(
    answers: Mapping[str, Mapping[str, torch.Tensor]], metric: str, schema: Schema
) -> dict[str, Any]:
    """The means over owners of what they report on their own test nodes: ``[part, whole]`` by name."""
    name = "local" if metric == "accuracy" else metric
    errors = schema.task == Task.NUMBER

    def share(counted: torch.Tensor) -> float:
        return (1 - _share(counted)) * (schema.high - schema.low) if errors else _share(counted)

    owners = {owner: share(values["test"]) for owner, values in answers.items() if values["test"][1]}
    figures: dict[str, Any] = {name: mean(list(owners.values())), "owners": owners}
    for key in next(iter(answers.values())):
        if key != "test" and any(float(values[key][1]) for values in answers.values()):  # some hold none out
            of = share if key == "validation" else _share
            figures[key] = mean([of(values[key]) for values in answers.values()])
    if metric == "mae" and not errors:
        part, whole = torch.stack([values["test"] for values in answers.values()]).double().sum(0).tolist()
        figures["mae_pooled"] = part / whole if whole else float("nan")
    return figures


def _measured_of(counted: Iterable[Mapping[str, torch.Tensor]], cells: Counting) -> Measured:
    """All metrics of several owners' counts, added up."""
    test, held = (torch.stack([one[name].double() for one in counted]).sum(dim=0) for name in PARTS)
    return measured(cells, test.numpy(), held.numpy())


def _in_words(found: Measured) -> dict[str, Any]:
    """Metrics as results hold them."""
    figures = {
        name: {"global": one.value, "low": one.low, "high": one.high} for name, one in found.figures.items()
    }
    return {
        "metrics": figures,
        "tested": {"items": round(found.items, 1), "shares": [round(one, 4) for one in found.shares]},
    }


def roc_auc(scores: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive item outscores another, ties counted half; NaN where one kind is missing.

    >>> roc_auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not ones or not zeros:
        return float("nan")
    ranks = stats.rankdata(scores)
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def _positive(scores: torch.Tensor) -> torch.Tensor:
    return scores[:, 1] - scores[:, 0]


def in_band(
    algorithm: Algorithm, state: State, round: Round, schema: Schema, final: bool = True
) -> dict[str, Any]:
    """Scores a round by what the clients upload about it, protected like everything else.

    Guarantees:
        - no figure is outside of its metric's range, whatever the noise.

    Args:
        final: whether test items are counted too, for all metrics.

    Returns:
        ``local``: the mean over the clients that have test items; missing where no client has any, or where
        noise hides how many do. ``global``: over all test items together, and ``metrics`` by name, where
        items were counted.
    """
    figures: dict[str, Any] = {}
    released = algorithm.released(state)
    bounds = round.policy.bounds
    if algorithm.METRICS.name in bounds:
        opened = round.reduce(algorithm.METRICS, given=released)
        tested = float(opened.total[TESTED])
        for name, score in opened.total.items():
            if name == TESTED or tested < max(0.5, 2 * opened.deviation):
                continue
            share = min(max(float(score) / tested, 0.0), 1.0)
            if name == "accuracy":
                figures["local"] = share
            else:
                figures[name] = share * (schema.high - schema.low) if schema.task == Task.NUMBER else share
    if final and algorithm.SCORES.name in bounds:
        bound = bounds[algorithm.SCORES.name]
        opened = round.reduce(bound.channel, given=released)
        noise = opened.deviation * ITEMS
        cells = Counting(schema, FEW if noise else MANY)
        rounded = float(bound.public.get("grid", 0.0)) * math.sqrt(len(opened.contributors) / 12) * ITEMS
        noise = noise or (rounded if rounded > ROUNDED else 0.0)
        counted = {name: one.double().reshape(-1).numpy() * ITEMS for name, one in opened.total.items()}
        found = measured(cells, counted["test"], counted.get("validation"), noise)
        figures |= _in_words(found)
        if "accuracy" in found.figures:
            figures["global"] = found.figures["accuracy"].value
        elif schema.task == Task.NUMBER and "mae" in found.figures:
            figures["mae"] = found.figures["mae"].value
    return figures


def mean(values: list[float]) -> float:
    """The mean of those that are not NaN; NaN where all are."""
    numbers = torch.tensor(values, dtype=torch.float64)
    return float(numbers[~numbers.isnan()].mean())


def _together(nodes: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(nodes.values()))


def _share(counted: torch.Tensor) -> float:
    """``[part, whole]`` as a share; NaN of nothing."""
    part, whole = (float(value) for value in counted)
    return part / whole if whole else float("nan")
