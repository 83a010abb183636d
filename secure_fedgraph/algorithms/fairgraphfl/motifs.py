"""FairGraphFL's motifs in an agent and between agents: what it lists, and where its list stands in theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from secure_fedgraph.algorithms.fairgraphfl.settings import FairGraphFLSettings
from secure_fedgraph.errors import BadInput, HostileMessage
from secure_fedgraph.graph import motifs
from secure_fedgraph.graph.motifs import Motifs
from secure_fedgraph.graph.schema import Schema
from secure_fedgraph.protocol.given import Expected, Integers, Numbers, Whole
from secure_fedgraph.seams import ClientContext

COUNTED = "counted"
"""Entry of an ask for motif counts, which a global idf is made of."""
RARITY, CODES = "rarity", "codes"
LENGTH = "vocabulary_length"
_FOUND, _CHOSEN, _PLACES = "motifs", "chosen", "places"
_FIELDS = ("codes", "graph", "motif", "count")


def labels_of(schema: Schema) -> int:
    """How many labels nodes can have: one-hot columns, or the values of a first column of categories."""
    return schema.atoms[0] if schema.atoms else schema.features


def codes_of(settings: FairGraphFLSettings) -> Integers:
    """The form of a list of motifs."""
    return Integers((None, motifs.width_of(settings.rings)), -1, 2**31)


def asks(settings: FairGraphFLSettings) -> Expected:
    """What an agent may be given with an ask for its motifs."""
    if settings.idf != "global":
        return ({},)
    told = {RARITY: Numbers((None,))}
    if settings.vocabulary != "public":
        return ({COUNTED: Whole(1, 1)}, {**told, CODES: codes_of(settings)})
    return ({COUNTED: Whole(1, 1)}, told)


# --- in an agent


def listed(
    client: ClientContext, given: Mapping[str, Any], settings: FairGraphFLSettings
) -> dict[str, Tensor]:
    """What an agent uploads about its motifs: counts for a global idf, or those that it has chosen."""
    found, public = _found(client, settings), settings.vocabulary == "public"
    if set(given) == {COUNTED}:
        if settings.idf != "global":
            raise HostileMessage(f"{client.name} counts its motifs for nobody: its idf is its own")
        return _counted(found, public, client.schema, settings)
    rarity = _rarity(client, found, given, settings) if settings.idf == "global" else None
    chosen = motifs.telling(found, settings.motif_keep, rarity, settings.support)
    client.memory[_CHOSEN] = chosen
    if not public:
        return {CODES: found.codes[chosen].float()}
    everywhere = motifs.every_motif(labels_of(client.schema), settings.rings)
    at = client.memory[_PLACES] = motifs.places(found.codes[chosen], everywhere)
    client.memory[LENGTH] = len(everywhere)
    present = torch.zeros(len(everywhere))
    present[at] = 1
    return {"present": present}


def _counted(found: Motifs, public: bool, schema: Schema, s: FairGraphFLSettings) -> dict[str, Tensor]:
    holding, graphs = found.holding.float(), float(found.graphs)
    if not public:
        return {CODES: found.codes.float(), "graphs": holding, "of": torch.full_like(holding, graphs)}
    everywhere = motifs.every_motif(labels_of(schema), s.rings)
    spread = torch.zeros(len(everywhere)).index_add(0, motifs.places(found.codes, everywhere), holding)
    return {"graphs": spread, "of": torch.full_like(spread, graphs)}


def _rarity(
    client: ClientContext, found: Motifs, given: Mapping[str, Any], settings: FairGraphFLSettings
) -> Tensor:
    """The idf that the server told, for the agent's own motifs."""
    rarity = given.get(RARITY)
    codes = given.get(CODES)
    if settings.vocabulary == "public":
        codes = motifs.every_motif(labels_of(client.schema), settings.rings)
    if (
        not isinstance(rarity, Tensor)
        or not isinstance(codes, Tensor)
        or codes.dim() != 2
        or rarity.shape != codes.shape[:1]
    ):
        raise HostileMessage(f"{client.name} was told no idf for its motifs, or one of another length")
    if not bool(torch.isfinite(rarity).all()):
        raise HostileMessage(f"{client.name} was told an idf that is not finite")
    at = motifs.places(found.codes, codes)
    # what the server leaves out counts for nothing: a refusal would say that the agent has it
    known = torch.cat([rarity.double(), rarity.new_zeros(1).double()])
    return known[torch.where(at < 0, len(rarity), at)]


def take_vocabulary(client: ClientContext, given: Mapping[str, Any], settings: FairGraphFLSettings) -> None:
    """Finds the agent's chosen motifs in the vocabulary of all agents."""
    codes = given.get(CODES)
    if not isinstance(codes, Tensor) or motifs.check_codes(codes, labels_of(client.schema), settings.rings):
        raise HostileMessage(f"{client.name} was told a vocabulary that is no list of motifs")
    chosen = client.memory.get(_CHOSEN)
    if chosen is None:
        raise HostileMessage(f"{client.name} was told a vocabulary before it was asked for its motifs")
    at = motifs.places(_found(client, settings).codes[chosen], codes.long())
    # a motif that the vocabulary lacks is dropped: a refusal would say that the agent has it
    client.memory[_CHOSEN], client.memory[_PLACES] = chosen[at >= 0], at[at >= 0]
    client.memory[LENGTH] = len(codes)


def incidence(client: ClientContext, settings: FairGraphFLSettings) -> tuple[Tensor, Tensor]:
    """``[training graphs, chosen]`` of zeros and ones, and where each chosen motif stands in the
    vocabulary."""
    found = _found(client, settings)
    chosen, at = client.memory.get(_CHOSEN), client.memory.get(_PLACES)
    if chosen is None or at is None:
        raise HostileMessage(f"{client.name} was asked for prototypes before its motifs")
    column = torch.full((len(found.codes),), -1, dtype=torch.long)
    column[chosen] = torch.arange(len(chosen))
    mine = column[found.motif]
    kept = mine >= 0
    table = torch.zeros(found.graphs, len(chosen))
    table[found.graph[kept], mine[kept]] = 1
    return table, at


def holds(client: ClientContext, settings: FairGraphFLSettings) -> Tensor:
    """``[training graphs, public vocabulary]`` of zeros and ones: a row depends on its own graph alone.

    No motif is chosen by TF-IDF or ``support``, which every graph has a part in.
    """
    found = _found(client, settings)
    everywhere = motifs.every_motif(labels_of(client.schema), settings.rings)
    at = motifs.places(found.codes, everywhere)[found.motif]
    table = torch.zeros(found.graphs, len(everywhere))
    table[found.graph[at >= 0], at[at >= 0]] = 1
    return table


def _found(client: ClientContext, settings: FairGraphFLSettings) -> Motifs:
    """All motifs of the agent's training graphs: found once, kept in its memory."""
    training = client.graph.train_mask.nonzero().flatten()
    if _FOUND not in client.memory:
        found = motifs.motifs_of(client.graph, training, settings.rings, bool(client.schema.atoms))
        if settings.vocabulary == "public":
            found = _merged(found)
        client.memory[_FOUND] = {key: getattr(found, key) for key in _FIELDS}
    return Motifs(**client.memory[_FOUND], graphs=len(training))


def _plain(codes: Tensor) -> Tensor:
    """Codes with the kind of a bond left out."""
    found = codes.clone()
    found[:, 3] = torch.where(found[:, 0] == motifs.BOND, 0, found[:, 3])
    return found


def _merged(found: Motifs) -> Motifs:
    """The same motifs, bonds that differ in their kind of link counted together."""
    codes, number = _plain(found.codes).unique(dim=0, return_inverse=True)
    pairs, inverse = torch.stack([found.graph, number[found.motif]]).unique(dim=1, return_inverse=True)
    count = torch.zeros(pairs.shape[1], dtype=torch.long).index_add(0, inverse, found.count)
    return Motifs(codes, pairs[0], pairs[1], count, found.graphs)


# --- at the server


def together(
    lists: Mapping[str, Mapping[str, Tensor]],
    codes: Tensor | None,
    settings: FairGraphFLSettings,
    labels: int,
) -> tuple[Tensor, Tensor]:
    """The vocabulary of all agents, and ``[agents, vocabulary]`` who has listed what.

    Args:
        lists: agent -> what it uploaded.
        codes: the public vocabulary, or None.
        labels: how many a motif may name.

    Raises:
        HostileMessage: for a list that no agent makes.
    """
    if codes is not None:
        rows = [_row(name, values, "present", len(codes)) > 0.5 for name, values in lists.items()]
        return codes, torch.stack(rows)
    own = {name: _codes(name, values, settings, labels) for name, values in lists.items()}
    vocabulary = torch.cat(list(own.values())).unique(dim=0)
    present = torch.zeros(len(own), len(vocabulary), dtype=torch.bool)
    for row, found in zip(present, own.values(), strict=True):
        row[motifs.places(found, vocabulary)] = True
    return vocabulary, present


def rarities(
    counted: Mapping[str, Mapping[str, Tensor]],
    codes: Tensor | None,
    settings: FairGraphFLSettings,
    labels: int,
) -> dict[str, Tensor]:
    """The idf over all agents' graphs, to be told to everybody."""
    vocabulary = codes
    own = {} if codes is not None else {n: _codes(n, v, settings, labels) for n, v in counted.items()}
    if vocabulary is None:
        vocabulary = torch.cat(list(own.values())).unique(dim=0)
    holding, graphs = torch.zeros(len(vocabulary), dtype=torch.float64), 0
    for name, values in counted.items():
        at = motifs.places(own[name], vocabulary) if own else torch.arange(len(vocabulary))
        found = _row(name, values, "graphs", len(at)).double().clamp(min=0)
        of = _row(name, values, "of", len(at))
        graphs += round(float(of.mean())) if len(of) else 0
        holding.index_add_(0, at, found)
    told = {RARITY: motifs.idf(holding, max(graphs, 0))}
    return told if codes is not None else {**told, CODES: vocabulary}


def _codes(name: str, values: Mapping[str, Tensor], settings: FairGraphFLSettings, labels: int) -> Tensor:
    codes = values.get(CODES, torch.zeros(0))
    wrong = motifs.check_codes(codes, labels, settings.rings)
    if wrong:
        raise HostileMessage(f"the motif list of {name} holds {wrong}")
    return codes.long()


def _row(name: str, values: Mapping[str, Tensor], key: str, length: int) -> Tensor:
    row = values.get(key)
    if not isinstance(row, Tensor) or row.shape != (length,) or not bool(torch.isfinite(row).all()):
        raise HostileMessage(f"the motifs of {name} are not {length} finite numbers {key!r}")
    return row


def check_public(settings: FairGraphFLSettings, schema: Schema) -> Tensor | None:
    """The public vocabulary, where the settings ask for one.

    Raises:
        BadInput: where it would be too long.
    """
    if schema.features < 1:
        raise BadInput("FairGraphFL's motifs need node labels: the data has no features")
    return motifs.every_motif(labels_of(schema), settings.rings) if settings.vocabulary == "public" else None
