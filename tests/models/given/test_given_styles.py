"""Models of a user's own in the styles that PyG's examples have: what forward takes, and what it gives."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import pytest
import torch
from small_graphs import triangles
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool

import secure_fedgraph as sfg
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.synthetic import citation
from secure_fedgraph.graph.sample.packing import pack
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models import user_models


class Style(nn.Module):
    """A layer for nodes; for whole graphs their mean is taken."""

    def __init__(self, schema: Schema, columns: int | None = None) -> None:
        super().__init__()
        self.layer = GCNConv(schema.features, schema.classes if columns is None else columns)

    def scores(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        rows = self.layer(x, edge_index)
        return rows if batch is None else global_mean_pool(rows, batch)

    def of(self, graph: Any) -> Tensor:
        return self.scores(graph.x, graph.edge_index, graph.batch)


def styled(forward: Any) -> type[Style]:
    return type("Styled", (Style,), {"forward": forward})


class Annotated(Style):
    def forward(self, inputs: Data) -> Tensor:
        return self.of(inputs)


class AnnotatedInWords(Style):
    def forward(self, inputs: torch_geometric.data.Batch) -> Tensor:  # noqa: F821
        return self.of(inputs)


class InPlace(Style):
    def forward(self, data: Any) -> Tensor:
        data.x.mul_(2.0)
        found = self.scores(data.x / 2, data.edge_index, data.batch)
        del data.edge_index
        return found


def giving(made: Any) -> type[Style]:
    """A model that gives something around its scores."""
    return styled(lambda self, x, edge_index, batch=None: made(self.scores(x, edge_index, batch)))


Usual = giving(lambda scores: scores)


SAME = {
    "forward(data)": styled(lambda self, data: self.of(data)),
    "forward(batch)": styled(lambda self, batch: self.of(batch)),
    "forward(g, embed=False)": styled(lambda self, g, embed=False: self.of(g)),
    "annotated as Data": Annotated,
    "annotated as Batch, in words": AnnotatedInWords,
    "in place": InPlace,
    "another order": styled(lambda self, edge_index, x, batch=None: self.scores(x, edge_index, batch)),
    "a tuple": giving(lambda scores: (scores, scores * 2)),
    "a list with a word first": giving(lambda scores: ["scores", scores]),
    "logits": giving(lambda scores: OrderedDict(loss=None, logits=scores)),
    "out": giving(lambda scores: {"embedding": scores * 2, "out": scores}),
}
LOGARITHMS = {
    "log-probabilities": giving(lambda scores: scores.log_softmax(dim=1)),
    "probabilities": giving(lambda scores: scores.softmax(dim=1)),
}


def trained(model: Any, federation: sfg.Federation, policy: str = "plaintext") -> sfg.Run:
    algorithm = sfg.FedAvg(model=model, batch="full", learning_rate=0.05)
    return sfg.train(algorithm, federation, policy, rounds=1, seed=0)


@pytest.fixture(scope="module")
def nodes() -> sfg.Federation:
    return sfg.federate(citation(90, 16, 3, 0), clients=3, partition="random")


@pytest.fixture(scope="module")
def graphs() -> sfg.Federation:
    return sfg.federate(triangles(), clients=3, partition="random")


@pytest.fixture(scope="module", params=["nodes", "graphs"])
def usual(request: pytest.FixtureRequest) -> sfg.Run:
    """The usual model on each kind of data."""
    return trained(Usual, request.getfixturevalue(request.param))


@pytest.mark.parametrize("style", SAME)
def test_every_style_trains_as_the_usual_one(style: str, usual: sfg.Run) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", sfg.DataWarning)
        run = trained(SAME[style], usual.federation)
    assert all(torch.equal(run.state[key], usual.state[key]) for key in usual.state)
    assert isinstance(run.model, SAME[style]) and run.accuracy == usual.accuracy


@pytest.mark.parametrize("style", LOGARITHMS)
def test_logarithms_of_probabilities_and_probabilities_are_scores(style: str, nodes: sfg.Federation) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = trained(LOGARITHMS[style], nodes, "masked")
    if style == "log-probabilities":  # of which the cross entropy is the same
        usual = trained(Usual, nodes, "masked").state
        assert all(torch.allclose(run.state[key], usual[key], atol=1e-5) for key in usual)


class Column(Style):
    def __init__(self, schema: Schema) -> None:
        super().__init__(schema, 1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.scores(x, edge_index)


class Flat(Column):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.scores(x, edge_index).squeeze(1)


@pytest.mark.parametrize("model", [Column, Flat])
@pytest.mark.parametrize("positive", [0, 1])
def test_one_column_for_two_classes_is_the_positive_ones(model: type[Style], positive: int) -> None:
    data, schema = citation(30, 16, 2, 0), Schema(16, 2, positive=positive)
    made = user_models.build(model, schema, 0)
    column = made(data.x, data.edge_index).reshape(-1)
    scores = user_models.scores_of(made, data)
    assert torch.equal(scores[:, positive], column) and not bool(scores[:, 1 - positive].any())
    with pytest.warns(sfg.DataWarning, match="one column"):
        user_models.check_fits(model, schema)


def test_one_column_trains() -> None:
    federation = sfg.federate(citation(90, 16, 2, 0), clients=2, partition="random")
    with pytest.warns(sfg.DataWarning, match="one column"):
        run = trained(Column, federation, "masked")
    assert 0 <= run.accuracy["global"] <= 1 and run.state["layer.lin.weight"].shape == (1, 16)


@pytest.mark.parametrize(
    ("schema", "model"),
    [
        (Schema(16, 1, task=str(Task.NUMBER)), Flat),
        (Schema(16, 1, task=str(Task.NUMBER)), Column),
        (Schema(16, 4, task=str(Task.LABELS)), Usual),
        (Schema(16, 2, task=str(Task.LINKS)), giving(lambda scores: scores[:, :1].expand(-1, 7))),
    ],
)
def test_outputs_of_other_tasks(schema: Schema, model: type[Style]) -> None:
    user_models.check_fits(model, schema)
    scores = user_models.scores_of(user_models.build(model, schema, 0), citation(30, 16, 2, 0))
    assert scores.dim() == 2 and scores.shape[1] == (7 if schema.task == Task.LINKS else schema.classes)


def test_a_model_of_whole_data_sees_no_answer_and_every_field_of_the_links() -> None:
    seen: list[Data] = []

    class Looks(Style):
        def forward(self, data: Any) -> Tensor:
            seen.append(data)
            return self.scores(data.x, data.edge_index, data.batch)

    union = pack(triangles(3).graphs)
    union.edge_attr = torch.ones(union.num_edges, 2)
    model = Looks(Schema(3, 2))
    assert user_models.scores_of(model, union).shape == (3, 2)
    one = seen.pop()
    assert isinstance(one, Batch) and one.num_graphs == 3 and one.edge_attr.shape[1] == 2
    assert "y" not in one and user_models.reads(model) == ("edge_weight", "edge_attr")
    user_models.scores_of(model, citation(30, 3, 2, 0))
    assert "y" not in seen[0] and seen[0].batch is None


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (styled(lambda self, data: ["no scores"]), "list"),
        (styled(lambda self, data: {"embedding": self.of(data)}), "dict"),
        (styled(lambda self, data, training: self.of(data)), r"forward\(data\)"),
        (lambda schema: nn.Linear(16, 3), r"forward\(data\)"),  # features alone
        (styled(lambda self, data: self.of(data).repeat(1, 2)), "3 classes"),
        (Column, "3 classes"),
    ],
)
def test_what_a_model_gives_that_are_no_scores(model: Any, key: str) -> None:
    with pytest.raises(BadInput, match=key):
        user_models.check_fits(model, Schema(16, 3))
