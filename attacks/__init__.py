"""Attacks: each reads a View and nothing else. Scores are made in ``audits``, where the truth is."""

from __future__ import annotations

from secure_fedgraph.attacks.active import GeneratorOracle
from secure_fedgraph.attacks.attack import Attack, Blind, Control, Guess, Knowledge
from secure_fedgraph.attacks.mashes.labels import MashLabels
from secure_fedgraph.attacks.mashes.mixing import MashMixing
from secure_fedgraph.attacks.mashes.noise import MashAverage
from secure_fedgraph.attacks.mashes.pool import MashDictionary, MashFilter
from secure_fedgraph.attacks.mashes.single import MashSingle
from secure_fedgraph.attacks.neighgen import GeneratorBatch, GeneratorColumns, GeneratorSingle
from secure_fedgraph.attacks.neighgen_embeddings import EmbeddingCounts, EmbeddingDecoder, EmbeddingLinks
from secure_fedgraph.attacks.prototypes import RoundDifferencing, SingletonMotifs, SubsetAlgebra
from secure_fedgraph.attacks.released import EmbeddingInversion, LinkStealing
from secure_fedgraph.attacks.released_shadow import NodeMembership
from secure_fedgraph.attacks.rounds import CohortDifferencing, OwnShareSubtraction, RedrawnNoise
from secure_fedgraph.attacks.vertical.labels import GradientClusters, GradientLabels
from secure_fedgraph.attacks.vertical.lists import ListLinks, ListLinksByOwner
from secure_fedgraph.attacks.vertical.rows import AlikeRows, OthersRows
from secure_fedgraph.attacks.weights import LabelCounts, VocabularySupport
from secure_fedgraph.attacks.weights_single import SingleSample

ATTACKS: dict[str, type[Attack]] = {
    kind.id: kind
    for kind in (
        VocabularySupport,
        SingleSample,
        LabelCounts,
        GeneratorSingle,
        GeneratorBatch,
        GeneratorColumns,
        GeneratorOracle,
        EmbeddingDecoder,
        EmbeddingLinks,
        EmbeddingCounts,
        ListLinks,
        ListLinksByOwner,
        OthersRows,
        AlikeRows,
        GradientLabels,
        GradientClusters,
        SingletonMotifs,
        SubsetAlgebra,
        RoundDifferencing,
        MashSingle,
        MashLabels,
        MashAverage,
        MashDictionary,
        MashFilter,
        MashMixing,
        CohortDifferencing,
        OwnShareSubtraction,
        RedrawnNoise,
        LinkStealing,
        EmbeddingInversion,
        NodeMembership,
    )
}
FAMILIES = sorted({kind.family for kind in ATTACKS.values()})

__all__ = [
    "ATTACKS",
    "FAMILIES",
    "AlikeRows",
    "Attack",
    "Blind",
    "CohortDifferencing",
    "Control",
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
    "Guess",
    "Knowledge",
    "LabelCounts",
    "LinkStealing",
    "ListLinks",
    "ListLinksByOwner",
    "MashAverage",
    "MashDictionary",
    "MashFilter",
    "MashLabels",
    "MashMixing",
    "MashSingle",
    "NodeMembership",
    "OthersRows",
    "OwnShareSubtraction",
    "RedrawnNoise",
    "RoundDifferencing",
    "SingleSample",
    "SingletonMotifs",
    "SubsetAlgebra",
    "VocabularySupport",
]
