"""Where the raw files of a data set are, and how they are read."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
import urllib.parse
import urllib.request
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from secure_fedgraph.core.errors import BadInput

if TYPE_CHECKING:  # where files lie is asked without torch
    from torch_geometric.data import Data

VARIABLE = "SECURE_FEDGRAPH_DATA"
CACHE = "SECURE_FEDGRAPH_CACHE"
_SECONDS = 10.0


@dataclass(frozen=True)
class Raw:
    """Raw files, in the layout of a PyG data set class where there is one.

    Attributes:
        kind: of the data set made from them; the ``kind`` of one of the classes in ``kinds``.
        family: folder under the data root, which PyG gets as its ``root``.
        folder: of the raw files, under ``family``.
        files: their names.
        pyg: name of PyG's class; empty if PyG has none, and then nothing can be downloaded.
        argument: the ``name`` that PyG's class is called with.
        sha256: of the files that have one published content. Those are checked after a download and before
            they are read, because PyG unpickles some of them, and a pickle from somebody else runs as code.
    """

    kind: str
    family: str
    folder: str
    files: tuple[str, ...]
    pyg: str = ""
    argument: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def below(self) -> str:
        """The folder of the raw files under a data root."""
        return f"{self.family}/{self.folder}"

    def inside(self, root: Path) -> Path:
        return root / self.family / self.folder

    def paths(self, root: Path) -> list[Path]:
        """The files in their folder, or right under the family's, as some repositories have them."""
        places = [[place / name for name in self.files] for place in (self.inside(root), root / self.family)]
        return next((files for files in places if all(path.is_file() for path in files)), places[0])

    def present(self, root: Path | None) -> bool:
        return root is not None and all(path.is_file() for path in self.paths(root))

    def urls(self) -> dict[str, str]:
        """File name to address, the addresses being PyG's own; an archive holds several files."""
        if not self.pyg:
            return {}
        base = str(_class(self.pyg).url)
        if self.pyg == "TUDataset":
            return dict.fromkeys(self.files, f"{base}/{self.argument}.zip")
        if self.pyg == "MoleculeNet":
            return {name: base.format(name) for name in self.files}
        if "{}" in base:
            return {name: base.format(Path(name).stem) for name in self.files}
        return {name: f"{base.rstrip('/')}/{name}" for name in self.files}

    def host(self) -> str:
        """The host that a download contacts; empty if nothing can be downloaded."""
        return next((str(urllib.parse.urlsplit(url).hostname) for url in self.urls().values()), "")


def cache_folder() -> Path:
    """``$SECURE_FEDGRAPH_CACHE`` where it is set, else the user's cache folder."""
    if given := os.environ.get(CACHE):
        return Path(given).expanduser()
    return platformdirs.user_cache_path("secure-fedgraph", appauthor=False)


def data_folder() -> Path | None:
    given = os.environ.get(VARIABLE)
    return Path(given).expanduser() if given else None


def file_hash(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@contextlib.contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Turns any error from damaged files into one ``BadInput`` that names their folder."""
    try:
        yield
    except Exception as error:  # unpickling, unzipping and parsing can raise anything
        raise BadInput(
            f"raw files in {str(folder)!r} cannot be read ({type(error).__name__}: {error}); "
            f"replace them by intact ones."
        ) from error


def read_pyg(raw: Raw, files: list[Path]) -> list[Data]:
    """Let PyG read copies of these raw files; their own folder is never written to.

    PyG unpickles the files of ``Planetoid``, so only those with the published hashes are read.

    Raises:
        BadInput: for files that PyG cannot read, and for unpublished files that PyG would unpickle.
    """
    with tempfile.TemporaryDirectory(prefix="secure-fedgraph-") as scratch:
        copy = raw.inside(Path(scratch))
        copy.mkdir(parents=True)
        for path in files:
            shutil.copyfile(path, copy / path.name)
            _check_published(raw, copy / path.name, path)
        with readable(files[0].parent), _quiet():
            root = str(Path(scratch) / raw.family)
            read = _class(raw.pyg)(root=root, name=raw.argument)
            return [read[number] for number in range(len(read))]


def _check_published(raw: Raw, copy: Path, path: Path) -> None:
    expected = raw.sha256.get(path.name)
    if expected and hashlib.sha256(copy.read_bytes()).hexdigest() != expected:
        raise BadInput(
            f"{str(path)!r} is not the published file (its SHA-256 differs), and reading it could run code "
            "from it: restore the published file"
        )


def download(raw: Raw, root: Path) -> None:
    """Fetch the files from PyG's addresses over verified TLS into ``root``, all of them or none.

    Raises:
        OSError: no network, no such file, or a content other than the published one.
    """
    target = raw.inside(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    urls = raw.urls()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".download-") as scratch:
        for url in dict.fromkeys(urls.values()):
            with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
                content = answer.read()
            wanted = [name for name in raw.files if urls[name] == url]
            for name, piece in _pieces(raw, url, content, wanted).items():
                expected = raw.sha256.get(name)
                if expected and hashlib.sha256(piece).hexdigest() != expected:
                    raise OSError(f"{url} is not the published file (its SHA-256 differs)")
                (Path(scratch) / name).write_bytes(piece)
        target.mkdir(exist_ok=True)
        for name in raw.files:
            os.replace(Path(scratch) / name, target / name)


def _pieces(raw: Raw, url: str, content: bytes, wanted: list[str]) -> dict[str, bytes]:
    if not url.endswith(".zip"):
        return {wanted[0]: content}
    try:
        # Members are read by their known names, so no name inside the archive decides what is written.
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(f"{raw.argument}/{name}") for name in wanted}
    except (zipfile.BadZipFile, KeyError) as error:
        raise OSError(f"{url} is not the published archive ({error})") from error


def _class(name: str) -> Any:
    import torch_geometric.datasets

    return getattr(torch_geometric.datasets, name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    nowhere = io.StringIO()
    with contextlib.redirect_stderr(nowhere), contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
