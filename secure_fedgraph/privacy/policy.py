"""Policies: recipes that give every channel of an algorithm its protection."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.core.carriers.plain import Plain
from secure_fedgraph.core.channel import Channel, Domain, Reveal
from secure_fedgraph.core.errors import BadInput, Incompatible, Unbound
from secure_fedgraph.core.guarantee import Relation
from secure_fedgraph.core.protection.binding import Protection
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.contracts import Carrier
from secure_fedgraph.core.protection.gaussian import Clip, Gaussian
from secure_fedgraph.privacy.broadcasts import BroadcastLimits
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.privacy.input_dp.registry import in_order

Recipe = Callable[[Channel], Protection]
REFEREE_PROTECTION = Protection(Plain(), name="outside the guarantee")
"""The protection of a channel to the referee, under every policy: it stands outside the federation."""
NO_UPLOAD = Protection(Plain(), name="nothing is sent")
"""The protection of a channel on which nothing comes back; the client enforces that."""
SCORES = "scores"
"""The channel on which clients' test items are counted (``Algorithm.SCORES``)."""


class PlaintextWarning(UserWarning):
    """A channel that a policy left unprotected because nothing stricter bound."""


@dataclass(frozen=True)
class Policy:
    """A recipe ``Channel -> Protection`` with named exceptions.

    Args:
        name: its name in results.
        recipe: the protection for a channel.
        exceptions: channel name -> protection, where the recipe does not decide.
        relation: the neighbouring relation that sensitivities are taken under.

    Raises:
        BadInput: for an unknown relation, or one that noisy steps or randomised inputs do not hold under;
            for randomised links with noisy steps on nodes; for two randomised inputs of one kind.
    """

    name: str
    recipe: Recipe = field(repr=False)
    exceptions: Mapping[str, Protection] = field(default_factory=dict)
    relation: str = Relation.ZERO_OUT
    steps: PrivateSteps | None = None
    """How clients train, where they train under noise."""
    randomizers: tuple[InputRandomizer, ...] = ()
    """What clients randomise of their own data before they use it: links, labels, features."""
    broadcasts: BroadcastLimits | None = None
    """What clients refuse of the models that they are given."""
    scores_noise: float | None = None
    """The noise multiplier of counted scores for one item, where the recipe adds no noise."""
    made_with: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """What its recipe was called with, so that another process can make it too; None for one made by hand."""
    amounts: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False, repr=False)
    """The arguments of its recipe that were given by channel, such as ``norm``: channel -> number."""

    def __post_init__(self) -> None:
        if self.relation not in tuple(Relation):
            raise BadInput(f"relation {self.relation!r}: use one of {', '.join(Relation)}")
        if self.steps is not None:
            self.steps.check_relation(self.relation)
        for one in self.randomizers:
            one.check_relation(self.relation)
            if self.steps is not None and self.steps.unit == "node" and one.place == "edge_index":
                raise BadInput(
                    "links are randomised and steps.unit = 'node': which links are kept depends on all nodes "
                    "together, so one node's removal changes more records than noisy steps count; use one of "
                    "the two"
                )
        if len({one.kind for one in self.randomizers}) < len(self.randomizers):
            raise BadInput(
                f"{', '.join(one.kind for one in self.randomizers)} are randomised: name each once"
            )

    def check_amounts(self, declared: Collection[str], whose: str) -> None:
        """That every number that was given by channel is for a channel that there is.

        Args:
            declared: the names of all channels of an algorithm, those that its settings do not use included.
            whose: the algorithm's name.

        Raises:
            BadInput: naming the argument, the channel and the nearest one.
        """
        for argument, by_channel in self.amounts.items():
            for name in by_channel:
                if name not in declared:
                    raise unknown_name(f"channel in {argument} (of {whose})", str(name), declared)

    def bind(self, channels: Iterable[Channel], clients: tuple[str, ...]) -> BoundPolicy:
        """Fits a protection to every channel, before round 1.

        Raises:
            Incompatible, Unbound, Refused: in a sentence that names the channel.
        """
        channels = list(channels)
        unknown = set(self.exceptions) - {channel.name for channel in channels}
        if unknown:
            raise BadInput(
                f"policy {self.name!r} has an exception for {sorted(unknown)}, which is no channel"
            )
        per_client = tuple(channel.name for channel in channels if not channel.alike)
        bounds = {c.name: replace(self._bind(c, clients), per_client_channels=per_client) for c in channels}
        return BoundPolicy(self, _sharing_carriers(bounds))

    def _bind(self, channel: Channel, clients: tuple[str, ...]) -> Bound:
        if channel.to == "referee":
            return REFEREE_PROTECTION.bind(channel, clients, self.relation)
        if channel.reveal is Reveal.NOTHING:
            return NO_UPLOAD.bind(channel, clients, self.relation)
        protection = self.exceptions.get(channel.name) or self.recipe(channel)
        if self.scores_noise is not None and channel.name == SCORES:
            protection = _with_noise(protection, self.scores_noise)
        return protection.bind(channel, clients, self.relation)


def _with_noise(protection: Protection, multiplier: float) -> Protection:
    """The same carrier with Gaussian noise: in shares where it adds in a ring, else of each client."""
    shares = protection.carrier.takes is Domain.RING
    stages = (Clip(1.0, whole=True), Gaussian(multiplier, "shares" if shares else "client"))
    quorum = 0.8 if shares else protection.quorum
    return Protection(protection.carrier, stages, quorum, f"{protection.name}, noised")


def _sharing_carriers(bounds: dict[str, Bound]) -> dict[str, Bound]:
    """Channels with equal carriers share one: it is set up once a run, and keeps its keys."""
    distinct: dict[str, Carrier] = {}
    """The channel that a carrier came with first -> the carrier."""

    def shared(channel: str, carrier: Carrier) -> Carrier:
        for other, one in distinct.items():
            if one == carrier:
                return one
            if one.name == carrier.name and carrier.has_set_up:
                raise Incompatible(
                    f"channels {other!r} and {channel!r} are {carrier.name} under different settings, and a "
                    f"run sets up one key for {carrier.name}: give both channels the same settings"
                )
        distinct[channel] = carrier
        return carrier

    return {name: replace(bound, carrier=shared(name, bound.carrier)) for name, bound in bounds.items()}


@dataclass(frozen=True)
class BoundPolicy:
    """Every channel of an algorithm with its protection. Nothing leaves on any other channel."""

    policy: Policy
    bounds: Mapping[str, Bound]

    @property
    def relation(self) -> str:
        """The neighbouring relation that sensitivities are taken under."""
        return self.policy.relation

    @property
    def steps(self) -> PrivateSteps | None:
        """How clients train, where they train under noise."""
        return self.policy.steps

    @property
    def randomizers(self) -> tuple[InputRandomizer, ...]:
        """What clients randomise, in that order."""
        return in_order(self.policy.randomizers)

    @property
    def broadcasts(self) -> BroadcastLimits | None:
        """What clients refuse of the models that they are given."""
        return self.policy.broadcasts

    @property
    def divided_inputs(self) -> tuple[str, ...]:
        """The kinds of inputs whose randomising the clients divide among them."""
        return tuple(one.kind for one in self.randomizers if one.divided)

    def __getitem__(self, channel: str) -> Bound:
        if channel not in self.bounds:
            raise Unbound(
                f"channel {channel!r} has no protection under policy {self.policy.name}: nothing leaves"
            )
        return self.bounds[channel]

    @property
    def unprotected(self) -> tuple[str, ...]:
        """The channels whose uploads anybody who holds the bytes can read, without noise or key."""
        return tuple(
            name
            for name, bound in self.bounds.items()
            if bound.unprotected and bound.protection not in (REFEREE_PROTECTION, NO_UPLOAD)
        )

    @property
    def carriers(self) -> dict[str, Carrier]:
        """The distinct carriers in use, by name."""
        return {bound.carrier.name: bound.carrier for bound in self.bounds.values()}

    @property
    def agrees_on_keys(self) -> bool:
        """Whether any upload is hidden under keys that are bound to what clients were given in the run."""
        return any(bound.carrier.agrees_on_keys for bound in self.bounds.values())

    @property
    def disputes(self) -> int:
        """For how many rounds uploads can be opened to an auditor; 0 for never."""
        return max((getattr(bound.carrier, "disputes", 0) for bound in self.bounds.values()), default=0)

    def describe(self) -> list[dict[str, Any]]:
        """One row a channel, as results and views print it."""
        return [
            {
                "name": name,
                "reveal": bound.channel.reveal.value,
                "unit": bound.channel.unit.value,
                "to": bound.channel.to,
                "policy": bound.protection.name,
                "domain": bound.carrier.gives.value,
                "relation": bound.relation,
                "excess": list(bound.excess),
            }
            for name, bound in self.bounds.items()
        ]
