"""Sparse vectors in a row space: which hidden activations a low-rank gradient is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor

from secure_fedgraph.arguments import unknown_name

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class RowSpace:
    """The factors of a low-rank matrix ``left @ diag(values) @ basis.T``, float64.

    Attributes:
        left: ``[rows, rank]``.
        values: ``[rank]`` singular values.
        basis: ``[columns, rank]`` orthonormal basis of the row space.
        noise: standard deviation of one entry's error, from the singular values beyond the rank.
    """

    left: Tensor
    values: Tensor
    basis: Tensor
    noise: float

    @property
    def rank(self) -> int:
        """How many independent rows: the number of nodes with a gradient."""
        return len(self.values)

    def error(self, w: Tensor) -> Tensor:
        """How far an entry of ``basis @ w`` is off because of the matrix's own errors, ``[B, 1]``."""
        spread: Tensor = self.noise * (w / self.values).norm(dim=-1, keepdim=True)
        return spread


def row_space(matrix: Tensor, most: int, *, seed: int = 0) -> RowSpace:
    """The row space of a matrix of rank at most ``most``, by a randomised range finder.

    The rank is where neighbouring singular values differ most. Errors of float32 or of a fixed-point grid
    put a floor under the singular values, at about ``(sqrt(rows) + sqrt(columns)) * noise``.

    Args:
        matrix: ``[rows, columns]``, float64.
        most: the largest rank that it can have without errors.

    References:
        Halko, Martinsson, Tropp 2011, algorithm 4.4.
    """
    rows, columns = matrix.shape
    width = min(most + 16, rows, columns)
    generator = torch.Generator().manual_seed(seed)
    sketch = matrix @ torch.randn(columns, width, generator=generator, dtype=matrix.dtype)
    for _ in range(2):
        sketch = matrix @ (matrix.T @ torch.linalg.qr(sketch)[0])
    q = torch.linalg.qr(sketch)[0]
    u, s, vt = torch.linalg.svd(q.T @ matrix, full_matrices=False)
    s = s.clamp_min(float(s[0]) * 1e-16 + 1e-300)
    ratios = s[:-1][:most] / s[1:][:most]
    rank = int(ratios.argmax()) + 1 if len(ratios) else 1
    beyond = float(s[rank]) if rank < len(s) else 0.0
    noise = max(beyond, float(s[0]) * 1e-13) / (rows**0.5 + columns**0.5)
    return RowSpace(q @ u[:, :rank], s[:rank], vt[:rank].T.contiguous(), noise)


def sparse_rows(
    space: RowSpace,
    *,
    seconds: float,
    search: str = "contrast",
    known: Tensor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    signed: bool = False,
    most: int | None = None,
) -> Tensor:
    """The non-negative sparse vectors of a row space, as coefficients on its basis.

    **Guarantees:** a vector is returned only if it is non-negative, many more than ``rank - 1`` of its
    entries are zero, and those alone determine it (they have rank ``rank - 1``). A combination of two
    activations fails: the entries where both are zero do not determine it, and if it has further zeros
    because they cancel, it is a difference, which is negative elsewhere.

    Args:
        space: of ``rank`` r, over ``columns`` hidden units.
        seconds: give up after this much processor time, so that a busy machine does not make an attack look
            weak; the vectors recovered so far are returned.
        search: "contrast", "columns" or "kurtosis", see :data:`SEARCHES`.
        known: ``[k, columns]`` vectors that were recovered before in a smaller space.
        signed: vectors may be negative too. Then a difference of two of them may be one more, where it has
            as many zeros; whoever asks has to tell them apart.
        most: end with this many; as many as the rank where None.

    Returns:
        ``[vectors, r]`` unit coefficients ``w``; ``basis @ w`` is the vector up to a positive scale.
    """
    if search not in SEARCHES:
        raise unknown_name("search", search, SEARCHES)
    with one_thread():
        return _search(space, seconds, search, known, seed, progress, signed, most or space.rank)


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: sums keep one order whatever else runs, and this thread's time is the whole cost.

    More threads do not speed up many small decompositions.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _search(
    space: RowSpace,
    seconds: float,
    search: str,
    known: Tensor | None,
    seed: int,
    progress: Progress | None,
    signed: bool,
    most: int,
) -> Tensor:
    deadline = time.thread_time() + seconds
    basis = space.basis[space.basis.norm(dim=1) > 1e-6 * space.basis.norm() / len(space.basis) ** 0.5]
    vectors = basis.new_zeros(0, space.rank)
    if known is not None and len(known):
        vectors = _distinct(vectors, _proven(space, basis, known @ space.basis, 10.0, signed))
    generator = torch.Generator().manual_seed(seed)
    if space.rank == 1:
        return _proven(space, basis, space.basis[:0], 1.0, signed)
    # In small spaces the column search always succeeds; few and similar activations need it.
    turns = [search, "columns"] if space.rank <= 12 else [search]
    for turn in cycle(turns):
        if len(vectors) >= most:
            break
        loose = 1e3 if turn == "columns" else 10.0
        taken = vectors[: space.rank - 1]  # nothing is left beside as many as the rank
        vectors = _distinct(
            vectors, _proven(space, basis, SEARCHES[turn](basis, taken, generator), loose, signed), signed
        )
        if progress:
            progress(len(vectors), space.rank)
        if time.thread_time() > deadline:
            break
    return vectors[:most]


def by_columns(basis: Tensor, recovered: Tensor, generator: torch.Generator) -> Tensor:
    """Candidates that are zero at ``r - 1`` random columns, screened on 32 others.

    With a share s of zeros one candidate in ``s**-(r-1) / r`` is right: the published search, whose cost
    grows exponentially with the batch.

    References:
        SPEAR, Dimitrov et al., NeurIPS 2024.
    """
    columns, r = basis.shape
    stack = max(64, min(4096, 2_000_000 // r**2))
    chosen = torch.rand(stack, columns, generator=generator).topk(r - 1, dim=1).indices
    block = basis[chosen]
    head, _ = torch.linalg.solve_ex(block[:, :, :-1], -block[:, :, -1:])
    w = torch.cat([head.squeeze(-1), torch.ones(stack, 1, dtype=basis.dtype)], dim=1)
    w = w[w.isfinite().all(1)]
    w = w / w.norm(dim=1, keepdim=True)
    probe = torch.randint(columns, (32,), generator=generator)
    near = (w @ basis[probe].T).abs() * columns**0.5 < 1e-2
    rows: Tensor = w[near.sum(1) >= 5]
    return rows


def by_contrast(basis: Tensor, recovered: Tensor, generator: torch.Generator) -> Tensor:
    """Candidates from independent components: maximise the skewness, then the number of zeros.

    Activations behind ReLU (and dropout) are skewed, and those of different nodes are nearly independent
    because each has noise of its own. A fixed-point iteration with contrast ``y**3`` on whitened columns
    lands within some degrees of one of them, and reweighted least squares (weights ``1 / (y**2 + e**2)``,
    e a quantile) makes it exact. The contrast starts in the complement of the recovered vectors and stays
    there; as many further starts are single columns, for activations too similar for the contrast.

    References:
        Hyvarinen 1999 (FastICA); Chartrand and Yin 2008 (reweighting); SPEAR++ (2025) for the idea of
        dictionary learning on gradients.
    """
    return _by_cumulant(basis, recovered, generator, 3)


def by_kurtosis(basis: Tensor, recovered: Tensor, generator: torch.Generator) -> Tensor:
    """The same for vectors of either sign, which are not skewed: contrast ``y**4``."""
    return _by_cumulant(basis, recovered, generator, 4)


def _by_cumulant(basis: Tensor, recovered: Tensor, generator: torch.Generator, order: int) -> Tensor:
    columns, r = basis.shape
    starts = min(max(4, r - len(recovered)), 64)
    centred = basis - basis.mean(0)
    spread, axes = torch.linalg.eigh(centred.T @ centred / columns)
    white = axes / spread.clamp_min(1e-12).sqrt() @ axes.T
    signals = centred @ white * (columns**0.5 if order == 4 else 1.0)
    w = torch.randn(starts, r, generator=generator, dtype=basis.dtype)
    taken = (
        torch.linalg.qr(torch.linalg.solve(white, recovered.T))[0]
        if len(recovered)
        else basis.new_zeros(r, 0)
    )
    for _ in range(60):
        w = w - (w @ taken) @ taken.T
        w = w / w.norm(dim=1, keepdim=True)
        # of order 4 without the part that a normal distribution has too
        w = (w @ signals.T).pow(order - 1) @ signals - (3 * columns * w if order == 4 else 0)
        w = w / w.norm(dim=1, keepdim=True)
    repeated = ((w @ w.T).abs() > 0.95).triu(1).any(0)
    w = w[~repeated] @ white
    single = basis[torch.randint(columns, (len(w),), generator=generator)]
    w = torch.cat([w, single])
    return _sparsest(basis, w / w.norm(dim=1, keepdim=True))


def _sparsest(basis: Tensor, w: Tensor, steps: int = 15) -> Tensor:
    """The sparsest vector near each start: reweighted smallest singular vectors."""
    columns, r = basis.shape
    stack = max(1, 20_000_000 // (columns * r))
    for _ in range(steps):
        size = (w @ basis.T).abs()
        quantile = size.kthvalue(max(1, columns // 4), dim=1, keepdim=True).values
        floor = torch.maximum(quantile, 1e-8 * size.amax(1, keepdim=True))
        weights = 1 / (1 + (size / floor).square())
        w = torch.cat(
            [
                torch.linalg.eigh((basis.T * part[:, None, :]) @ basis).eigenvectors[:, :, 0]
                for part in weights.split(stack)
            ]
        )
    return w


def _proven(space: RowSpace, basis: Tensor, w: Tensor, loose: float, signed: bool) -> Tensor:
    """Candidates whose zeros determine them, made exact on those zeros; see :func:`sparse_rows`."""
    columns, r = basis.shape
    if r == 1:  # nothing to separate: the one direction is the node's
        return basis.sum(0).sign()[None]
    kept = []
    for candidate in (w / w.norm(dim=1, keepdim=True)).unsqueeze(1):
        for slack in (loose, 8.0):
            y = candidate @ basis.T
            rms = columns**-0.5
            limit = max(slack * float(space.error(candidate)), 1e-7 * slack * rms)
            zero = (y.abs() < min(limit, 0.05 * rms))[0]
            if int(zero.sum()) < min(r - 1 + columns // 8, columns // 4):
                break
            size, vectors = torch.linalg.eigh(basis[zero].T @ basis[zero])
            if float(size[1]) < max(25 * float(size[0]), 1e-4):
                break
            candidate = vectors[:, :1].T
        else:
            y = candidate @ basis.T
            candidate = candidate * y.sum().sign()
            y = candidate @ basis.T
            # A difference of two activations is negative somewhere, far beyond the matrix's errors.
            if signed or float(y.min()) > -max(30 * float(space.error(candidate)), 1e-5 * float(y.max())):
                kept.append(candidate)
    return torch.cat(kept) if kept else basis.new_zeros(0, r)


def _distinct(recovered: Tensor, new: Tensor, signed: bool = False) -> Tensor:
    """The recovered vectors, and the new ones that differ from all of them; of either sign, also in sign."""
    for candidate in new.unsqueeze(1):
        alike = recovered @ candidate.T
        if not len(recovered) or float((alike.abs() if signed else alike).max()) < 0.999:
            recovered = torch.cat([recovered, candidate])
    return recovered


SEARCHES: dict[str, Callable[[Tensor, Tensor, torch.Generator], Tensor]] = {
    "contrast": by_contrast,
    "columns": by_columns,
    "kurtosis": by_kurtosis,
}
