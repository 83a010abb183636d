"""Ridge regression of classes on records, from moments that may carry noise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from secure_fedgraph.graph.sparse_matrix import SparseMatrix
from secure_fedgraph.models.sparse_rows import compact, product

# Public maps of features: what a linear model reads, so that it is not linear in what was given.

_WHOLE = 2.0**18


def fourier(records: Tensor, width: int, scale: float, seed: int = 0) -> Tensor:
    """Random Fourier features: inner products that are Gaussian kernels of the distance, nearly.

    Guarantees:
        - every row has length 1, whatever is given: one record moves a sum of them by 1 at most;
        - a row depends on its own record, the arguments and nothing else, in no bit.

    Args:
        records: ``[n, given]``, cut to ±1.
        width: how many features, even.
        scale: the inverse width of the kernel, in units of the records' length.
        seed: public, the same for everybody who takes part.

    Returns:
        ``[n, width]``, float32.

    References:
        Rahimi and Recht, Random features for large-scale kernel machines, NeurIPS 2007.

    >>> near = fourier(torch.tensor([[1.0, 0.0], [0.8, 0.6]]), 4096, 1.0)
    >>> round(float(near[0] @ near[1]), 1), round(math.exp(-(0.2**2 + 0.6**2) / 2), 1)
    (0.8, 0.8)
    """
    # whole numbers, whose sums are exact: how many rows there are decides no bit of one
    given = (records.double().nan_to_num().clamp(-1, 1) * _WHOLE).round()
    turned = scale * (given @ _directions(records.shape[1], width // 2, seed)) / _WHOLE**2
    return torch.cat([turned.cos(), turned.sin()], dim=1).float() / math.sqrt(width // 2)


@lru_cache(maxsize=4)
def _directions(given: int, width: int, seed: int) -> Tensor:
    drawn = torch.randn(given, width, generator=torch.Generator().manual_seed(seed))
    return (drawn.double() * _WHOLE).round()


SIGNAL = torch.logspace(-7, 3, 101, dtype=torch.float64)
"""Variances of a weight that are tried."""
ERROR = torch.logspace(-3, 0.5, 36, dtype=torch.float64)
"""Variances of what a record's target is beside its prediction, as shares of a target's own."""
_LEAST = 1e-9
_SURE = 0.01
"""The least share of a class that a regression is believed."""
_ROUNDING = 1e-4
"""Moments are rounded by their carriers: eigenvalues below this share of the largest may be rounding."""
_CONSTANT = 0.3
"""Of a record's length of 1, what is the same in all: it carries the intercept."""
_NUMBER, _COUNT = math.sqrt(2 / 3), math.sqrt(1 / 3)
"""Of a target's length, how much a number has at the ends of its range, and how much is the same in all: sums
of numbers less their mean carry the noise of both."""
_LIKELY = 2.7
"""Twice the logarithm of a likelihood that is lost at the lower end of an interval of 95 %, one-sided."""
_FEW = 3
_RANK = {torch.float64: 1e-10, torch.float32: 1e-6}
"""Eigenvalues below this share of the largest are rounding."""
_SIDE = 1024
"""Rows of a symmetric matrix from which on single precision is enough, and takes a third of the time."""


def records(x: Tensor) -> Tensor:
    """Features of length 1: a record's length bounds what it moves. ``[n, width]``, float32."""
    if x.layout != torch.strided:
        x = x.to_dense()
    return F.normalize(torch.nan_to_num(x.float()).contiguous(), dim=1)


def means(links: Tensor, nodes: int) -> SparseMatrix:
    """What makes each node its mean with its neighbours, weighed as GCN does: of links ``[2, E]``."""
    both, value = gcn_norm(links, None, nodes)
    return SparseMatrix.of_links(both, nodes, value)


def spread(
    scores: Tensor,
    links: Tensor | SparseMatrix,
    steps: int = 10,
    restart: float = 0.1,
    sharpness: float = 5.0,
    known: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Scores as shares of classes that travelled over links.

    Args:
        scores: ``[n, classes]``, or of several models, each by itself, ``[n, models, classes]``.
        links: ``[2, E]``, or the :func:`means` over them.
        steps: how far they travel.
        restart: the share of a node's own that comes back at each step.
        sharpness: of the shares before they travel; the mean length of scores is 1 first.
        known: nodes ``[k]`` whose classes ``[k]`` are known and stand in the place of their scores.

    Returns:
        Logarithms of shares, in the shape of the scores.

    References:
        Gasteiger et al., Predict then Propagate, ICLR 2019.
    """
    length = scores.norm(dim=-1, keepdim=True).mean(0).clamp(min=1e-12)
    shares = F.softmax(sharpness * scores / length, dim=-1)
    if known is not None:
        right = F.one_hot(known[1], shares.shape[-1]).to(shares.dtype)
        shares[known[0]] = right if shares.dim() == 2 else right[:, None]
    matrix = means(links, len(scores)) if isinstance(links, Tensor) else links
    home, travelled = restart * shares.flatten(1), shares.flatten(1)
    for _ in range(steps):
        travelled = (1 - restart) * matrix.times(travelled) + home
    return travelled.clamp(min=_LEAST).log().view_as(scores)


def spread_numbers(numbers: Tensor, links: Tensor, steps: int = 10, restart: float = 0.1) -> Tensor:
    """Numbers that travelled over links, as far as they are alike at both ends of these.

    Each step takes the mean of a node and its neighbours, so nothing leaves the range of what is given. The
    share of the neighbours is ``1 - restart`` times the correlation over links: over links that join
    anything, nothing travels.

    Args:
        numbers: ``[n, 1]``.
        links: ``[2, E]``.
        steps: how far they travel.
        restart: the share of a node's own that comes back at each step, where links join like alone.

    Returns:
        ``[n, 1]``.

    >>> spread_numbers(torch.tensor([[0.0], [1.0], [0.0]]), torch.tensor([[0, 1], [1, 0]])).flatten()
    tensor([0., 1., 0.])
    """
    source, target = links
    centred = numbers - numbers[target].mean(dim=0)
    alike = (centred[source] * centred[target]).mean() / centred[target].square().mean().clamp(min=_LEAST)
    share = (1 - restart) * float(alike.clamp(0, 1))
    if not share > 0:
        return numbers
    near = 1 + torch.bincount(target, minlength=len(numbers)).to(numbers)[:, None]
    travelled = numbers
    for _ in range(steps):
        travelled = (1 - share) * numbers + share * (travelled.index_add(0, target, travelled[source]) / near)
    return travelled


def as_shares(scores: Tensor, norm: float) -> Tensor:
    """Logarithms of the shares of classes that a regression on :func:`targets` stands for, ``[n, classes]``.

    What it gives is the mean of targets alike, so what it says of a class is its share.

    >>> as_shares(targets(torch.tensor([1]), 2, 0.5) / 2, 0.5).exp()
    tensor([[0.2500, 0.7500]])
    """
    classes = scores.shape[1]
    shares = 1 / classes + scores * (math.sqrt(1 - 1 / classes) / norm)
    shares = shares.clamp(min=_SURE)
    return (shares / shares.sum(dim=1, keepdim=True)).log()


def with_constant(z: Tensor) -> Tensor:
    """Records of length 1 at most with a last column that is the same in all, and of length 1 at most still.

    >>> with_constant(torch.tensor([[0.6, 0.8]])).square().sum(1)
    tensor([1.])
    """
    kept = math.sqrt(1 - _CONSTANT**2)
    return torch.cat([kept * z, torch.full_like(z[:, :1], _CONSTANT)], dim=1)


def with_count(numbers: Tensor, norm: float) -> Tensor:
    """Numbers in [-1, 1] as targets whose sums say how many there are too, of a length of ``norm`` at most.

    Args:
        numbers: ``[n, 1]``.
        norm: of a target.

    Returns:
        ``[n, 2]``: the number, and the same in all.

    >>> with_count(torch.tensor([[1.0], [0.0]]), 0.5).norm(dim=1)
    tensor([0.5000, 0.2887])
    """
    return torch.cat([_NUMBER * norm * numbers, torch.full_like(numbers, _COUNT * norm)], dim=1)


def number_weights(
    second: Tensor, sums: Tensor, norm: float, second_noise: float = 0, sums_noise: float = 0
) -> Tensor:
    """As :func:`weights` for numbers: of records :func:`with_constant`, targets :func:`with_count`.

    Returns:
        ``[width + 1, 1]``, float64: what such records say of a number in [-1, 1].
    """
    mean, _, left, noise = _less_their_mean(sums, norm, sums_noise)
    solved = weights(second, left, _longest(mean), second_noise, noise, centred=False, cautious=True)
    solved[-1] += mean / _CONSTANT
    return solved


def alike(sums: Tensor, norm: float) -> Tensor:
    """Second moments as if records were spread alike in all directions about their mean.

    Args:
        sums: of targets :func:`with_count`.
        norm: of a target.

    Returns:
        ``[width + 1, width + 1]``.
    """
    _, count, _, _ = _less_their_mean(sums, norm, 0.0)
    mean = sums[:, 1] / (_COUNT * norm * count)
    left = max(1 - float(mean.square().sum()), _LEAST) / len(mean)
    return count * (left * torch.eye(len(mean), dtype=torch.float64) + torch.outer(mean, mean))


def own_number_weights(sums: Tensor, records: Tensor, norm: float, noise: float = 0) -> Tensor:
    """As :func:`own_weights` for numbers: of records :func:`with_constant`, targets :func:`with_count`.

    The reader's second moments are taken about its own mean, and stand for as many records as the sums are
    of. Where the mean of everybody's records lies from there, the sums say, with noise: what is no farther
    than noise is taken for none (James and Stein). So noise that drowns everything leaves the mean number.

    Returns:
        ``[width + 1, 1]``, float64: what such records say of a number in [-1, 1].
    """
    mean, count, left, deviation = _less_their_mean(sums, norm, noise)
    z = records[:, :-1].double()
    own = z.mean(dim=0) if len(z) else torch.zeros(z.shape[1], dtype=torch.float64)
    apart = sums[:-1, 1] / (_COUNT * norm * count) - own
    drowned = z.shape[1] * (noise / (_COUNT * norm * count)) ** 2
    apart *= max(0.0, 1 - drowned / max(float(apart.square().sum()), _LEAST))
    solved = torch.zeros(len(sums), 1, dtype=torch.float64)
    if len(z) > 1:
        share = (z - own) * math.sqrt(count / len(z))
        solved[:-1] = own_weights(
            left[:-1], share, 1, _longest(mean), deviation, centred=False, cautious=True
        )
    solved[-1] = (mean - (own + apart) @ solved[:-1, 0]) / _CONSTANT
    return solved


def _longest(mean: float) -> float:
    """The length of a target for which no error that is tried varies by more than numbers of that mean can.

    Numbers in [-1, 1] have a variance of ``1 - mean^2`` at most. Where second moments are alike along all
    directions, nothing else tells weights from errors.
    """
    return math.sqrt(max(1 - mean**2, _SURE) / float(ERROR[-1]))


def _less_their_mean(sums: Tensor, norm: float, noise: float) -> tuple[float, float, Tensor, float]:
    """Sums of targets :func:`with_count`, as those of numbers less their mean.

    Returns:
        The mean number, in the middle of its range where noise drowns how many there are; how many there are,
        1 or more; the sums ``[width + 1, 1]``; and the deviation of their noise.
    """
    of_numbers, of_ones = (sums / (norm * torch.tensor([_NUMBER, _COUNT], dtype=torch.float64))).unbind(1)
    total, count = float(of_numbers[-1]) / _CONSTANT, max(float(of_ones[-1]) / _CONSTANT, 0.0)
    unsure = (noise / (norm * _COUNT * _CONSTANT)) ** 2
    mean = min(max(total * count / max(count**2 + unsure, _LEAST), -1.0), 1.0)
    deviation = noise / norm * math.hypot(1 / _NUMBER, mean / _COUNT)
    return mean, max(count, 1.0), (of_numbers - mean * of_ones)[:, None], deviation


def margins(scores: Tensor, norm: float) -> Tensor:
    """What a regression on :func:`targets` of two classes says, for an order: different scores stay so.

    Near even shares these are the logarithms of :func:`as_shares`, up to a constant.

    >>> margins(targets(torch.tensor([1]), 2, 0.5) / 2, 0.5)
    tensor([[-0.5000,  0.5000]])
    """
    return scores * (math.sqrt(2) / norm)


def outputs(scores: Tensor, norm: float, labels: bool) -> Tensor:
    """What a regression on targets in [-norm, norm] says: numbers in [-1, 1]; of labels the logits of shares.

    >>> outputs(torch.tensor([[0.25]]), 0.5, labels=False)
    tensor([[0.5000]])
    """
    if not labels:
        return scores / norm
    shares = ((scores * (math.sqrt(scores.shape[1]) / norm) + 1) / 2).clamp(_SURE, 1 - _SURE)
    return torch.logit(shares)


def targets(y: torch.Tensor, classes: int, norm: float) -> torch.Tensor:
    """One-hot labels, centred and of an L2 norm of ``norm``: ``[n, classes]``.

    >>> targets(torch.tensor([0, 1]), 2, 1.0)
    tensor([[ 0.7071, -0.7071],
            [-0.7071,  0.7071]])
    """
    centred = F.one_hot(y, classes).float() - 1 / classes
    return centred * (norm / math.sqrt(1 - 1 / classes))


def weights(
    second: torch.Tensor,
    classes: torch.Tensor,
    norm: float,
    second_noise: float = 0,
    classes_noise: float = 0,
    centred: bool = True,
    cautious: bool = False,
) -> torch.Tensor:
    """Ridge regression from noisy moments: what noise left of ``(A + ridge I)^-1 B``.

    Nothing is chosen by hand. Eigenvalues of a symmetric matrix of noise lie below ``2 v sqrt(width)``: those
    of ``A`` below that say nothing and share what is left of its trace; those above are lengthened by noise,
    and their vectors turned, by known amounts (spiked Wigner matrices). Along an eigenvector with eigenvalue
    ``a`` the class sums are ``a w + sqrt(a) e + noise``, with weights ``w`` and errors ``e`` of unknown
    variances: those under which the class sums are most likely. All of it is post-processing.

    Args:
        second: ``A``, ``[width, width]``, symmetric, float64.
        classes: ``B``, ``[width, classes]``, float64.
        norm: of a target.
        second_noise: standard deviation ``v`` of the noise on ``A`` off its diagonal.
        classes_noise: the same on ``B``.
        centred: whether a target's columns add up to 0, as those of one-hot classes do.
        cautious: takes the least variance of weights that is likely enough, in place of the likeliest: where
            scales count and not only orders, weights that are too short cost less than those of noise.

    Returns:
        ``[width, classes]``, float64.

    References:
        Benaych-Georges and Nadakuditi, The eigenvalues and eigenvectors of finite, low rank perturbations of
        large random matrices, Advances in Mathematics 2011, section 3.1; MacKay, Bayesian interpolation,
        Neural Computation 1992.

    >>> z = torch.eye(2, dtype=torch.float64).repeat(50, 1)
    >>> t = targets(torch.tensor([0, 1] * 50), 2, 1.0).double()
    >>> (z @ weights(z.T @ z, z.T @ t, 1.0)).argmax(1)[:4]
    tensor([0, 1, 0, 1])
    """
    values, vectors, known = spectrum(second, second_noise)
    along = vectors.T @ (_centred(classes) if centred else classes)
    ridge = _ridge(values, along, norm, classes_noise, known, cautious=cautious)
    return vectors @ (along / (values + ridge)[:, None])


def own_weights(
    classes: Tensor,
    records: Tensor,
    owners: int,
    norm: float,
    noise: float = 0,
    centred: bool = True,
    cautious: bool = False,
) -> Tensor:
    """Ridge regression from noisy class sums, with second moments of a reader's records for everybody's.

    As :func:`weights`, where ``A`` is ``owners`` times the reader's: of all its records, unlabelled ones too.

    Args:
        classes: ``B``, ``[width, classes]``, float64.
        records: the reader's, ``[n, width]``.
        owners: how many sent class sums.
        norm: of a target.
        noise: standard deviation of the noise on ``B``.
        centred: as :func:`weights`.
        cautious: as :func:`weights`; and errors are along each eigenvector as if it had the mean one's length
            too, which is what second moments of other owners' records may have there.

    Returns:
        ``[width, classes]``, float64.
    """
    z = _precise(records, min(records.shape)) * math.sqrt(owners)
    wide = z.shape[1] > len(z)
    moments = product(compact(z), z.T.contiguous()) if wide else z.T @ z
    values, vectors = _leading(moments)
    if wide:  # among as many directions as there are records; others have no second moment
        kept = values > _RANK[z.dtype] * values[-1]
        values, vectors = values[kept], vectors[:, kept] / values[kept].sqrt()
    values = values.double().clamp(min=_LEAST)
    given = _centred(classes) if centred else classes
    given = z @ given.to(z) if wide else given
    along = vectors.double().T @ given.double()
    others = float(moments.diagonal().sum()) / z.shape[1] if cautious else 0.0
    ridge = _ridge(values, along, norm, noise, others=others, cautious=cautious)
    solved: Tensor = vectors.double() @ (along / (values + ridge)[:, None])
    return (z.T @ solved.to(z)).double() if wide else solved


def _leading(moments: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors: of a large matrix :data:`_SIDE` of the longest.

    References:
        Halko et al., Finding structure with randomness, SIAM Review 2011, algorithm 4.4.
    """
    if len(moments) <= 2 * _SIDE:
        values, vectors = torch.linalg.eigh(moments)
        return values, vectors
    random = torch.Generator().manual_seed(0)
    span = torch.randn(len(moments), _SIDE, generator=random, dtype=moments.dtype)
    for _ in range(2):
        span = torch.linalg.qr(moments @ span).Q
    values, turned = torch.linalg.eigh(span.T @ (moments @ span))
    return values, span @ turned


def regressions(z: Tensor, targets: Tensor, sizes: Sequence[float]) -> Iterator[Tensor]:
    """Ridge regression with each of several ridges, in as many dimensions as records or columns, if fewer.

    Args:
        z: records, ``[n, width]``.
        targets: ``[n, outputs]``.
        sizes: the ridges, above 0.

    Returns:
        Weights ``[width, outputs]`` for each ridge, float32.
    """
    wide = z.shape[1] > len(z)
    z = _precise(z, min(z.shape) // 2)  # factors lose less than eigenvectors
    moments = z @ z.T if wide else z.T @ z
    along = targets.to(z) if wide else z.T @ targets.to(z)
    ones = torch.eye(len(moments), dtype=z.dtype)
    for size in sizes:
        solved = torch.cholesky_solve(along, torch.linalg.cholesky(moments + size * ones))
        yield (z.T @ solved if wide else solved).float()


def _precise(values: Tensor, side: int) -> Tensor:
    """In double precision where a matrix with that side is small."""
    return values.double() if side <= _SIDE else values.float()


def spectrum(second: torch.Tensor, noise: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Eigenvectors of noisy second moments, and how long records are along each, noise taken off.

    Returns:
        ``[width]`` and ``[width, width]``; and which of them noise does not drown, ``[width]``.
    """
    width = len(second)
    values, vectors = torch.linalg.eigh(second)
    edge = 2 * noise * math.sqrt(width)
    known = values > edge
    # with noise an eigenvalue a is a + edge^2 / 4a, and cos^2 of its vector's angle is 1 - edge^2 / 4a^2
    own = torch.where(known, (values + (values**2 - edge**2).clamp(min=0).sqrt()) / 2, 0.0)
    rest = (torch.diagonal(second).sum() - own.sum()).clamp(min=0) / max(int((~known).sum()), 1)
    straight = torch.where(known, 1 - (edge / 2) ** 2 / own.clamp(min=_LEAST) ** 2, 0.0).clamp(min=0)
    return (own * straight + rest * (1 - straight)).clamp(min=_LEAST), vectors, known


def _centred(classes: Tensor) -> Tensor:
    """Targets of a record add up to zero, so what their sums add up to is noise."""
    return classes - classes.mean(dim=1, keepdim=True)


def _ridge(
    values: Tensor,
    along: Tensor,
    norm: float,
    noise: float,
    known: Tensor | None = None,
    others: float = 0.0,
    cautious: bool = False,
) -> Tensor:
    """What is added to each eigenvalue, from the variances under which the class sums are most likely.

    Those along ``known`` eigenvectors decide, where there are a few: what the others share says nothing of
    any one of them, and class sums along one that noise has just drowned would pass for large weights.
    Errors are along each as if it were longer by ``others``; ``cautious`` as in :func:`weights`.
    """
    size, classes = along.square().sum(1), max(along.shape[1] - 1, 1)
    least = _ROUNDING * float(values.max())
    error = ERROR * (norm**2 / classes)
    variance = values**2 * SIGNAL[:, None, None] + (values + others) * error[:, None] + noise**2
    deciding = values > least
    if known is not None and int(known.sum()) >= _FEW:
        deciding &= known
    likelihood = -(classes * variance.log() + size / variance)[:, :, deciding].sum(2)
    signal, kind = divmod(int(likelihood.argmax()), len(error))
    if cautious:
        signal = int((likelihood[:, kind] >= likelihood.max() - _LIKELY).int().argmax())
    added: Tensor = (noise**2 / values + error[kind] * (1 + others / values)) / SIGNAL[signal]
    return added.clamp(min=least)
