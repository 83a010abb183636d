"""Attacks: each reads a View and nothing else. Scores are made in ``audits``, where the truth is."""

from __future__ import annotations

import sys

from secure_fedgraph.attacks.active import (
    ConstantAnswers,
    GeneratorOracle,
    LeaningCompletion,
    PlantedUnits,
    StandingModel,
)
from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Judge, Knowledge
from secure_fedgraph.attacks.feature_sums import SummedMembers
from secure_fedgraph.attacks.mashes.labels import MashLabels
from secure_fedgraph.attacks.mashes.mixing import MashMixing
from secure_fedgraph.attacks.mashes.noise import MashAverage
from secure_fedgraph.attacks.mashes.pool import MashDictionary, MashFilter
from secure_fedgraph.attacks.mashes.single import MashSingle
from secure_fedgraph.attacks.motif_lists import ListedMembers
from secure_fedgraph.attacks.neighbour_sums import NeighbourSums
from secure_fedgraph.attacks.neighgen import GeneratorBatch, GeneratorColumns, GeneratorSingle
from secure_fedgraph.attacks.neighgen_embeddings import EmbeddingCounts, EmbeddingDecoder, EmbeddingLinks
from secure_fedgraph.attacks.payoffs import PayoffQuality, PayoffSizes
from secure_fedgraph.attacks.prototypes import RoundDifferencing, SingletonMotifs, SubsetAlgebra
from secure_fedgraph.attacks.released import (
    EmbeddingInversion,
    LinkStealing,
    NodeLikelihoodRatio,
    NodeMembership,
)
from secure_fedgraph.attacks.released.class_shares import ModelClassShares
from secure_fedgraph.attacks.released.influence import LinkTeller
from secure_fedgraph.attacks.released.ownership import ModelOwner, UpdateOwner
from secure_fedgraph.attacks.rounds import CohortDifferencing, OwnShareSubtraction, RedrawnNoise
from secure_fedgraph.attacks.scores import CountedScores, ScoredSizes
from secure_fedgraph.attacks.vertical.completion import ModelCompletion
from secure_fedgraph.attacks.vertical.label_groups import BlindGroups
from secure_fedgraph.attacks.vertical.labels import GradientClusters, GradientLabels
from secure_fedgraph.attacks.vertical.lists import ListLinks, ListLinksByOwner
from secure_fedgraph.attacks.vertical.rows import AlikeRows, OthersRows
from secure_fedgraph.attacks.weights import LabelCounts, VocabularySupport
from secure_fedgraph.attacks.weights.class_shares import UpdateClassShares
from secure_fedgraph.attacks.weights.graph_structure import GraphStructure
from secure_fedgraph.attacks.weights.relu_batch import ReluBatch
from secure_fedgraph.attacks.weights.single import SingleSample
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.registry import Registry, check_subclass, classes_below


def _own() -> dict[str, type[Attack]]:
    """Ordered by catalogue code, A1 to I3; attacks of one code keep the order of their module."""
    classes = classes_below(sys.modules[__name__], Attack, "id")  # type: ignore[type-abstract]
    return dict(sorted(classes.items(), key=lambda item: item[0].split("-")[0]))


def _checked(name: str, candidate: object) -> type[Attack]:
    kind = check_subclass(name, candidate, Attack, "id")  # type: ignore[type-abstract]
    for key in ("family", "summary", "channel"):
        if not getattr(kind, key, ""):
            raise BadInput(f"{kind.__name__} has no {key}: set the class attribute")
    return kind


ATTACKS: Registry[type[Attack]] = Registry("attack", "secure_fedgraph.attacks", _own, _checked)
"""Every attack by its id: each class in this folder with an ``id``, and those of other packages."""


def families() -> list[str]:
    """The families of all attacks.

    >>> "weights" in families()
    True
    """
    return sorted({kind.family for kind in ATTACKS.values()})


__all__ = [
    "ATTACKS",
    "AlikeRows",
    "Attack",
    "Blind",
    "BlindGroups",
    "CohortDifferencing",
    "ConstantAnswers",
    "Control",
    "CountedScores",
    "EmbeddingCounts",
    "EmbeddingDecoder",
    "EmbeddingInversion",
    "EmbeddingLinks",
    "GeneratorBatch",
    "GeneratorColumns",
    "GeneratorOracle",
    "GeneratorSingle",
    "GradientClusters",
    "GradientLabels",
    "GraphStructure",
    "Guess",
    "Judge",
    "Knowledge",
    "LabelCounts",
    "LeaningCompletion",
    "LinkStealing",
    "LinkTeller",
    "ListLinks",
    "ListLinksByOwner",
    "ListedMembers",
    "MashAverage",
    "MashDictionary",
    "MashFilter",
    "MashLabels",
    "MashMixing",
    "MashSingle",
    "ModelClassShares",
    "ModelCompletion",
    "ModelOwner",
    "NeighbourSums",
    "NodeLikelihoodRatio",
    "NodeMembership",
    "OthersRows",
    "OwnShareSubtraction",
    "PayoffQuality",
    "PayoffSizes",
    "PlantedUnits",
    "RedrawnNoise",
    "ReluBatch",
    "RoundDifferencing",
    "ScoredSizes",
    "SingleSample",
    "SingletonMotifs",
    "StandingModel",
    "SubsetAlgebra",
    "SummedMembers",
    "UpdateClassShares",
    "UpdateOwner",
    "VocabularySupport",
    "families",
]
