"""Attacks that change what is sent: a client or a server that plays against the protocol's honest parties."""

from __future__ import annotations

from secure_fedgraph.attacks.active.constant_answers import ConstantAnswers
from secure_fedgraph.attacks.active.leaning_model import LeaningCompletion
from secure_fedgraph.attacks.active.oracle import GeneratorOracle
from secure_fedgraph.attacks.active.planted_units import PlantedUnits
from secure_fedgraph.attacks.active.standing_model import StandingModel

__all__ = ["ConstantAnswers", "GeneratorOracle", "LeaningCompletion", "PlantedUnits", "StandingModel"]
