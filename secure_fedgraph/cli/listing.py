"""What works today, for ``list``: this package's own names, and those of plugins."""

from __future__ import annotations

import inspect
from typing import Any

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.experiment.reproduce import TABLES
from secure_fedgraph.graph.data.datasets import DATASETS, available
from secure_fedgraph.privacy.policies import RECIPES
from secure_fedgraph.registry import OWN, Registry, named_settings

REGISTRIES: dict[str, Registry[Any]] = {
    "algorithms": ALGORITHMS,
    "policies": RECIPES,
    "attacks": ATTACKS,
    "datasets": DATASETS,
}
KINDS = (*REGISTRIES, "tables")


def listed(kind: str) -> list[dict[str, Any]]:
    """What there is of a kind: a row a name.

    Args:
        kind: one of :data:`KINDS`.
    """
    made: dict[str, dict[str, Any]]
    if kind == "datasets":
        made = {name: {"summary": text, "source": source} for name, text, source in available()}
    elif kind == "tables":
        made = {
            name: {"summary": one.title, "paper": one.paper, "cells": len(one.cells), "cases": len(one.cases)}
            for name, one in TABLES.items()
        }
    else:
        made = {name: _TELLS[kind](one) for name, one in REGISTRIES[kind].items()}
    key, registry = "id" if kind == "attacks" else "name", REGISTRIES.get(kind)
    return [
        {key: name, **row, "package": registry.package_of(name) if registry is not None else OWN}
        for name, row in made.items()
    ]


def of_name(name: str) -> dict[str, Any]:
    """All that is known of one name, of whatever kind.

    Raises:
        BadInput: for a name that nothing has.
    """
    rows = {str(next(iter(row.values()))): row for kind in KINDS for row in listed(kind)}
    if name not in rows:
        raise unknown_name("list", name, KINDS)
    return rows[name]


def _algorithm(kind: Any) -> dict[str, Any]:
    return {
        "summary": kind.summary,
        "channels": [f"{c.name} ({c.reveal.value}, {c.unit.value}, to {c.to})" for c in kind.channels],
        "federated": not kind.pools,
        "reference": kind.reference,
    }


def _policy(recipe: Any) -> dict[str, Any]:
    return {
        "summary": (inspect.getdoc(recipe) or "").split("\n")[0],
        "settings": [key for key in named_settings(recipe) if key != "relation"],
    }


def _attack(kind: Any) -> dict[str, Any]:
    return {
        "family": kind.family,
        "summary": kind.summary,
        "target": kind.subject,
        "adversaries": list(kind.adversaries),
        "behaviour": kind.behaviour,
        "reads": ", ".join(kind.reads()),
        "granted": list(kind.grants),
        "controls": {control.name: dict(control.settings) for control in kind.controls},
    }


_TELLS = {"algorithms": _algorithm, "policies": _policy, "attacks": _attack}
