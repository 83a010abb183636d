"""Where the raw files of a data set are, and how they are read."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import shutil
import tempfile
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import torch
from torch_geometric.data import Data

from secure_fedgraph.errors import BadInput

VARIABLE = "SECURE_FEDGRAPH_DATA"
_SECONDS = 10.0


@dataclass(frozen=True)
class Raw:
    """Raw files in the layout of one PyG data set class.

    Attributes:
        family: folder under the data root, which PyG gets as its ``root``.
        folder: of the raw files, under ``family``.
        files: their names.
        kind: PyG's class.
        argument: its ``name``.
        sha256: of the files that have one published content. Those are checked after a download, because
            PyG unpickles some of them and a pickle from the network runs as code.
    """

    family: str
    folder: str
    files: tuple[str, ...]
    kind: str
    argument: str
    sha256: Mapping[str, str] = field(default_factory=dict)

    def inside(self, root: Path) -> Path:
        return root / self.family / self.folder

    def present(self, root: Path | None) -> bool:
        return root is not None and all((self.inside(root) / name).is_file() for name in self.files)

    def urls(self) -> dict[str, str]:
        """File name to address, the addresses being PyG's own."""
        base = str(_pyg(self.kind).url)
        if "{}" in base:
            return {name: base.format(Path(name).stem) for name in self.files}
        return {name: f"{base.rstrip('/')}/{name}" for name in self.files}


def cache_folder() -> Path:
    return platformdirs.user_cache_path("secure-fedgraph", appauthor=False)


def data_folder() -> Path | None:
    given = os.environ.get(VARIABLE)
    return Path(given).expanduser() if given else None


def file_hash(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def read_raw(raw: Raw, root: Path) -> Data:
    """Let PyG read a copy of the raw files; ``root`` itself is never written to.

    PyG unpickles the files of ``Planetoid``, so ``root`` has to be a folder that the user trusts.

    Raises:
        BadInput: files that PyG cannot read.
    """
    with tempfile.TemporaryDirectory(prefix="secure-fedgraph-") as scratch:
        copy = raw.inside(Path(scratch))
        copy.mkdir(parents=True)
        for name in raw.files:
            shutil.copyfile(raw.inside(root) / name, copy / name)
        try:
            with _quiet():
                graph = _pyg(raw.kind)(root=str(Path(scratch) / raw.family), name=raw.argument)[0]
        except Exception as error:  # whatever unpickling or unzipping a damaged file can raise
            raise BadInput(
                f"raw files in {str(raw.inside(root))!r} cannot be read ({type(error).__name__}: {error}); "
                f"replace them by intact ones."
            ) from error
    return Data(x=graph.x, y=graph.y, edge_index=graph.edge_index)


def download(raw: Raw, root: Path) -> None:
    """Fetch the files from PyG's addresses over verified TLS into ``root``, all of them or none.

    Raises:
        OSError: no network, no such file, or a content other than the published one.
    """
    target = raw.inside(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as scratch:
        for name, url in raw.urls().items():
            with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
                content = answer.read()
            expected = raw.sha256.get(name)
            if expected and hashlib.sha256(content).hexdigest() != expected:
                raise OSError(f"{url} is not the published file (its SHA-256 differs)")
            (Path(scratch) / name).write_bytes(content)
        target.mkdir(exist_ok=True)
        for name in raw.files:
            os.replace(Path(scratch) / name, target / name)


PACKAGE = "graphdatascience"


def packaged_cora() -> list[Path]:
    """The two Parquet files of Cora in the package ``graphdatascience``, or none.

    The package is located, not imported: importing it loads a database client.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "resources" / "cora"
        files = [folder / f"cora_{part}.parquet.gzip" for part in ("nodes", "rels")]
        if all(path.is_file() for path in files):
            return files
    return []


def package_label() -> str:
    return f"package {PACKAGE} {importlib.metadata.version(PACKAGE)}"


def read_packaged_cora(files: list[Path]) -> Data:
    """Node rows ``nodeId, subject, features`` and citation rows ``sourceNodeId, targetNodeId``."""
    import pyarrow.parquet

    nodes, citations = (pyarrow.parquet.read_table(path) for path in files)
    number = nodes["nodeId"].to_numpy()
    x = nodes["features"].combine_chunks().flatten().to_numpy().reshape(len(number), -1)
    order = np.argsort(number)
    ends = np.stack([citations[key].to_numpy() for key in ("sourceNodeId", "targetNodeId")])
    return Data(
        x=torch.from_numpy(x.astype(np.float32)),
        y=torch.tensor(nodes["subject"].to_numpy()),
        edge_index=torch.from_numpy(order[np.searchsorted(number, ends, sorter=order)]),
    )


def _pyg(kind: str) -> Any:
    import torch_geometric.datasets

    return getattr(torch_geometric.datasets, kind)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    nowhere = io.StringIO()
    with contextlib.redirect_stderr(nowhere), contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
