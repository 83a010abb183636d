"""Policies: recipes that give every channel of an algorithm its protection."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from secure_fedgraph.errors import BadInput, Incompatible, Refused, Unbound, unknown_name, wrong_type
from secure_fedgraph.privacy.binding import Protection
from secure_fedgraph.privacy.bound import Bound
from secure_fedgraph.privacy.carriers.homomorphic.sums import Homomorphic
from secure_fedgraph.privacy.carriers.homomorphic.valuation import EncryptedValues
from secure_fedgraph.privacy.carriers.plain import Plain
from secure_fedgraph.privacy.carriers.sealed import Sealed
from secure_fedgraph.privacy.carriers.secagg.pairwise import Pairwise
from secure_fedgraph.privacy.carriers.secagg.server import ABANDONED, Masked
from secure_fedgraph.privacy.contracts import MAJORITY, Carrier, Quorum
from secure_fedgraph.privacy.dp_sgd import PrivateSteps
from secure_fedgraph.privacy.input_dp.randomizer import InputRandomizer
from secure_fedgraph.privacy.input_dp.registry import in_order
from secure_fedgraph.privacy.stages.clip import Clip
from secure_fedgraph.privacy.stages.fixed_point import FixedPoint
from secure_fedgraph.privacy.stages.gaussian import Gaussian
from secure_fedgraph.protocol.channel import Channel, Reveal
from secure_fedgraph.protocol.guarantee import Relation
from secure_fedgraph.registry import Registry

Recipe = Callable[[Channel], Protection]
Make = TypeVar("Make", bound=Callable[..., "Policy"])
Amount = float | Mapping[str, float]
"""One number for all channels, or one by a channel's name."""
OUTSIDE = Protection(Plain(), name="outside the guarantee")
"""What a channel to the referee gets under every policy: the experiment's examiner, not the federation."""
SILENT = Protection(Plain(), name="nothing is sent")
"""What a channel gets on which nothing comes back; the client enforces it."""


class PlaintextWarning(UserWarning):
    """A channel that a policy left unprotected because nothing stricter bound."""


@dataclass(frozen=True)
class Policy:
    """A recipe ``Channel -> Protection`` with named exceptions.

    Args:
        name: what results call it.
        recipe: the protection for a channel.
        exceptions: channel name -> protection, where the recipe does not decide.
        relation: the neighbouring relation that sensitivities are taken under.

    Raises:
        BadInput: for a relation that is none, or that noisy steps or randomised inputs do not hold under; for
            randomised links under noisy steps on nodes; for two drawings of one kind.
    """

    name: str
    recipe: Recipe
    exceptions: Mapping[str, Protection] = field(default_factory=dict)
    relation: str = Relation.ZERO_OUT
    steps: PrivateSteps | None = None
    """How clients train, where they train under noise."""
    drawn: tuple[InputRandomizer, ...] = ()
    """What clients randomise of their own before anything is done with it: links, labels, features."""
    made_with: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """What its recipe was called with, for another process to make it again; None for one made by hand."""

    def __post_init__(self) -> None:
        if self.relation not in tuple(Relation):
            raise BadInput(f"relation {self.relation!r}: use one of {', '.join(Relation)}")
        if self.steps is not None:
            self.steps.check_relation(self.relation)
        for one in self.drawn:
            one.check_relation(self.relation)
            if self.steps is not None and self.steps.unit == "node" and one.place == "edge_index":
                raise BadInput(
                    "links are randomised and steps.unit = 'node': which links are kept depends on all nodes "
                    "together, so one node's removal changes more records than noisy steps count; use one of "
                    "the two"
                )
        if len({one.kind for one in self.drawn}) < len(self.drawn):
            raise BadInput(f"{', '.join(one.kind for one in self.drawn)} are randomised: name each once")

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
        unlike = tuple(channel.name for channel in channels if not channel.alike)
        bounds = {c.name: replace(self._bind(c, clients), unlike=unlike) for c in channels}
        return BoundPolicy(self, _sharing_carriers(bounds))

    def _bind(self, channel: Channel, clients: tuple[str, ...]) -> Bound:
        if channel.to == "referee":
            return OUTSIDE.bind(channel, clients, self.relation)
        if channel.reveal is Reveal.NOTHING:
            return SILENT.bind(channel, clients, self.relation)
        protection = self.exceptions.get(channel.name) or self.recipe(channel)
        return protection.bind(channel, clients, self.relation)


def _sharing_carriers(bounds: dict[str, Bound]) -> dict[str, Bound]:
    """Channels with equal carriers have one between them: it is set up once a run, and keeps its keys."""
    found: list[Carrier] = []

    def shared(carrier: Carrier) -> Carrier:
        same = next((one for one in found if one == carrier), None)
        if same is None:
            found.append(carrier)
        return same or carrier

    return {name: replace(bound, carrier=shared(bound.carrier)) for name, bound in bounds.items()}


@dataclass(frozen=True)
class BoundPolicy:
    """Every channel of an algorithm with its protection. A channel that is not in it does not leave."""

    policy: Policy
    bounds: Mapping[str, Bound]

    @property
    def steps(self) -> PrivateSteps | None:
        """How clients train, where they train under noise."""
        return self.policy.steps

    @property
    def drawn(self) -> tuple[InputRandomizer, ...]:
        """What clients randomise, in the order in which they do."""
        return in_order(self.policy.drawn)

    def __getitem__(self, channel: str) -> Bound:
        if channel not in self.bounds:
            raise Unbound(f"channel {channel!r} has no protection under {self.policy.name}: nothing leaves")
        return self.bounds[channel]

    @property
    def unprotected(self) -> tuple[str, ...]:
        """The channels whose uploads anybody who holds the bytes can read, without noise or key."""
        return tuple(
            name
            for name, bound in self.bounds.items()
            if bound.bare and bound.protection not in (OUTSIDE, SILENT)
        )

    @property
    def carriers(self) -> dict[str, Carrier]:
        """The distinct carriers in use, by name."""
        return {bound.carrier.name: bound.carrier for bound in self.bounds.values()}

    @property
    def agrees_on_keys(self) -> bool:
        """Whether anything that clients hide is bound to what they were given in the run."""
        return any(bound.carrier.agrees_on_keys for bound in self.bounds.values())

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


def _by_reader(
    name: str,
    server: Protection | None,
    peer: Protection,
    relation: str = Relation.ZERO_OUT,
    peer_sum: Protection | None = None,
) -> Policy:
    """A policy that protects what the server reads one way, and what a peer reads another."""

    def recipe(channel: Channel) -> Protection:
        if channel.to == "peer":
            return peer_sum if peer_sum is not None and channel.reveal is Reveal.SUM else peer
        if server is None:
            raise Incompatible(
                f"channel {channel.name!r} is read by the server, and {name} protects peers only"
            )
        return server

    return Policy(name, recipe, relation=relation)


def _named(recipe: Make) -> Make:
    """A recipe whose policies say what it was called with, and whose arguments are of the types it names."""
    signature = inspect.signature(recipe)

    @functools.wraps(recipe)
    def make(*args: Any, **kwargs: Any) -> Policy:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BadInput(f"policies.{recipe.__name__}{signature}: {error}") from None
        given.apply_defaults()
        for key, value in given.arguments.items():
            _check_type(
                f"policies.{recipe.__name__}: {key}", value, str(signature.parameters[key].annotation)
            )
        return replace(recipe(*args, **kwargs), made_with=dict(given.arguments))

    return cast("Make", make)


@_named
def plaintext() -> Policy:
    """Nothing: the server sees every upload. The baseline that shows what there is to protect."""
    nothing = Protection(Plain(), name="plaintext")
    return _by_reader("plaintext", nothing, nothing)


@_named
def local_dp(
    norm: Amount, multiplier: Amount, relation: str = Relation.ZERO_OUT, rows: bool = False
) -> Policy:
    """Clip and Gaussian noise in the client: the server sees noised uploads only.

    What peers read is clipped and noised as well, and sealed.

    Args:
        norm: the clip, an L2 norm; one number, or one by channel.
        multiplier: noise standard deviation over sensitivity; one number, or one by channel.
        rows: where an upload has one row a node or a graph, clip each row and not the whole. The noise is
            then as small as a row; it protects nobody, since rows recur, and epsilon is infinite.
    """
    _check_amounts(norm, multiplier)

    def recipe(channel: Channel) -> Protection:
        stages = (
            Clip(_amount("norm", norm, channel), whole=not rows),
            Gaussian(_amount("multiplier", multiplier, channel)),
        )
        if channel.to == "peer":
            return Protection(Sealed(Plain()), stages, name="local_dp, sealed")
        return Protection(Plain(), stages, name="local_dp")

    return Policy("local_dp", recipe, relation=relation)


@_named
def central_dp(
    norm: Amount, multiplier: Amount, relation: str = Relation.ZERO_OUT, rows: bool = False
) -> Policy:
    """Clip in the client, Gaussian noise by the server: holds against everybody but the server.

    A peer channel does not bind: its values pass the server without being opened there.

    Args:
        norm, multiplier, rows: as for :func:`local_dp`.
    """
    _check_amounts(norm, multiplier)

    def recipe(channel: Channel) -> Protection:
        if channel.to == "peer":
            raise Incompatible(
                f"channel {channel.name!r} is read by a peer, so no server adds central_dp's noise to it: "
                "use local_dp or masked"
            )
        clip = Clip(_amount("norm", norm, channel), whole=not rows)
        noise = Gaussian(_amount("multiplier", multiplier, channel), by="server")
        return Protection(Plain(), (clip, noise), name="central_dp")

    return Policy("central_dp", recipe, relation=relation)


@_named
def distributed_dp(
    norm: Amount,
    multiplier: Amount,
    relation: str = Relation.ZERO_OUT,
    quorum: Quorum = 0.8,
    bits: int = 32,
    colluders: float = 0.1,
    dropouts: float = 0.2,
    batch: int = 1,
    abandoned: int = ABANDONED,
    limit: float = float("inf"),
) -> Policy:
    """Every client adds its share of the noise, under masks: the server sees the noised sum only.

    The shares of any ``quorum`` clients, without those of the colluders, make up the whole noise, so the
    guarantee holds against the server and against whoever contributes, and costs about as little accuracy as
    noise by a trusted server. That nobody sees a single upload rests on the masks: computationally.

    What peers read as a sum is protected alike, and sealed; a channel whose reader needs each upload is
    refused.

    Args:
        norm, multiplier: as for :func:`local_dp`; the clip bounds a client's whole upload.
        quorum: the smallest cohort that a client answers and the fewest survivors whose sum it opens: a
            number of clients, below 1 a share of all, or ``"majority"``. More is less noise, and fewer
            drop-outs survived.
        bits, colluders, dropouts, batch, abandoned: as for :func:`masked`. At least one client is taken to
            collude.
        limit: coordinates beyond it are cut: what makes room in a ring of 16 bits.
    """
    _check_amounts(norm, multiplier)

    def recipe(channel: Channel) -> Protection:
        stages = (
            Clip(_amount("norm", norm, channel), whole=True),
            Gaussian(_amount("multiplier", multiplier, channel), "shares", limit, colluders),
        )
        if channel.to == "peer" and channel.reveal is Reveal.SUM:
            return Protection(Sealed(Pairwise()), stages, quorum, "distributed_dp, sealed")
        masks = Masked(bits=bits, colluders=colluders, dropouts=dropouts, batch=batch, abandoned=abandoned)
        return Protection(masks, stages, quorum, "distributed_dp")

    return Policy("distributed_dp", recipe, relation=relation)


@_named
def masked(
    limit: float = 8.0,
    quorum: Quorum = MAJORITY,
    bits: int = 32,
    colluders: float = 0.1,
    dropouts: float = 0.2,
    batch: int = 1,
    abandoned: int = ABANDONED,
) -> Policy:
    """Double masks that cancel in the sum, also where clients drop out. Not differential privacy.

    The server sees the sum over more than half of a cohort, or nothing.

    What peers read is sealed to them, sums over pairwise masks without recovery.

    Args:
        limit: the largest absolute value that an upload carries; the grid is chosen from it. What is beyond
            is cut, and the server learns of how many uploads anything was.
        quorum: the smallest cohort that a client answers, and the fewest survivors whose sum it opens: a
            number of clients, below 1 a share of all, or ``"majority"`` of all.
        bits: of a value on the wire and of the ring: 32, or 20 or 16 where they leave each client 8 bits.
        colluders: the share of all clients that may work with the server; whatever they subtract, a sum is
            of two others or more.
        dropouts: the share of a cohort that may drop out by chance, which decides how many neighbours clients
            of a cohort above 32 mask with. More than this may end a round with an error.
        batch: sum clients in whole batches of this many only, so that sums of different rounds never tell
            fewer apart. Off (1) by default: a drop-out then costs its whole batch's uploads.
        abandoned: sums of a run that a client uploads for and that are never finished as far as it knows,
            beyond the share ``dropouts`` of all that it uploads for, before it takes part in no more.
    """
    stages, quorum = (FixedPoint(limit),), _least_two(quorum)
    carrier = Masked(bits=bits, colluders=colluders, dropouts=dropouts, batch=batch, abandoned=abandoned)
    return _by_reader(
        "masked",
        Protection(carrier, stages, quorum, "masked"),
        Protection(Sealed(Plain()), name="sealed"),
        peer_sum=Protection(Sealed(Pairwise()), stages, quorum, "masked, sealed"),
    )


@_named
def homomorphic(
    limit: float = 8.0, quorum: Quorum = MAJORITY, holder: str = "", scheme: str = "bfv"
) -> Policy:
    """Ciphertexts that the server adds without the key: it sees the sum. Not differential privacy.

    What peers read is sealed, sums over masks: every client has the homomorphic key, so to a peer that got
    ciphertexts they would be single uploads.

    A channel that declares values is valued on CKKS ciphertexts, which one client has the key to.

    Args:
        limit, quorum: as for :func:`masked`.
        holder: which client opens values; by default one that is drawn for the run.
        scheme: of sums: ``"bfv"``, or ``"ckks"``: the same sums, bit for bit, for more bytes and time.
    """
    stages, quorum = (FixedPoint(limit),), _least_two(quorum)
    valued = Protection(EncryptedValues(holder), (), quorum, "homomorphic")
    sums = _by_reader(
        "homomorphic",
        Protection(Homomorphic(scheme), stages, quorum, "homomorphic"),
        Protection(Sealed(Plain()), name="sealed"),
        peer_sum=Protection(Sealed(Pairwise()), stages, quorum, "masked, sealed"),
    )
    return replace(sums, recipe=lambda c: valued if c.reveal is Reveal.VALUES else sums.recipe(c))


@_named
def sealed() -> Policy:
    """End-to-end encryption between peers: the server sees sizes. The reader sees every upload."""
    return _by_reader("sealed", None, Protection(Sealed(Plain()), name="sealed"))


@_named
def strictest(*policies: Policy) -> Policy:
    """For each channel the first policy that binds; a channel left in plaintext raises a warning.

    Without arguments: masked, homomorphic, sealed, plaintext, in that order.
    """
    candidates = policies or tuple(RECIPES[name]() for name in LADDER if name not in NOISED)
    return _Strictest(
        "strictest", candidates[0].recipe, relation=candidates[0].relation, candidates=candidates
    )


@dataclass(frozen=True)
class _Strictest(Policy):
    candidates: tuple[Policy, ...] = ()

    def _bind(self, channel: Channel, clients: tuple[str, ...]) -> Bound:
        if channel.name in self.exceptions:
            return super()._bind(channel, clients)
        reasons = []
        for candidate in self.candidates:
            try:
                bound = candidate._bind(channel, clients)
            except Refused as refusal:
                reasons.append(f"{candidate.name}: {refusal}")
                continue
            # never less than what was refused as too little
            if bound.bare and len(clients) < channel.least and not channel.accepted:
                raise Refused(f"channel {channel.name!r} under {self.name}: {channel.below}")
            if bound.bare and bound.protection not in (OUTSIDE, SILENT):
                warnings.warn(
                    f"channel {channel.name!r} is left in plaintext ({'; '.join(reasons) or 'as asked'})",
                    PlaintextWarning,
                    stacklevel=2,
                )
            return bound
        raise Incompatible(f"channel {channel.name!r}: no recipe binds. {' | '.join(reasons)}")


def policy_named(name: str) -> Policy:
    """The recipe of that name with its defaults, as the command line makes it.

    Raises:
        BadInput: for an unknown name, or a recipe that needs a norm and noise.

    >>> policy_named("masked").name
    'masked'
    """
    if name not in RECIPES:
        raise unknown_name("policy", name, RECIPES)
    parameters = inspect.signature(RECIPES[name]).parameters.values()
    missing = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    if missing:
        raise BadInput(
            f"policy {name!r} needs {' and '.join(missing)}: give "
            f"policies.{name}({', '.join(f'{key}=1.0' for key in missing)})"
        )
    return RECIPES[name]()


_NUMBERS = {"int": (int,), "float": (int, float)}


def _check_type(key: str, value: Any, annotation: str) -> None:
    if annotation == "Policy":  # of *policies
        for one in value:
            if not isinstance(one, Policy):
                raise wrong_type(key, one, "give policies, such as policies.masked()")
    elif annotation == "Amount" and isinstance(value, Mapping):
        for channel, one in value.items():
            _check_type(f"{key}[{channel!r}]", one, "float")
    elif annotation in ("Amount", *_NUMBERS):
        number = isinstance(value, _NUMBERS.get(annotation, (int, float))) and not isinstance(value, bool)
        if not number:
            mend = "give a whole number" if annotation == "int" else "give a number"
            raise wrong_type(key, value, mend + (", or one by channel" if annotation == "Amount" else ""))
    elif annotation in ("str", "bool") and not isinstance(value, {"str": str, "bool": bool}[annotation]):
        raise wrong_type(key, value, "give a word" if annotation == "str" else "give True or False")


def _check_amounts(norm: Amount, multiplier: Amount) -> None:
    """Refuses what no channel could be clipped or noised with, before one is there."""
    for kind, amount in ((Clip, norm), (Gaussian, multiplier)):
        for one in amount.values() if isinstance(amount, Mapping) else (amount,):
            kind(one)


def _amount(key: str, amount: Amount, channel: Channel) -> float:
    if not isinstance(amount, Mapping):
        return amount
    if channel.name not in amount:
        raise BadInput(
            f"channel {channel.name!r} has no {key}, and others have one each: set "
            f"protection.{key}.{channel.name}"
        )
    return amount[channel.name]


def _least_two(quorum: Quorum) -> Quorum:
    if quorum != MAJORITY and (quorum <= 0 or 1 <= quorum < 2):
        raise BadInput(f"quorum {quorum}: a sum of one upload is that upload; use 2 or more")
    if quorum != MAJORITY and quorum > 1 and quorum % 1:
        raise BadInput(
            f"quorum {quorum}: give a whole number of clients from 2, a share below 1, or {MAJORITY}"
        )
    return quorum


LADDER = ("distributed_dp", "masked", "homomorphic", "local_dp", "sealed", "plaintext")
"""The order in which ``strictest`` tries the recipes."""
NOISED = ("distributed_dp", "local_dp")
"""Those of them that need a norm and noise."""

_OWN: dict[str, Callable[..., Policy]] = {
    "plaintext": plaintext,
    "local_dp": local_dp,
    "central_dp": central_dp,
    "distributed_dp": distributed_dp,
    "masked": masked,
    "homomorphic": homomorphic,
    "sealed": sealed,
    "strictest": strictest,
}


def _checked(name: str, found: object) -> Callable[..., Policy]:
    """Another package's recipe: as one of this module, its arguments are checked, and kept for processes."""
    if not inspect.isfunction(found):
        raise BadInput(f"give a function that returns a Policy, not {found!r}")
    spelled = [
        one.replace(annotation=getattr(one.annotation, "__name__", one.annotation))
        for one in inspect.signature(found).parameters.values()
    ]

    @functools.wraps(found)
    def recipe(*args: Any, **kwargs: Any) -> Policy:
        policy = found(*args, **kwargs)
        if not isinstance(policy, Policy) or policy.name != name:
            what = repr(policy.name) if isinstance(policy, Policy) else f"a {type(policy).__name__}"
            raise BadInput(
                f"policy {name!r}: {found.__module__}.{found.__name__} gave {what}; give a Policy "
                f"of that name"
            )
        return policy

    recipe.__signature__ = inspect.Signature(spelled)  # type: ignore[attr-defined]
    return _named(recipe)


RECIPES: Registry[Callable[..., Policy]] = Registry(
    "policy", "secure_fedgraph.policies", lambda: _OWN, _checked
)
"""The recipes by the names that the command line uses: those of this module, and of other packages."""
