"""FairGraphFL's motifs in an agent: which its graphs hold, which it lists, and where the list stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.inputs import Expected, Integers, Numbers, Whole
from secure_fedgraph.graph import motifs
from secure_fedgraph.graph.motifs import Motifs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.seams import ClientContext

COUNTED = "counted"
"""Entry of an ask for motif counts, which a global idf is made of."""
IDF, CODES = "rarity", "codes"
LENGTH = "vocabulary_length"
_MOTIFS, _CHOSEN, _PLACES = "motifs", "chosen", "places"
_FIELDS = ("codes", "graph", "motif", "count")


def labels_of(schema: Schema) -> int:
    """How many labels nodes can have: one-hot columns, or the values of a first column of categories."""
    return schema.atoms[0] if schema.atoms else schema.features


def check_public(settings: FairGraphFLSettings, schema: Schema) -> Tensor | None:
    """The public vocabulary, where the settings ask for one.

    Raises:
        BadInput: where it would be too long.
    """
    if schema.features < 1:
        raise BadInput("FairGraphFL's motifs need node labels: the data has no features")
    return motifs.every_motif(labels_of(schema), settings.rings) if settings.vocabulary == "public" else None


def expected_codes(settings: FairGraphFLSettings) -> Integers:
    """The form of a list of motifs."""
    return Integers((None, motifs.width_of(settings.rings)), -1, 2**31)


def expected_idf(settings: FairGraphFLSettings) -> Expected:
    """What an agent may be given when it is asked for its motifs."""
    if settings.idf != "global":
        return ({},)
    idf = {IDF: Numbers((None,))}
    if settings.vocabulary != "public":
        return ({COUNTED: Whole(1, 1)}, {**idf, CODES: expected_codes(settings)})
    return ({COUNTED: Whole(1, 1)}, idf)


def list_motifs(
    client: ClientContext, given: Mapping[str, Any], settings: FairGraphFLSettings
) -> dict[str, Tensor]:
    """What an agent uploads about its motifs: counts for a global idf, or those that it has chosen."""
    own, public = _own_motifs(client, settings), settings.vocabulary == "public"
    if set(given) == {COUNTED}:
        return _counts(own, public, client.schema, settings)
    idf = _given_idf(client, own, given, settings) if settings.idf == "global" else None
    chosen = motifs.most_distinctive(own, settings.motif_keep, idf, settings.support)
    client.memory[_CHOSEN] = chosen
    if not public:
        return {CODES: own.codes[chosen].float()}
    everywhere = motifs.every_motif(labels_of(client.schema), settings.rings)
    at = client.memory[_PLACES] = motifs.places(own.codes[chosen], everywhere)
    client.memory[LENGTH] = len(everywhere)
    present = torch.zeros(len(everywhere))
    present[at] = 1
    return {"present": present}


def _counts(own: Motifs, public: bool, schema: Schema, s: FairGraphFLSettings) -> dict[str, Tensor]:
    holding, graphs = own.graph_counts.float(), float(own.graphs)
    if not public:
        return {CODES: own.codes.float(), "graphs": holding, "of": torch.full_like(holding, graphs)}
    everywhere = motifs.every_motif(labels_of(schema), s.rings)
    spread = torch.zeros(len(everywhere)).index_add(0, motifs.places(own.codes, everywhere), holding)
    return {"graphs": spread, "of": torch.full_like(spread, graphs)}


def _given_idf(
    client: ClientContext, own: Motifs, given: Mapping[str, Any], settings: FairGraphFLSettings
) -> Tensor:
    """The idf that the server sent, for the agent's own motifs."""
    idf, public = given[IDF], settings.vocabulary == "public"
    codes = motifs.every_motif(labels_of(client.schema), settings.rings) if public else given[CODES]
    if idf.shape != codes.shape[:1]:
        raise HostileMessage(f"{client.name} was given an idf of another length than its motifs")
    at = motifs.places(own.codes, codes)
    # what the server leaves out counts for nothing: a refusal would say that the agent has it
    known = torch.cat([idf.double(), idf.new_zeros(1).double()])
    return known[torch.where(at < 0, len(idf), at)]


def take_vocabulary(client: ClientContext, given: Mapping[str, Any], settings: FairGraphFLSettings) -> None:
    """Keeps where the agent's chosen motifs stand in the vocabulary of all agents.

    Raises:
        HostileMessage: for a vocabulary that is none, or before the agent has chosen.
    """
    codes = given[CODES]
    if motifs.check_codes(codes, labels_of(client.schema), settings.rings):
        raise HostileMessage(f"{client.name} was given a vocabulary that is no list of motifs")
    chosen = client.memory.get(_CHOSEN)
    if chosen is None:
        raise HostileMessage(f"{client.name} was given a vocabulary before it was asked for its motifs")
    at = motifs.places(_own_motifs(client, settings).codes[chosen], codes.long())
    # a motif that the vocabulary lacks is dropped: a refusal would say that the agent has it
    client.memory[_CHOSEN], client.memory[_PLACES] = chosen[at >= 0], at[at >= 0]
    client.memory[LENGTH] = len(codes)


def incidence(client: ClientContext, settings: FairGraphFLSettings) -> tuple[Tensor, Tensor]:
    """``[training graphs, chosen]`` of zeros and ones, and ``[chosen]`` where each stands in the vocabulary.

    Raises:
        HostileMessage: where the agent was not asked for its motifs yet.
    """
    own = _own_motifs(client, settings)
    chosen, at = client.memory.get(_CHOSEN), client.memory.get(_PLACES)
    if chosen is None or at is None:
        raise HostileMessage(f"{client.name} was asked for prototypes before its motifs")
    column = torch.full((len(own.codes),), -1, dtype=torch.long)
    column[chosen] = torch.arange(len(chosen))
    mine = column[own.motif]
    kept = mine >= 0
    table = torch.zeros(own.graphs, len(chosen))
    table[own.graph[kept], mine[kept]] = 1
    return table, at


def holds(client: ClientContext, settings: FairGraphFLSettings) -> Tensor:
    """``[training graphs, public vocabulary]`` of zeros and ones: a row depends on its own graph alone.

    No motif is chosen by TF-IDF or ``support``, which every graph has a part in.
    """
    own = _own_motifs(client, settings)
    everywhere = motifs.every_motif(labels_of(client.schema), settings.rings)
    at = motifs.places(own.codes, everywhere)[own.motif]
    table = torch.zeros(own.graphs, len(everywhere))
    table[own.graph[at >= 0], at[at >= 0]] = 1
    return table


def _own_motifs(client: ClientContext, settings: FairGraphFLSettings) -> Motifs:
    """All motifs of the agent's training graphs: looked for once, kept in its memory."""
    training = client.graph.train_mask.nonzero().flatten()
    if _MOTIFS not in client.memory:
        own = motifs.motifs_of(client.graph, training, settings.rings, bool(client.schema.atoms))
        if settings.vocabulary == "public":
            own = _without_kinds_of_link(own)
        client.memory[_MOTIFS] = {key: getattr(own, key) for key in _FIELDS}
    return Motifs(**client.memory[_MOTIFS], graphs=len(training))


def _without_kinds_of_link(own: Motifs) -> Motifs:
    """The same motifs, bonds that differ in their kind of link counted together."""
    plain = own.codes.clone()
    plain[:, 3] = torch.where(plain[:, 0] == motifs.BOND, 0, plain[:, 3])
    codes, number = plain.unique(dim=0, return_inverse=True)
    pairs, inverse = torch.stack([own.graph, number[own.motif]]).unique(dim=1, return_inverse=True)
    count = torch.zeros(pairs.shape[1], dtype=torch.long).index_add(0, inverse, own.count)
    return Motifs(codes, pairs[0], pairs[1], count, own.graphs)
