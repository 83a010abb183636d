"""The layers of one segment of ``residual`` in training, with their gradients by hand.

PyTorch's own graph of the same layers gives the same bits at hidden widths of up to 384. Beyond, adding a
bias may round in another way. It keeps a matrix for every operation. Here most operations overwrite the one
before, so that what is worked on stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from secure_fedgraph.graph.sample.layers import Links
from secure_fedgraph.graph.sparse_matrix import SparseMatrix

EPS = 1e-5
"""What PyTorch's batch normalisation adds to a variance."""
FIELDS = 4
"""Parameters of a layer: weight and bias of its dense part, scale and shift of its normalisation."""


@dataclass(frozen=True)
class LayersRun:
    """What one pass through a segment's layers does, beside its parameters.

    Args:
        links: one a layer, in order; each of more than one output.
        statistics: for each layer its running mean and variance where they take note, else Nones.
        momentum: of the running statistics.
        dropout, seed: share of values dropped after every layer, and the draws' seed.
        share: of what the layers compute in the result; the rest is what came in.
        bound: values of the result are cut off there.
    """

    links: Sequence[Links] = field(repr=False)
    statistics: Sequence[tuple[Tensor | None, Tensor | None]] = field(repr=False)
    momentum: float
    dropout: float
    seed: int
    share: float
    bound: float

    @property
    def kept(self) -> Tensor:
        """The rows of the input that are rows of the result."""
        kept = self.links[0].own
        for between in self.links[1:]:
            kept = kept[between.own]
        return kept


@dataclass(frozen=True)
class _Layer:
    """What the gradient of one layer needs."""

    summed: Tensor
    active: Tensor
    """What the normalisation took: after ReLU."""
    mean: Tensor
    deviation: Tensor
    """The inverse of the standard deviation."""
    scale: Tensor | None
    """Zeros where dropout struck."""


def residual_layers(rows: Tensor, run: LayersRun, parameters: Sequence[Tensor]) -> Tensor:
    """Sum over links, dense layer, ReLU, normalisation, dropout, layer after layer; then the mix and the cut.

    Args:
        rows: ``[inputs of the first links, hidden]``.
        run: what is done.
        parameters: ``FIELDS`` a layer.
    """
    result: Tensor = _ResidualLayers.apply(rows, run, *parameters)  # type: ignore[no-untyped-call]
    return result


def sparse_entry(x: SparseMatrix, weight: Tensor, bias: Tensor) -> Tensor:
    """``relu(x W^T + b)``."""
    entered: Tensor = _SparseEntry.apply(weight, bias, x)  # type: ignore[no-untyped-call]
    return entered


class _ResidualLayers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, run: LayersRun, *parameters: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(run.seed)
        h, layers = rows, []
        for depth, (between, (mean, variance)) in enumerate(zip(run.links, run.statistics, strict=True)):
            weight, bias, scaling, shift = parameters[FIELDS * depth : FIELDS * (depth + 1)]
            summed = between.rows.product(h)
            active = torch.mm(summed, weight.t()).add_(bias).relu_()  # addmm first copies the bias
            h, average, deviation = torch.native_batch_norm(
                active, scaling, shift, mean, variance, True, run.momentum, EPS
            )
            scale = None
            if run.dropout:
                scale = torch.rand(h.shape, generator=generator).ge_(run.dropout).div_(1 - run.dropout)
                h.mul_(scale)
            layers.append(_Layer(summed, active, average, deviation, scale))
        kept = run.kept
        mixed = rows.index_select(0, kept).lerp_(h, run.share)
        array, inside = mixed.numpy(), None
        if not (-run.bound <= array.min(initial=0.0) and array.max(initial=0.0) <= run.bound):  # nor is NaN
            inside = (mixed >= -run.bound).logical_and_(mixed <= run.bound)
            mixed.clamp_(-run.bound, run.bound)
        ctx.save_for_backward(*parameters)  # refuses weights that were changed since
        ctx.run, ctx.layers, ctx.kept, ctx.inside = run, layers, kept, inside
        return mixed

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        run: LayersRun = ctx.run
        if ctx.inside is not None:
            gradient = torch.where(ctx.inside, gradient, 0.0)
        parameters, of_parameters = ctx.saved_tensors, list[Tensor]()
        g = gradient * run.share
        for depth in reversed(range(len(run.links))):
            layer: _Layer = ctx.layers[depth]
            weight, _, scaling, _ = parameters[FIELDS * depth : FIELDS * (depth + 1)]
            if layer.scale is not None:
                g.mul_(layer.scale)
            g, of_scaling, of_shift = torch.ops.aten.native_batch_norm_backward(
                g, layer.active, scaling, None, None, layer.mean, layer.deviation, True, EPS, [True] * 3
            )
            torch.ops.aten.threshold_backward.grad_input(g, layer.active, 0, grad_input=g)
            of_parameters = [g.t() @ layer.summed, g.sum(0), of_scaling, of_shift, *of_parameters]
            if depth or ctx.needs_input_grad[0]:
                g = run.links[depth].rows.transposed.product(g @ weight)
        if not ctx.needs_input_grad[0]:
            return None, None, *of_parameters
        return g.index_add_(0, ctx.kept, gradient * (1 - run.share)), None, *of_parameters


class _SparseEntry(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, x: SparseMatrix) -> Tensor:
        entered = x.product(weight.t().contiguous()).add_(bias).relu_()
        ctx.save_for_backward(entered)
        ctx.x = x
        return entered

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        (entered,) = ctx.saved_tensors
        g = torch.ops.aten.threshold_backward(gradient, entered, 0)
        x: SparseMatrix = ctx.x
        return x.transposed.product(g).t(), g.sum(0), None


def pull(rows: Tensor, gradient: Tensor) -> Tensor:
    """A scalar whose ``backward()`` hands ``rows`` this gradient.

    ``rows.backward(gradient)`` loads PyTorch's compiler, and the gradient of ``(rows * gradient).sum()`` is
    the same but passes over the rows four times.
    """
    pulled: Tensor = _Pull.apply(rows, gradient)  # type: ignore[no-untyped-call]
    return pulled


class _Pull(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return rows.new_zeros(())

    @staticmethod
    def backward(ctx: Any, of_the_scalar: Tensor) -> tuple[Tensor, None]:
        return ctx.gradient, None
