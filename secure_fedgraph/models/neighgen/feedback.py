"""What an owner computes for another owner's generator: gradients against its own nodes.

Both forms leak: from ``generator_gradient`` raw features of the answering owner's nodes can be solved for
(attacks C1 and C2), and ``output_gradient`` carries them openly. Nothing here protects; channels do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from secure_fedgraph.core.errors import HostileMessage
from secure_fedgraph.models.finite import all_finite, finite, is_finite
from secure_fedgraph.models.neighgen.losses import matched_distances, nearest_distances
from secure_fedgraph.models.neighgen.model import FeatureGenerator, Generated


def blocks(order: Tensor, queries: int) -> Tensor:
    """``[queries, size]``: nodes dealt to queries in turn, each to one query; -1 where a query gets fewer.

    >>> blocks(torch.tensor([4, 2, 0, 1, 3]), 2).tolist()
    [[4, 0, 3], [2, 1, -1]]
    """
    size = -(-len(order) // queries)
    padded = torch.cat([order, order.new_full((queries * size - len(order),), -1)])
    return padded.view(size, queries).T.contiguous()


@dataclass(frozen=True)
class Feedback:
    """One owner's side of the cross-owner loss, for generators of one agreed shape.

    Args:
        latent: width of the embeddings.
        features: width of a node's features.
        candidates: vectors a node.
        hidden: inner widths of fGen.
        dropout: of fGen, which runs in training mode.
    """

    latent: int = 128
    features: int = 1433
    candidates: int = 5
    hidden: tuple[int, ...] = (256, 2048)
    dropout: float = 0.5

    def generator_gradient(
        self,
        params: Mapping[str, Tensor],
        z: Tensor,
        counts: Tensor,
        targets: Tensor,
        scale: float,
        generator: torch.Generator,
        neighbourhoods: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Gradient of ``scale * sum of squared distances to the nearest target`` at a peer's parameters.

        Args:
            params: fGen's parameters, by name, from a peer; they are not changed.
            z: embeddings ``[b, latent]``.
            counts: integers ``[b]``; nodes with 0 contribute nothing.
            targets: the answering owner's own features ``[n_j, features]``.
            scale: e.g. ``alpha * feature_scale(...)``.
            generator: the answering owner's own, of noise and dropout.
            neighbourhoods: ``[b, h]`` rows of ``targets``, -1 for none; where given, each vector is compared
                only with those in its node's row (``cross_target="random_neighbourhood"``).

        Returns:
            Name -> gradient, for every parameter.

        Raises:
            HostileMessage: for parameters, embeddings or counts of another shape, or not finite. Entries of
                the gradient that overflow on large parameters are set to zero without an error: which
                entries these are depends on the targets.

        References:
            Zhang et al., NeurIPS 2021, Eq. 6 and section 4.2.
        """
        fgen = self._load(params, z, counts)
        made = fgen.generate(z, counts, generator)
        return _gradients(fgen, made, scale * _distances(made, targets, neighbourhoods).sum())

    def query_gradients(
        self,
        params: Mapping[str, Tensor],
        z: Tensor,
        counts: Tensor,
        targets: Tensor,
        scale: float,
        generator: torch.Generator,
        neighbourhoods: Tensor,
    ) -> dict[str, Tensor]:
        """:meth:`generator_gradient` before the sum: one gradient for each node of ``z``.

        Returns:
            Name -> ``[b, ...]``, together ``b`` times the generator's size.
        """
        fgen = self._load(params, z, counts)
        seen: list[tuple[Tensor, Tensor]] = []
        names = [*(f"inner.{i}" for i in range(len(fgen.inner))), "outer"]
        for layer in (*fgen.inner, fgen.outer):
            layer.register_forward_hook(lambda _, given, made: seen.append((given[0].detach(), made)))
        made = fgen(z, fgen.noise(len(z), generator), generator)
        asked = torch.arange(self.candidates) < counts[:, None]
        anchor = asked.nonzero()[:, 0]
        loss = scale * matched_distances(made[asked], neighbourhoods[anchor], targets).sum()
        gradients = {}
        deltas = torch.autograd.grad(loss, [out for _, out in seen])
        for name, (given, _), delta in zip(names, seen, deltas, strict=True):
            # a row goes through each layer once, so its gradient has rank one
            gradients[f"{name}.weight"] = delta[:, :, None] * given[:, None, :]
            gradients[f"{name}.bias"] = delta
        return all_finite(gradients)

    def output_gradient(
        self,
        params: Mapping[str, Tensor],
        z: Tensor,
        counts: Tensor,
        targets: Tensor,
        scale: float,
        seed: int,
        neighbourhoods: Tensor | None = None,
    ) -> Tensor:
        """The same loss's gradient at the generated features (``feedback="outputs"``).

        Noise and dropout come from ``seed``, which travels with the call, so that the asking owner can
        generate the same vectors again. Arguments otherwise as in :meth:`generator_gradient`.

        Returns:
            ``[b, candidates, features]``, zero in slots beyond a node's count.
        """
        fgen = self._load(params, z, counts)
        with torch.no_grad():
            made = fgen.generate(z, counts, torch.Generator().manual_seed(seed))
        made.rows.requires_grad_()
        loss = scale * _distances(made, targets, neighbourhoods).sum()
        (gradient,) = torch.autograd.grad(loss, made.rows)
        return Generated(finite(gradient), made.anchor, made.slot).padded(len(z), fgen.candidates)

    def through(
        self, params: Mapping[str, Tensor], z: Tensor, counts: Tensor, gradient: Tensor, seed: int
    ) -> dict[str, Tensor]:
        """The asking owner's half of ``feedback="outputs"``: from features back to parameters.

        Args:
            params: the parameters that were sent.
            z: the embeddings that were sent.
            counts: the counts that were sent.
            gradient: the answer, ``[b, candidates, features]``, or a sum of answers, if all owners were sent
                the same seed.
            seed: the seed that was sent.

        Raises:
            HostileMessage: for a gradient of another shape or with values that are not finite.
        """
        fgen = self._load(params, z, counts)
        expected = (len(z), fgen.candidates, fgen.features)
        if gradient.shape != expected or not is_finite(gradient):
            raise HostileMessage(
                f"the answer is a gradient of shape {tuple(gradient.shape)}; it must be {expected} and finite"
            )
        made = fgen.generate(z, counts, torch.Generator().manual_seed(seed))
        return _gradients(fgen, made, (made.rows * gradient[made.anchor, made.slot]).sum())

    def _load(self, params: Mapping[str, Tensor], z: Tensor, counts: Tensor) -> FeatureGenerator:
        with torch.device("meta"):  # shapes only: the received values are used as they are, not copied
            fgen = FeatureGenerator(self.latent, self.features, self.candidates, self.hidden, self.dropout)
        own = dict(fgen.named_parameters())
        if own.keys() != params.keys():
            raise HostileMessage(f"a generator's parameters are {sorted(own)}, not {sorted(params)}")
        for name, p in own.items():
            given = params[name]
            if given.shape != p.shape or given.dtype != p.dtype or not is_finite(given):
                raise HostileMessage(
                    f"generator parameter {name!r} must be {tuple(p.shape)} of {p.dtype} and finite, "
                    f"not {tuple(given.shape)} of {given.dtype}"
                )
        if z.dim() != 2 or z.shape[1] != self.latent or not is_finite(z):
            raise HostileMessage(
                f"embeddings must be [nodes, {self.latent}] and finite; their shape is {tuple(z.shape)}"
            )
        whole = not counts.is_floating_point() and counts.shape == (len(z),)
        if not whole or (len(z) and not 0 <= int(counts.min()) <= int(counts.max()) <= self.candidates):
            raise HostileMessage(f"counts must be {len(z)} integers from 0 to {self.candidates}")
        fgen.load_state_dict({name: given.detach() for name, given in params.items()}, assign=True)
        return fgen


def _distances(made: Generated, targets: Tensor, neighbourhoods: Tensor | None) -> Tensor:
    if neighbourhoods is None:
        return nearest_distances(made.rows, targets)
    return matched_distances(made.rows, neighbourhoods[made.anchor], targets)


def _gradients(fgen: FeatureGenerator, made: Generated, loss: Tensor) -> dict[str, Tensor]:
    names, values = zip(*fgen.named_parameters(), strict=True)
    if not len(made.rows):
        return {name: torch.zeros_like(p) for name, p in zip(names, values, strict=True)}
    return all_finite(dict(zip(names, torch.autograd.grad(loss, values), strict=True)))
