"""What may be given as data in place of a data set's name: own files, and names of other libraries."""

from __future__ import annotations

import re

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.graph.data.rawfiles import RAW
from secure_fedgraph.graph.tables.suffixes import SUFFIXES

FILES = (".pt", ".npz", *SUFFIXES)
"""How the names of own files end."""
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
PUBLISHED = {f"{raw.pyg}/{raw.argument}".lower(): name for name, raw in RAW.items() if raw.pyg}
"""PyG's class and name of a data set -> its name here."""
_OGB = re.compile(r"ogb[ngl]-[a-z0-9-]+")
_PYG = re.compile(r"[A-Z]\w+/[A-Za-z][\w-]*")


def is_place(text: str) -> bool:
    """Whether it is a file, a folder or a function, by its letters alone: no file is looked at.

    A folder has a slash in it, so that no folder is taken for a data set of its name.

    >>> [is_place(one) for one in ("bank.pt", "./bank", "a/nodes.csv,a/edges.csv", "bank.graphs:load")]
    [True, True, True, True]
    >>> [is_place(one) for one in ("cora", "Planetoid/Cora", "ogbn-arxiv")]
    [False, False, False]
    """
    if text.lower() in PUBLISHED or named_elsewhere(text):
        return False
    return "/" in text or text.endswith(FILES) or bool(FUNCTION.fullmatch(text))


def published(text: str) -> str:
    """The name here of a data set that is given by PyG's class and name; else the text itself.

    >>> published("Planetoid/PubMed"), published("cora")
    ('pubmed', 'cora')
    """
    return PUBLISHED.get(text.lower(), text)


def named_elsewhere(text: str) -> bool:
    """Whether it is a name of OGB's, or of a data set of PyG's that is not one here."""
    if _OGB.fullmatch(text.lower()):
        return True
    classes = {one.partition("/")[0] for one in PUBLISHED}
    named = _PYG.fullmatch(text) and not text.endswith(FILES) and text.partition("/")[0].lower() in classes
    return bool(named) and text.lower() not in PUBLISHED


def check_loadable(text: str) -> None:
    """Refuses a name of another library's data set, and says how it comes here.

    Raises:
        BadInput: for such a name.
    """
    if not named_elsewhere(text):
        return
    library = "OGB" if _OGB.fullmatch(text.lower()) else "PyG"
    first = "pip install ogb, load it" if library == "OGB" else "load it with PyG"
    raise BadInput(
        f"data = {text[:60]!r} is {library}'s, and needs a download that this package does not make: {first} "
        "where there is a network, torch.save(data.to_dict(), 'mine.pt'), and give --data mine.pt"
    )
