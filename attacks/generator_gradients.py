"""Raw features from the gradient of FedSage+'s feature generator: one node (C1) and batches (C2)."""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from secure_fedgraph.attacks.attack import Blind
from secure_fedgraph.attacks.sparse_rows import Progress, RowSpace, row_space, sparse_rows

Array = np.ndarray | Tensor


def single(G: Array, g: Array, W: Array, b: Array, scale: float, *, slots: int = 5) -> np.ndarray:
    """The features nearest to one node's generated neighbours, in closed form (C1).

    ``G = g h'`` gives the dropped-out, noisy ``h``, so neither noise nor dropout protects; then
    ``x = xhat - g / (2 scale (1 - xhat**2))`` with ``xhat = tanh(W h + b)``.

    Args:
        G: gradient of the last layer's matrix, ``[slots * words, width]``.
        g: gradient of its bias, ``[slots * words]``.
        W: the matrix; b: the bias, as they were sent to be answered.
        scale: the public factor c0 of ``loss = c0 * sum |xhat - x|**2``.

    Returns:
        ``[slots, words]``; NaN in slots without a gradient. Of a sum over J owners that all used the
        same noise it is their mean.

    >>> W, b, h = np.eye(2), np.zeros(2), np.array([0.5, 0.0])
    >>> g = 2 * (np.tanh(h) - [1.0, 0.0]) * (1 - np.tanh(h) ** 2)
    >>> single(np.outer(g, h), g, W, b, 1.0, slots=1).round(6).tolist()
    [[1.0, 0.0]]
    """
    weight_gradient, bias_gradient, matrix, bias = (_double(value) for value in (G, g, W, b))
    h = weight_gradient.T @ bias_gradient / bias_gradient.square().sum()
    return _invert(h[None], bias_gradient[None], matrix, bias, scale, slots)[0].numpy()


def batch(
    G: Array,
    g: Array,
    W: Array,
    b: Array,
    scale: float,
    nodes: int,
    *,
    seconds: float = 120.0,
    progress: Progress | None = None,
    slots: int = 5,
    search: str = "contrast",
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The features nearest to every generated neighbour of a batch (C2).

    The row space of ``G`` is spanned by the nodes' sparse, non-negative activations ``h_v``; the search
    finds those. For each, the direction p_v that meets only its own gradient gives the scale:
    ``h_v = G' p_v / (p_v . g)``. Least squares then splits ``G`` into the g_v, and each is inverted as in
    :func:`single`. Nodes with several slots are recovered first, in the rows of the later slots, which have
    fewer nodes. If time runs out first, g_v of a recovered node is known up to r - 1 directions; these follow
    from the fact that most features are 0 (robust regression).

    A sum over J owners, each with its own noise, is a batch of ``n * J``: pass that as ``nodes``.

    Args:
        G, g, W, b, scale, slots: as for :func:`single`; ``scale`` is the same for every owner.
        nodes: the most nodes that the gradient can be made of.
        seconds: of processor time for the search; the linear algebra around it takes more at Cora's size.
        search: "contrast" or "columns" (the published one, exponential in the batch).

    Returns:
        ``[found, slots, words]`` features, NaN in slots without a gradient (beyond the node's count);
        ``[found, width]`` the inputs of the generator's last layer; and whether every node was found in time.

    Raises:
        Blind: for a gradient of zeros.
    """
    weight_gradient, bias_gradient, matrix, bias = (_double(value) for value in (G, g, W, b))
    space, coordinates = _activations(weight_gradient, nodes, slots, seconds, search, seed, progress)
    # p_v: orthogonal to every other node's g, so that G' p_v is a multiple of h_v alone.
    directions = coordinates / space.values
    alone = directions @ (space.left.T @ bias_gradient)
    hidden = (coordinates @ space.basis.T) / alone[:, None]
    complete = len(coordinates) == space.rank
    if complete:
        coefficients = torch.linalg.pinv(hidden @ space.basis) * space.values[:, None]
        parts = (space.left @ coefficients).T
    else:
        parts = _sparse_bias_gradients(space, directions, alone, hidden, matrix, bias, scale, slots)
    x = _invert(hidden, parts, matrix, bias, scale, slots)
    return x.float().numpy(), hidden.float().numpy(), complete


def _activations(
    G: Tensor, nodes: int, slots: int, seconds: float, search: str, seed: int, progress: Progress | None
) -> tuple[RowSpace, Tensor]:
    """The row space of the whole gradient and the activations recovered in it; later slots come first."""
    deadline = time.thread_time() + seconds
    words = len(G) // slots
    known, most, space = G.new_zeros(0, G.shape[1]), 0, None
    for slot in reversed(range(slots)):
        block = G[slot * words :]
        if not bool(block.any()):
            continue
        last = slot == 0
        space = row_space(block, nodes, seed=seed)
        if space.rank <= most and not last:
            continue
        most = space.rank
        left = deadline - time.thread_time()
        # A slot whose search is slow must not use up the time of the slots after it.
        share = left if last else left / 4
        coordinates = sparse_rows(
            space, seconds=share, search=search, known=known, seed=seed + slot, progress=progress
        )
        known = coordinates @ space.basis.T
    if space is None:
        raise Blind("the gradient of the generator's last layer is zero: no node was answered for")
    return space, coordinates


def _invert(hidden: Tensor, parts: Tensor, W: Tensor, b: Tensor, scale: float, slots: int) -> Tensor:
    """Features ``[n, slots, words]`` from each node's activation and bias gradient."""
    n = len(hidden)
    xhat = torch.tanh(hidden @ W.T + b)
    slope = 1 - xhat.square()
    x = (xhat - parts / (2 * scale * slope.clamp_min(1e-12))).reshape(n, slots, len(W) // slots)
    size = parts.reshape(n, slots, len(W) // slots).norm(dim=2)
    x[size < 0.02 * size.amax(1, keepdim=True).clamp_min(1e-300)] = torch.nan
    return x


def _sparse_bias_gradients(
    space: RowSpace,
    directions: Tensor,
    alone: Tensor,
    hidden: Tensor,
    W: Tensor,
    b: Tensor,
    scale: float,
    slots: int,
) -> Tensor:
    """Each node's bias gradient without the other nodes' activations, where most features are 0.

    g_v lies in the column space, and its product with p_v is known. Its other coordinates are chosen so that
    ``2 scale (1 - xhat**2) x = gradient at x = 0 less g_v`` is zero in most places.
    """
    parts = hidden.new_zeros(len(hidden), len(W))
    for i in range(len(hidden)):
        p = directions[i] / directions[i].norm()
        others = torch.linalg.svd(p[None])[2][1:].T
        fixed = space.left @ (p * alone[i] / directions[i].norm())
        free = space.left @ others
        xhat = torch.tanh(W @ hidden[i] + b)
        at_zero = 2 * scale * xhat * (1 - xhat.square())
        # In slots beyond the node's count g_v is 0 instead; each slot takes the target that fits better.
        target = at_zero - fixed
        y = _robust(free, target)
        for _ in range(2):
            value = fixed + free @ y
            inside = _median_by_slot(value - at_zero, slots) < _median_by_slot(value, slots)
            target = at_zero * inside.repeat_interleave(len(W) // slots) - fixed
            y = _robust(free, target)
        parts[i] = fixed + free @ y
    return parts


def _median_by_slot(values: Tensor, slots: int) -> Tensor:
    return values.abs().reshape(slots, -1).median(dim=1).values


def _robust(A: Tensor, target: Tensor, steps: int = 30) -> Tensor:
    """Least absolute, then fewest, deviations: ``A y`` equal to the target in most places."""
    weights = torch.ones_like(target)
    for step in range(steps):
        weighted = A * weights[:, None]
        y: Tensor = torch.linalg.lstsq(weighted.T @ A, weighted.T @ target).solution
        deviations = (A @ y - target).abs()
        floor = deviations.median() + 1e-14 * target.abs().max()
        weights = (
            1 / (deviations + floor) if step < steps // 2 else 1 / (deviations.square() + floor.square())
        )
        weights = weights / weights.max()
    return y


def _double(value: Array) -> Tensor:
    """An array of any type as a float64 tensor."""
    return torch.as_tensor(value).detach().double()
