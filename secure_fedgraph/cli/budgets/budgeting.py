"""The work of ``budget``: what noise costs, and the noise that a budget needs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import click

from secure_fedgraph.core.accounting.epsilon import check_delta
from secure_fedgraph.core.accounting.events import Event, OccurringGaussian, SampledGaussian
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.accountants import (
    ACCOUNTANTS,
    budget_figures,
    check_accountant,
    node_budget,
)
from secure_fedgraph.privacy.noise_needed import noise_for

_SEVERAL = ("node", "edge")
"""Units that lie in more than one record: ego-graphs overlap."""


@dataclass(frozen=True)
class Training:
    """Poisson-sampled DP-SGD as asked on the command line."""

    rate: float
    steps: int
    delta: float
    unit: str
    relation: str
    occurrences: int | None
    records: int | None

    def check(self) -> None:
        check_delta(self.delta)
        if not 0 < self.rate <= 1:
            raise BadInput(
                f"--sampling-rate {self.rate:g} must lie in (0, 1]; 1 means that nothing is sampled"
            )
        if self.steps < 1:
            raise BadInput(f"--steps {self.steps}: at least one step costs something")
        if self.records is not None and self.records < 1:
            raise BadInput(f"--records {self.records}: at least one")
        if self.unit in _SEVERAL and self.occurrences is None:
            raise BadInput(
                f"--unit {self.unit}: removing it changes the gradients of several records; say of how many "
                "with --occurrences: (1 + places + crowd) for a node at one hop, 1 + (places + crowd) * (1 + "
                "places) at two"
            )
        if self.relation == "add-remove" and (self.unit != "record" or self.occurrences is not None):
            raise BadInput(
                f"--relation add-remove --unit {self.unit}: who takes part and how many records there are is "
                "public here; use zero-out"
            )

    def event(self, noise: float) -> Event:
        if self.occurrences is None:
            return SampledGaussian(noise, self.rate, self.steps, self.relation)
        return OccurringGaussian(noise, self.rate, self.steps, self.occurrences)

    def figures(self, noise: float, accountants: tuple[str, ...]) -> dict[str, float]:
        if self.occurrences is None:
            return budget_figures(noise, self.rate, self.steps, self.delta, self.relation, accountants)
        return node_budget(noise, self.rate, self.steps, self.occurrences, self.delta)

    def words(self, noise: float) -> list[str]:
        each = "" if self.occurrences is None else f", which changes {self.occurrences} records at most"
        return [
            f"{self.steps} steps, Poisson sampling at rate {self.rate:g} by secret coins, noise of {noise:g} "
            "times the clip on each sum",
            f"for one {self.unit}{each}, against whoever sees every step",
            f"relation {self.relation}, delta {self.delta:g}",
        ]


def budget(
    asked: Training,
    noise_multiplier: float | None,
    epsilon: float | None,
    accountant: str | None,
    as_json: bool,
) -> None:
    """Prints what DP-SGD with this noise costs, or the noise that a budget needs."""
    asked.check()
    named = ACCOUNTANTS if accountant is None else accountant.split(",")
    accountants = tuple(check_accountant(name.strip()) for name in named)
    delta, unit, relation = asked.delta, asked.unit, asked.relation
    if (noise_multiplier is None) == (epsilon is None):
        raise BadInput(
            "give --noise-multiplier for its epsilon, or --epsilon for the noise that it needs: one of them"
        )
    if accountants != ACCOUNTANTS and (epsilon is not None or asked.occurrences is not None):
        for_what = "--epsilon" if epsilon is not None else "--occurrences"
        raise BadInput(f"--accountant {accountant} would be ignored: with {for_what} the accountant is fixed")
    if asked.records is not None and delta >= 1 / asked.records:
        click.echo(
            f"secure-fedgraph: warning: delta {delta:g} is not below 1/{asked.records}: even publishing one "
            "record in the clear would meet it",
            err=True,
        )
    described = {
        "delta": delta,
        "unit": unit,
        "relation": relation,
        "sampling_rate": asked.rate,
        "steps": asked.steps,
    }
    if noise_multiplier is None:
        noise = noise_for(epsilon or 0.0, delta, lambda z: [asked.event(z)])
        noise = _up(noise)
        if as_json:
            click.echo(json.dumps({"noise_multiplier": noise, **described}))
        else:
            click.echo("\n".join(asked.words(noise)))
            click.echo(f"epsilon {epsilon:g} needs noise of {noise:g} times the clip")
        return
    if not (math.isfinite(noise_multiplier) and noise_multiplier > 0):
        raise BadInput(
            f"--noise-multiplier {noise_multiplier:g}: without noise epsilon is infinite; give more than 0"
        )
    figures = asked.figures(noise_multiplier, accountants)
    if as_json:
        rounded = {name: "inf" if math.isinf(value) else _up(value) for name, value in figures.items()}
        click.echo(json.dumps({"epsilon": rounded, **described}))
    else:
        click.echo("\n".join(asked.words(noise_multiplier)))
        _print(figures)


def _print(figures: Mapping[str, float]) -> None:
    for name, value in figures.items():
        click.echo(f"  epsilon {_up(value):<9g} {name.upper() if len(name) == 3 else name}")


def _up(value: float) -> float:
    """Rounded up to four digits after the point, so that no cost and no noise is understated."""
    return value if math.isinf(value) else math.ceil(value * 10_000) / 10_000
