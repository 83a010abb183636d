"""What works today, for ``list``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.experiment.reproduce import TABLES
from secure_fedgraph.graph.data.datasets import DATASETS, available
from secure_fedgraph.privacy.policies import RECIPES
from secure_fedgraph.registry import Registry, named_settings


def algorithms() -> list[dict[str, Any]]:
    """Name, what it is, what leaves a client."""
    return [
        {
            "name": name,
            "summary": kind.summary,
            "channels": [f"{c.name} ({c.reveal.value}, {c.unit.value}, to {c.to})" for c in kind.channels],
            "federated": not kind.pools,
            "reference": kind.reference,
            "package": ALGORITHMS.package_of(name),
        }
        for name, kind in ALGORITHMS.items()
    ]


def policies() -> list[dict[str, Any]]:
    """Name, what it is, its settings."""
    return [
        {
            "name": name,
            "summary": (inspect.getdoc(recipe) or "").split("\n")[0],
            "settings": [key for key in named_settings(recipe) if key != "relation"],
            "package": RECIPES.package_of(name),
        }
        for name, recipe in RECIPES.items()
    ]


def attacks() -> list[dict[str, Any]]:
    """Id, family, adversaries, what it reads and what it is granted."""
    from secure_fedgraph.attacks import ATTACKS

    return [
        {
            "id": kind.id,
            "family": kind.family,
            "summary": kind.summary,
            "target": kind.subject,
            "adversaries": list(kind.adversaries),
            "behaviour": kind.behaviour,
            "reads": ", ".join(kind.reads()),
            "granted": list(kind.grants),
            "controls": {control.name: dict(control.settings) for control in kind.controls},
            "package": ATTACKS.package_of(kind.id),
        }
        for kind in ATTACKS.values()
    ]


def datasets() -> list[dict[str, Any]]:
    """Name, description, where it would come from on this machine."""
    return [
        {"name": name, "summary": text, "source": source, "package": DATASETS.package_of(name)}
        for name, text, source in available()
    ]


def tables() -> list[dict[str, Any]]:
    """Name, what it shows, where it is from, how many figures and experiments it has."""
    return [
        {
            "name": name,
            "summary": table.title,
            "paper": table.paper,
            "cells": len(table.cells),
            "cases": len(table.cases),
            "package": "secure-fedgraph",
        }
        for name, table in TABLES.items()
    ]


def left_out(kind: str) -> tuple[str, ...]:
    """Why plugins are not in a list, a sentence each."""
    if kind == "attacks":
        from secure_fedgraph.attacks import ATTACKS

        return ATTACKS.left_out
    of: dict[str, Registry[Any]] = {"algorithms": ALGORITHMS, "policies": RECIPES, "datasets": DATASETS}
    return of[kind].left_out if kind in of else ()


LISTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    made.__name__: made for made in (algorithms, policies, attacks, datasets, tables)
}
