"""Attacks: each reads a View and nothing else. Scores are made in ``audits``, where the truth is."""

from __future__ import annotations

from attacks.active import GeneratorOracle
from attacks.attack import Attack, Blind, Control, Guess, Knowledge
from attacks.mashes import MashLabels
from attacks.mashes_mixing import MashMixing
from attacks.mashes_noise import MashAverage
from attacks.mashes_pool import MashDictionary, MashFilter
from attacks.mashes_single import MashSingle
from attacks.neighgen import GeneratorBatch, GeneratorColumns, GeneratorSingle
from attacks.neighgen_embeddings import EmbeddingCounts, EmbeddingDecoder, EmbeddingLinks
from attacks.prototypes import RoundDifferencing, SingletonMotifs, SubsetAlgebra
from attacks.released import EmbeddingInversion, LinkStealing
from attacks.released_shadow import NodeMembership
from attacks.rounds import CohortDifferencing, OwnShareSubtraction, RedrawnNoise
from attacks.vertical import AlikeRows, OthersRows
from attacks.vertical_labels import GradientClusters, GradientLabels
from attacks.vertical_lists import ListLinks, ListLinksByOwner
from attacks.weights import LabelCounts, VocabularySupport
from attacks.weights_single import SingleSample

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
