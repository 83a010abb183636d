"""What GLASU's clients and its server make sure of before they use what they were sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.inputs import link_holder
from secure_fedgraph.seams import ClientContext

MOST_NODES = 2**24
"""Uploads are float32: node numbers above this are not exact."""


def parties(given: Mapping[str, Any], clients: tuple[str, ...]) -> tuple[str, ...]:
    """Who takes part, in the order of their blocks: everybody, for each holds columns of every node.

    Args:
        clients: everybody, as a client knows them.

    Raises:
        HostileMessage: for anything else, other names, or names that repeat.
    """
    names = given.get("parties")
    if not isinstance(names, tuple) or sorted(names) != sorted(clients):
        raise HostileMessage(f"'parties' must name every client once, which are {', '.join(clients)}")
    return names


def index_set(numbers: Tensor, nodes: int, within: Tensor | None = None) -> Tensor:
    """Node numbers, ascending, each once.

    Args:
        numbers: what was given: whole numbers, as the door has seen.
        nodes: they are below it.
        within: the client's own nodes, which must be among them.

    Raises:
        HostileMessage: for anything else.
    """
    numbers = numbers.long()
    if not len(numbers) or int(numbers[-1]) >= nodes or bool((numbers.diff() <= 0).any()):
        raise HostileMessage(f"'nodes' must be ascending node numbers from 0 to {nodes - 1}, each once")
    if within is not None and not bool(torch.isin(within, numbers).all()):
        raise HostileMessage("'nodes' lacks nodes that this client has asked for")
    return numbers


def pairs(name: str, value: Tensor, nodes: int, place: int, clients: int) -> Tensor:
    """The links that a client randomised, ``[k, 2]``, the lower node first, each once.

    Args:
        name: the client's.
        nodes: node numbers are below it.
        place: the client's, among all clients by name.
        clients: how many there are.

    Raises:
        HostileMessage: for anything else, or pairs that are another client's part.
    """
    low, high = value.double().unbind(1)
    whole = bool((value == value.round()).all() and (low >= 0).all() and (high < nodes).all())
    if not whole or not bool((low < high).all()):
        raise HostileMessage(f"{name}'s links are not pairs of node numbers below {nodes}, the lower first")
    numbers = (low * nodes + high).long()
    if bool((numbers.diff() <= 0).any()):
        raise HostileMessage(f"{name}'s links are not ascending")
    if bool((link_holder(low.long(), high.long(), clients) != place).any()):
        raise HostileMessage(f"{name} hands out links between nodes that are another client's part")
    return value.long()


def rows(value: Tensor, count: int, width: int) -> Tensor:
    """Rows ``[count, width]``, float32; that they are finite numbers the door has seen.

    Raises:
        HostileMessage: for another shape.
    """
    if value.shape != (count, width):
        raise HostileMessage(f"rows of shape ({count}, {width}) are due, not {tuple(value.shape)}")
    return value.float()


def listed(name: str, values: Mapping[str, Tensor]) -> Tensor:
    """A client's index list, as the server reads it.

    Raises:
        HostileMessage: for anything but whole numbers from 0, ascending.
    """
    value = values.get("nodes")
    if value is None or value.dim() != 2 or value.shape[1] != 1:
        raise HostileMessage(f"{name}'s index list is no list of nodes")
    numbers = value.flatten()
    if len(numbers) and (
        bool((numbers != numbers.round()).any()) or float(numbers[0]) < 0 or float(numbers[-1]) >= MOST_NODES
    ):
        raise HostileMessage(f"{name}'s index list holds something else than node numbers")
    if bool((numbers.diff() <= 0).any()):
        raise HostileMessage(f"{name}'s index list is not ascending")
    return numbers.long()


def examined(client: ClientContext, given: Mapping[str, Any]) -> int:
    """The client's number of nodes, after a check that the test data have as many.

    Raises:
        BadInput: for another number.
    """
    nodes = int(client.graph.num_nodes)
    if given.get("nodes") != nodes:
        raise BadInput(
            f"{client.name} has {nodes} nodes and the test data {given.get('nodes')}: in a vertical "
            "split every client has every node"
        )
    return nodes
