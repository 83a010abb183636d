"""Molecules: the public vocabularies of atoms and bonds, and a generator whose classes depend on motifs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch_geometric.data import Data

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.store import digest_of
from secure_fedgraph.graph.kinds import Dataset, GraphSetDataset
from secure_fedgraph.graph.schema import Schema

NAME = "synthetic-molecules"
ATOMS = (119, 9, 11, 12, 9, 5, 8, 2, 2)
"""How many values each column of an atom can take, as PyG reads molecules: element, chirality, degree,
charge (5 is neutral), hydrogens, radical electrons, hybridisation, aromatic, on a ring."""
BONDS = (22, 6, 2)
"""The same for a bond: type, stereo, conjugated."""
MOLECULES = ("bbbp", NAME)
"""Data sets with these columns."""

SINGLE, DOUBLE, AROMATIC = 1, 2, 12
CARBON, NITROGEN, OXYGEN, CHLORINE = 6, 7, 8, 17
VALENCE = {CARBON: 4, NITROGEN: 3, OXYGEN: 2, CHLORINE: 1}
NEUTRAL = 5
SP2, SP3 = 3, 4


@dataclass(frozen=True)
class Motif:
    """A group of atoms that hangs on the chain by its first atom.

    Args:
        atoms: elements.
        bonds: ``(one atom, another, type)``.
        weight: what it adds to the molecule's score.
    """

    atoms: tuple[int, ...]
    bonds: tuple[tuple[int, int, int], ...]
    weight: float


def schema_of(dataset: Dataset) -> Schema:
    """What everybody knows about a data set; for molecules, also the vocabularies of their columns.

    Raises:
        BadInput: for a molecule with a value that is not in its column's vocabulary.
    """
    features, classes = (int(getattr(dataset, key, 0)) for key in ("features", "classes"))
    if not isinstance(dataset, GraphSetDataset) or dataset.name not in MOLECULES:
        return Schema(features, classes, dataset.kind)
    for key, sizes in (("x", ATOMS), ("edge_attr", BONDS)):
        values = torch.cat([graph[key] for graph in dataset.graphs])
        if values.shape[1] != len(sizes) or bool(((values < 0) | (values >= torch.tensor(sizes))).any()):
            raise BadInput(f"{dataset.name!r}: {key} is not in the columns that PyG reads molecules into")
    return Schema(features, classes, dataset.kind, ATOMS, BONDS)


def _ring(size: int, kind: int) -> tuple[tuple[int, int, int], ...]:
    return tuple((i, (i + 1) % size, kind) for i in range(size))


MOTIFS: dict[str, Motif] = {
    "benzene": Motif((CARBON,) * 6, _ring(6, AROMATIC), 1.0),
    "cyclohexane": Motif((CARBON,) * 6, _ring(6, SINGLE), -1.0),
    "chlorine": Motif((CHLORINE,), (), 0.5),
    "amine": Motif((NITROGEN,), (), 0.5),
    "carboxyl": Motif((CARBON, OXYGEN, OXYGEN), ((0, 1, DOUBLE), (0, 2, SINGLE)), -1.0),
    "ether": Motif((OXYGEN, CARBON), ((0, 1, SINGLE),), 0.0),
}


def generate(
    graphs: int = 400, seed: int = 0, mean_motifs: float = 2.5, chain: int = 6, noise: float = 0.05
) -> GraphSetDataset:
    """Made-up molecules in BBBP's columns: a branched carbon chain with motifs hung onto it.

    The class is 1 where the motifs' weights (:data:`MOTIFS`) add up to more than 0. The two rings have the
    same elements and opposite weights, so a count of elements alone does not give the class.

    Args:
        graphs: how many molecules.
        seed: the same arguments give the same molecules.
        mean_motifs: average number of motifs on a molecule; each has one at least.
        chain: carbons of the longest chain; half as many are in the shortest.
        noise: share of molecules whose class is flipped.

    Raises:
        BadInput: an argument out of range.

    >>> made = generate(graphs=10)
    >>> len(made.graphs), made.features, made.classes, made.graphs[0].edge_attr.shape[1]
    (10, 9, 2, 3)
    """
    for key, good, wanted in (
        ("graphs", 1 <= graphs <= 10**6, "1 to 1000000"),
        ("mean_motifs", 1 <= mean_motifs <= 20, "1 to 20"),
        ("chain", 1 <= chain <= 100, "1 to 100"),
        ("noise", 0 <= noise <= 0.5, "0 to 0.5"),
    ):
        if not good:
            raise BadInput(f"dataset.{key} of {NAME} is out of range: give {wanted}")
    rng = np.random.default_rng(seed)
    made = [_molecule(rng, mean_motifs, chain, noise) for _ in range(graphs)]
    tables = {
        "x": np.concatenate([x for x, _, _, _ in made]),
        "edge_index": np.concatenate([links for _, links, _, _ in made], axis=1),
        "edge_attr": np.concatenate([kinds for _, _, kinds, _ in made]),
        "y": np.array([label for *_, label in made], dtype=np.int64),
        "nodes": np.array([len(x) for x, *_ in made], dtype=np.int64),
    }
    molecules = [
        Data(
            x=torch.from_numpy(x),
            edge_index=torch.from_numpy(links),
            edge_attr=torch.from_numpy(kinds),
            y=torch.tensor([label]),
        )
        for x, links, kinds, label in made
    ]
    return GraphSetDataset(NAME, molecules, f"generated with seed {seed}", digest_of(tables), len(ATOMS), 2)


def _molecule(
    rng: np.random.Generator, mean_motifs: float, chain: int, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Atoms, links in both directions, their kinds, and the class."""
    length = int(rng.integers(max(1, chain // 2), chain + 1))
    elements, ringed = [CARBON] * length, [False] * length
    bonds = [(i, i + 1, SINGLE) for i in range(length - 1)]
    names, score = list(MOTIFS), 0.0
    # a carbon of the chain has two free places, so it can hold two motifs
    places = rng.permutation(np.repeat(np.arange(length), 2))
    for place in places[: 1 + int(rng.poisson(mean_motifs - 1))]:
        motif = MOTIFS[names[int(rng.integers(len(names)))]]
        first = len(elements)
        elements += motif.atoms
        ringed += [len(motif.bonds) == len(motif.atoms)] * len(motif.atoms)
        bonds += [(first + a, first + b, kind) for a, b, kind in motif.bonds]
        bonds.append((int(place), first, SINGLE))
        score += motif.weight
    x, links, kinds = _tables(np.array(elements), np.array(bonds, dtype=np.int64).reshape(-1, 3))
    x[:, 8] = ringed
    return x, links, kinds, int((score > 0) ^ (rng.random() < noise))


def _tables(elements: np.ndarray, bonds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns of PyG: what follows from elements and bonds alone."""
    atoms = len(elements)
    ends = np.concatenate([bonds[:, :2], bonds[:, 1::-1]])
    kind = np.concatenate([bonds[:, 2]] * 2)
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    ends, kind = ends[order], kind[order]
    degree = np.bincount(ends[:, 0], minlength=atoms)
    used = np.bincount(
        ends[:, 0], weights=np.where(kind == DOUBLE, 2, np.where(kind == AROMATIC, 1.5, 1)), minlength=atoms
    )
    valence = np.array([VALENCE[int(e)] for e in elements])
    flat = np.bincount(ends[:, 0], weights=kind != SINGLE, minlength=atoms) > 0
    aromatic = np.bincount(ends[:, 0], weights=kind == AROMATIC, minlength=atoms) > 0
    x = np.zeros((atoms, len(ATOMS)), dtype=np.float32)
    x[:, 0], x[:, 2], x[:, 3] = elements, degree, NEUTRAL
    x[:, 4] = np.maximum(valence - np.ceil(used), 0)
    x[:, 6] = np.where(flat, SP2, SP3)
    x[:, 7] = aromatic
    attributes = np.zeros((len(kind), len(BONDS)), dtype=np.float32)
    attributes[:, 0], attributes[:, 2] = kind, kind == AROMATIC
    return x, ends.T.astype(np.int64).copy(), attributes
