"""Settings that no algorithm takes, named by key and value; and requests that no honest server makes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.schema import Schema

NAN = float("nan")
PROTOTYPES = {"feedback": "prototypes"}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("fedsage", {"learning_rate": 0}, "'learning_rate' = 0"),
    ("fedsage", {"learning_rate": NAN}, "learning_rate"),
    ("fedsage", {"epochs": 0}, "'epochs' = 0"),
    ("fedsage", {"lr": 0.1}, "'lr' is unknown"),
    ("fedsage", {"optimizer": "adamw"}, "'optimizer' = 'adamw'"),
    ("fedsage", {"batch": -4}, "batch"),
    ("fedsage", {"batch": "half"}, "'batch' = 'half': give a whole number from 1, or full"),
    ("fedsage", {"fanout": (0, 5)}, "fanout"),
    ("fedsage", {"fanout": ()}, "fanout"),
    ("fedsage", {"fanout": (5,)}, "'hidden' = .* as many widths as fanout has numbers, which is 1"),
    ("fedsage", {"hidden": ()}, "hidden"),
    ("fedsage", {"hidden": (63, 32)}, "hidden"),
    ("fedsage+", {**PROTOTYPES, "exchange_batch": 70}, "exchange_batch = 70 is of the exchange"),
    ("fedsage+", {**PROTOTYPES, "alpha": 2.0}, r"alpha = 2\.0 is of the exchange"),
    ("fedsage+", {**PROTOTYPES, "generator_hidden": (8, 8)}, "generator_hidden"),
    ("fedsage+", {**PROTOTYPES, "generator": "shared"}, "generator = shared averages"),
    ("fedsage+", {"anonymity": 5}, "anonymity = 5 is read with feedback=prototypes only"),
    ("fedsage+", {"records": 5}, "records = 5 is read with"),
    ("fedsage+", {**PROTOTYPES, "fanout": (0, 0)}, "generated neighbours"),
    ("fedgcn", {"hops": 3}, "hops"),
    ("fedgcn", {"hops": True}, "hops"),
    ("graphfl", {"support": 0}, "support"),
    ("graphfl", {"query": 0}, "query"),
    ("fedego", {"gamma": 0}, "gamma"),
    ("fedego", {"gamma": NAN}, "gamma"),
    ("fedego", {"mixing": 1.5}, "mixing.*give a number from 0 to 1, or adaptive"),
    ("fedego", {"mixing": NAN}, "mixing"),
    ("fedego", {"batch": "full"}, "batch.*valid integer"),
    ("fedego", {"batch": 0}, "batch"),
    ("fedego", {"mash": "all"}, "mash"),
    ("fedego", {"mashes": 0}, "mashes"),
    ("fedego", {"hidden": (8, 16)}, "network.*widths are equal"),
    ("fedego", {"fanout": (6,)}, "hidden.*as many widths"),
    ("fedego", {"server_share": 0}, "server_share"),
    ("fedego", {"dropout": 1.0}, "dropout"),
    ("fedego", {"network": "sage"}, "network"),
    ("fedego", {"mixing": 0, "average_reduction": False}, "average_reduction.*nothing is exchanged"),
    ("glasu", {"aggregated": [0, 4]}, r"^glasu setting: aggregated \[0, 4\]: give layers from 1 to 4"),
    ("glasu", {"aggregated": (2, 3)}, "the last of them 4"),
    ("glasu", {"aggregated": (4, 2)}, "ascending"),
    ("glasu", {"aggregated": ()}, "give layers"),
    ("glasu", {"local_steps": 0}, "local_steps"),
    ("glasu", {"local_steps": 2, "backward": "server"}, "of one joint inference"),
    ("glasu", {"backbone": "gat", "hidden": 12}, "multiple of 8"),
    ("glasu", {"fanout": 0}, "fanout"),
    ("apflgate", {"tau": 0}, "'tau' = 0.*greater than 0"),
    ("apflgate", {"tau": float("inf")}, "'tau' = inf.*finite"),
    ("apflgate", {"gain": "2/tau"}, "'gain' = '2/tau': give a number from 0, or R/tau or 1/tau"),
    ("apflgate", {"gain": -1}, "'gain' = -1"),
    ("apflgate", {"alpha": 1.5}, "'alpha' = 1.5: give a number from 0 to 1, or adaptive"),
    ("apflgate", {"alpha": True}, "alpha = true"),
    ("apflgate", {"learning_rate": 0}, "'learning_rate' = 0"),
    ("apflgate", {"local_steps": 0}, "'local_steps' = 0"),
    ("apflgate", {"batch": 0}, "'batch' = 0: give a whole number from 1, or full"),
    ("apflgate", {"hidden": (5,)}, "'hidden'.*each even"),
    ("apflgate", {"network": "ego"}, "'network' = 'ego'"),
    ("apfl", {"tau": 10}, "'tau' is unknown"),
    ("fedgate", {"alpha": 0.1}, "'alpha' is unknown"),
    ("fairgraphfl", {"server_rate": 0}, "server_rate"),
    ("fairgraphfl", {"value_rate": 0}, "value_rate"),
    ("fairgraphfl", {"budget": -1}, "budget"),
    ("fairgraphfl", {"beta_fair": 0}, "beta_fair"),
    ("fairgraphfl", {"motif_keep": 0}, "motif_keep"),
    ("fairgraphfl", {"rings": 2}, "rings"),
    ("fairgraphfl", {"use_gradient": False, "use_diversity": False}, "nothing to be made of"),
    ("fairgraphfl", {"lists": "counted", "vocabulary": "public"}, "'lists'"),
    ("fairgraphfl", {"clip": 2.0}, "'clip' is unknown"),
    ("fairgraphfl-bounded", {"vocabulary": "exchanged"}, "vocabulary"),
    ("fairgraphfl-bounded", {"prototypes": "sum"}, "prototypes"),
    ("fairgraphfl-bounded", {"clip": 0}, "clip"),
    ("fairgraphfl-bounded", {"motifs_per_graph": 0}, "motifs_per_graph"),
    ("fairgraphfl-bounded", {"least_count": 0}, "least_count"),
    ("fairgraphfl-bounded", {"idf": "global"}, "leave idf=local"),
]


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED)
def test_settings_that_cannot_be_are_refused_by_name(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        ALGORITHMS[name](**settings)


GLASU = [
    *(("nodes", torch.tensor(one)) for one in ([-1, 3], [1.0], [True], [[1]])),
    *(("step", one) for one in (2, True, "0")),
    *(("segment", one) for one in (3, -1, 1.5)),
    *(("parties", one) for one in ("owner-0", 3)),
    *(("seed", one) for one in (-1, 2**32, 1.5)),
    *(("summands", one) for one in (0, 1.0, True)),
    *((key, torch.full((2, 8), torch.nan)) for key in ("aggregate", "gradient")),
]
FEDEGO = [
    *(("shares", one) for one in (torch.tensor([torch.nan] * 4), torch.full((3,), 1 / 3), 0.25)),
    *(("head.weight", one) for one in (torch.zeros(4, 9), torch.full((4, 8), torch.inf))),
    ("reduction.bias", torch.zeros(9)),
]
REWARDS = [
    *(("places", torch.tensor(one, dtype=torch.int32)) for one in ([-1], [10**6], 0)),
    *(("places", torch.tensor(one)) for one in ([torch.nan], [0.5], [True])),
    *(("amounts", torch.tensor(one)) for one in ([torch.nan], [1], 1.0)),
    *(("value", one) for one in ("much", float("inf"), float("nan"))),
]
SMALL: dict[str, dict[str, Any]] = {
    "glasu": {"sampler": "paper", "steps": 2},
    "fedego": {"hidden": (8, 8), "fanout": (3, 3), "batch": 8},
    "fairgraphfl": {"hidden": 4, "layers": 1},
}


@pytest.mark.parametrize(
    ("name", "channels", "values"),
    [
        ("glasu", ("sample", "hidden", "backward", "step", "examine"), GLASU),
        ("fedego", ("mix",), FEDEGO),
        ("fairgraphfl", ("reward",), REWARDS),
    ],
)
def test_the_door_refuses_what_is_no_request(
    name: str, channels: tuple[str, ...], values: list[tuple[str, Any]]
) -> None:
    algorithm = ALGORITHMS[name](**SMALL[name])
    forms = [form for channel in channels for form in algorithm.takes(channel, Schema(24, 4)) or ()]
    for key, value in values:
        taken = [form[key] for form in forms if key in form]
        assert taken and all(one.wrong(value) for one in taken), (key, value)
