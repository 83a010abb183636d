"""Heads of nodes: one gradient a record against automatic differentiation, and what neighbours change."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

import secure_fedgraph as sfg
from secure_fedgraph.algorithms.fedsgd.heads.perceptron import LAYERS, NodePerceptron, gradients_of
from secure_fedgraph.algorithms.fedsgd.heads.sage import SageHead
from secure_fedgraph.algorithms.fedsgd.settings import NodeSgdSettings
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.targets import slopes

SCHEMA = Schema(features=5, classes=3)
HEADS = {"mlp": NodePerceptron, "sage": SageHead}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def graph() -> Data:
    links = torch.tensor([[0, 1, 1, 2, 3, 4, 2, 4], [1, 0, 2, 1, 4, 3, 4, 2]])
    return Data(x=drawn(7, 5), y=torch.tensor([0, 2, 1, 1, 0, 2, 0]), edge_index=links)


def weights(head: NodePerceptron) -> dict[str, torch.Tensor]:
    return {name: drawn(*v.shape, seed=i) / 3 for i, (name, v) in enumerate(head.init(SCHEMA, 0).items())}


def of_one(w: dict[str, torch.Tensor], own: torch.Tensor, near: torch.Tensor, half: int) -> torch.Tensor:
    """Class scores of one node, by the definition: half of the units read it, the others what is near."""
    before = torch.cat([own @ w["inner"][:, :half], near @ w["inner"][:, half:]]) + w["inner_bias"]
    return before.relu() @ w["outer"] + w["outer_bias"]


@pytest.mark.parametrize("network", HEADS)
def test_gradients_against_a_loop_over_nodes(network: str) -> None:
    """Half of the units read the node, the others what is near it: in training the node itself."""
    head = HEADS[network](NodeSgdSettings(network=network, hidden=4))
    given, w = graph(), weights(head)
    chosen = torch.tensor([4, 0, 2])
    found = head.gradients(w, given, chosen, SCHEMA)
    z = 5 * F.normalize(given.x, dim=1)
    for row, node in enumerate(chosen.tolist()):
        leaves = {name: value.clone().requires_grad_() for name, value in w.items()}
        F.cross_entropy(of_one(leaves, z[node], z[node], 2), given.y[node]).backward()
        for name in LAYERS:
            assert torch.allclose(found[name][row], leaves[name].grad, atol=1e-5), (name, node)


@pytest.mark.parametrize("network", HEADS)
def test_no_node_is_a_part_of_another_s_gradient(network: str) -> None:
    head = HEADS[network](NodeSgdSettings(network=network, hidden=4))
    given, w, chosen = graph(), weights(head), torch.arange(7)
    before = head.gradients(w, given, chosen, SCHEMA)
    given.x[3] += 1
    given.edge_index = given.edge_index[:, :1]
    after = head.gradients(w, given, chosen, SCHEMA)
    moved = sum((after[name] - before[name]).flatten(1).abs().sum(1) for name in LAYERS)
    assert moved[3] > 1e-3 and moved[[0, 1, 2, 4, 5, 6]].tolist() == [0] * 6


@pytest.mark.parametrize("network", HEADS)
def test_of_no_node_there_is_no_row(network: str) -> None:
    head = HEADS[network](NodeSgdSettings(network=network, hidden=4))
    found = head.gradients(weights(head), graph(), torch.arange(0), SCHEMA)
    assert [len(value) for value in found.values()] == [0] * 4 and found["inner"].shape == (0, 5, 4)


def test_at_inference_half_of_a_sage_reads_the_mean_over_a_node_and_its_neighbours() -> None:
    head = SageHead(NodeSgdSettings(network="sage", hidden=4))
    given, w = graph(), weights(head)
    z = 5 * F.normalize(given.x, dim=1)
    near = {0: [0, 1], 1: [0, 1, 2], 2: [1, 2, 4], 3: [3, 4], 4: [2, 3, 4], 5: [5], 6: [6]}
    expected = torch.stack([of_one(w, z[node], z[others].mean(0), 2) for node, others in near.items()])
    assert torch.allclose(head.predict(w, given, SCHEMA), expected, atol=1e-4)


def test_without_links_a_sage_predicts_as_it_was_trained() -> None:
    given = graph()
    given.edge_index = given.edge_index[:, :0]
    mlp, sage = (head(NodeSgdSettings(network=name, hidden=4)) for name, head in HEADS.items())
    w = weights(mlp)
    assert torch.allclose(sage.predict(w, given, SCHEMA), mlp.scores(w, given, SCHEMA), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"network": "sage", "hidden": 5}, r"training\.hidden = 5 .* give an even number"),
        ({"network": "sage", "steps": 3}, r"training\.steps = 3 .* leave steps out"),
        ({"network": "sage", "restart": 0.5}, r"training\.restart = 0\.5 .* leave restart out"),
        ({"network": "gin"}, r"'network' = 'gin'.*'mlp' or 'sage'"),
    ],
)
def test_what_a_network_would_not_use_is_refused_by_name(settings: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        sfg.algorithms.FedSgd(**settings)


def crossed(features: int, hidden: int, classes: int, scale: float) -> dict[str, torch.Tensor]:
    """A server's: half of the units stand again in another order, and two classes add them up in either.

    Their scores are equal but for rounding, which then decides what each record's gradient is.
    """
    random = torch.Generator().manual_seed(0)
    half, order = torch.randn(features, hidden // 2, generator=random), torch.randperm(hidden // 2)
    weighed = torch.randn(hidden // 2, generator=random) * scale
    outer = torch.zeros(hidden, classes)
    outer[: hidden // 2, 0], outer[hidden // 2 :, 1] = weighed, weighed[order]
    bias = torch.full((classes,), -1e30)
    bias[:2] = 0
    inner = torch.cat([half, half[:, order]], dim=1) * scale
    return dict(zip(LAYERS, (inner, torch.zeros(hidden), outer, bias), strict=True))


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e8])
@pytest.mark.parametrize("classes", [3, 6, 7])
def test_no_bit_of_a_record_depends_on_which_others_there_are(classes: int, scale: float) -> None:
    random = torch.Generator().manual_seed(1)
    z = torch.nn.functional.normalize((torch.rand(69, 50, generator=random) < 0.1).float(), dim=1) * 5
    y = torch.randint(2, (69,), generator=random)
    weights = crossed(50, 64, classes, scale)
    every = gradients_of(weights, z, y, 5.0, SCHEMA)
    for kept in (torch.arange(1, 69), torch.arange(57), torch.tensor([3]), torch.randperm(69)[:40]):
        some = gradients_of(weights, z[kept], y[kept], 5.0, SCHEMA)
        assert all(torch.equal(some[name], every[name][kept]) for name in LAYERS)


@pytest.mark.parametrize("task", [Task.LABELS, Task.CLASSES])
def test_an_items_slopes_do_not_depend_on_others(task: Task) -> None:
    schema = Schema(features=2, classes=3, task=task)
    scores = torch.randn(20000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(len(scores), 3) if task == Task.LABELS else torch.zeros(len(scores), dtype=torch.long)
    whole = slopes(scores, y, schema)
    alone = [slopes(scores[i : i + 1], y[i : i + 1], schema) for i in range(2000)]
    assert torch.equal(torch.cat(alone), whole[:2000])
    for some in (5, 7, 1001, 19999):
        assert torch.equal(slopes(scores[:some], y[:some], schema), whole[:some])
