"""The work of ``budget``: what noise costs, and the noise that a budget needs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import click

from secure_fedgraph.cli.screen import warn
from secure_fedgraph.core.accounting.epsilon import check_delta
from secure_fedgraph.core.accounting.events import Event, OccurringGaussian, SampledGaussian
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.privacy.accountants import ACCOUNTANTS, budget_figures, node_budget
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
        """Refuses what is no such training."""
        check_delta(self.delta)
        if not 0 < self.rate <= 1:
            raise BadInput(f"--sampling-rate {self.rate:g} must lie in (0, 1]; 1: nothing is sampled")
        for option, value in (("steps", self.steps), ("records", self.records)):
            if value is not None and value < 1:
                raise BadInput(f"--{option} {value}: at least one")
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
        """What it releases with so much noise."""
        if self.occurrences is None:
            return SampledGaussian(noise, self.rate, self.steps, self.relation)
        return OccurringGaussian(noise, self.rate, self.steps, self.occurrences)


def budget(noise_multiplier: float | None, epsilon: float | None, as_json: bool, **given: Any) -> None:
    """Prints what DP-SGD with this noise costs, or the noise that a budget needs."""
    asked = Training(**given)
    asked.check()
    if (noise_multiplier is None) == (epsilon is None):
        raise BadInput(
            "give --noise-multiplier for its epsilon, or --epsilon for the noise that it needs: one of them"
        )
    if asked.records is not None and asked.delta >= 1 / asked.records:
        warn(
            f"delta {asked.delta:g} is not below 1/{asked.records}: even publishing one record in the clear "
            "would meet it"
        )
    result: dict[str, Any] = {"delta": asked.delta, "unit": asked.unit, "relation": asked.relation}
    result |= {"sampling_rate": asked.rate, "steps": asked.steps}
    if noise_multiplier is None:
        noise = _up(noise_for(epsilon or 0.0, asked.delta, lambda z: [asked.event(z)]))
        lines = [f"epsilon {epsilon:g} needs noise of {noise:g} times the clip"]
        result = {"noise_multiplier": noise, **result}
    else:
        noise, rate, steps = noise_multiplier, asked.rate, asked.steps
        if not (math.isfinite(noise) and noise > 0):
            raise BadInput(
                f"--noise-multiplier {noise:g}: without noise epsilon is infinite; give more than 0"
            )
        if asked.occurrences is None:
            found = budget_figures(noise, rate, steps, asked.delta, asked.relation, ACCOUNTANTS)
        else:
            found = node_budget(noise, rate, steps, asked.occurrences, asked.delta)
        figures = {name: _up(value) for name, value in found.items()}
        lines = [
            f"  epsilon {value:<9g} {name.upper() if len(name) == 3 else name}"
            for name, value in figures.items()
        ]
        result = {"epsilon": {k: "inf" if math.isinf(v) else v for k, v in figures.items()}, **result}
    if as_json:
        click.echo(json.dumps(result))
        return
    each = "" if asked.occurrences is None else f", which changes {asked.occurrences} records at most"
    click.echo(
        f"{asked.steps} steps, Poisson sampling at rate {asked.rate:g} by secret coins, noise of {noise:g} "
        f"times the clip on each sum\nfor one {asked.unit}{each}, against whoever sees every step\n"
        f"relation {asked.relation}, delta {asked.delta:g}"
    )
    click.echo("\n".join(lines))


def _up(value: float) -> float:
    """Rounded up to four digits after the point, so that no cost and no noise is understated."""
    return value if math.isinf(value) else math.ceil(value * 10_000) / 10_000
