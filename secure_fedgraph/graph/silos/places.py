"""What may be given as data in place of a data set's name: own files."""

from __future__ import annotations

import re

from secure_fedgraph.graph.tables.suffixes import SUFFIXES

FILES = (".pt", ".npz", *SUFFIXES)
"""How the names of own files end."""
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_place(text: str) -> bool:
    """Whether it is a file, a folder or a function, by its letters alone: no file is looked at.

    A folder has a slash in it, so that no folder is taken for a data set of its name.

    >>> [is_place(one) for one in ("bank.pt", "./bank", "a/nodes.csv,a/edges.csv", "bank.graphs:load")]
    [True, True, True, True]
    >>> is_place("cora"), is_place("ogbn-arxiv")
    (False, False)
    """
    return "/" in text or text.endswith(FILES) or bool(FUNCTION.fullmatch(text))
