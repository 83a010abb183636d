"""What a grid is made of: attacks, adversaries and control settings by name, and the settings of each run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.arguments import unknown_name
from secure_fedgraph.attacks import ATTACKS, Attack, Control, checked, families
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.registry import own_class

AS_CONFIGURED = "as configured"
ALIASES = {
    "mashes": "mash",
    "vertical": "glasu",
    "rounds": "aggregation",
    "d1-glasu-index-sets": "d1-index-lists",
}
"""Other names of families and attacks."""
MALICIOUS = "malicious-"


def choose(names: Iterable[str]) -> list[type[Attack]]:
    """Attacks by id, slug, family, or ``all`` that learn something; a user's own as ``module:Class``.

    Raises:
        BadInput: for a name that is none of these, or that of a plugin that cannot be used, with the reason.
    """
    by_id: dict[str, type[Attack]] = {}
    for name in names:
        if ":" in name:
            own = checked(own_class("attack", name, Attack))  # type: ignore[type-abstract]
            if ATTACKS.get(own.id) or by_id.setdefault(own.id, own) is not own:
                raise BadInput(f"attack {name!r} has the id of another, {own.id!r}: give it one of its own")
            continue
        asked = ALIASES.get(name, name)
        chosen = [
            a
            for a in ATTACKS.values()
            if asked in ("" if a.harms else "all", a.family, a.id, *a.id.split("-", 1))
        ]
        for given, why in ATTACKS.broken.items() if not chosen else ():
            if asked in (given, *given.split("-", 1)):
                raise BadInput(why)
        if not chosen:
            raise unknown_name("attack", name, [*ATTACKS, *families(), "all"])
        by_id.update({a.id: a for a in chosen})
    return list(by_id.values())


def readers(experiment: Experiment, attacks: Iterable[type[Attack]]) -> list[type[Attack]]:
    """Those that can read a channel that the algorithm declares.

    It need not be in use as configured: a control may put it there, and where none does the cell says that
    the attack is blind.
    """
    declared, taken = declared_channels(experiment), algorithm_named(experiment.algorithm).partitions
    return [
        attack for attack in attacks if declared & set(attack.reads()) and attack.partition in ("", *taken)
    ]


def declared_channels(experiment: Experiment) -> set[str]:
    """The algorithm's channels by name, and those of the form that runs in its place under a budget."""
    return _channels(experiment, algorithm_named(experiment.algorithm)) | _channels(experiment)


def _channels(experiment: Experiment, kind: type[Algorithm] | None = None) -> set[str]:
    """The channels of what runs, and those of owners' scores where the experiment has them sent."""
    kind = kind or type(experiment.make_algorithm())
    scores = {kind.METRICS.name, kind.SCORES.name} if experiment.evaluation == "in_band" else set()
    return {channel.name for channel in kind.channels} | scores


def adversaries(attacks: Iterable[type[Attack]], named: str | None = None) -> tuple[str, ...]:
    """Who attacks: all that the attacks declare, or those that were named, by commas.

    Raises:
        BadInput: for a name that none of the attacks declares.
    """
    attacks = list(attacks)
    declared = tuple(dict.fromkeys(a for attack in attacks for a in attack.adversaries))
    if named is None:
        return declared
    known = dict.fromkeys(
        name for attack in attacks for who in attack.adversaries for name in _roles(attack, who)
    )
    chosen = tuple(dict.fromkeys(name.strip() for name in named.split(",")))
    for name in chosen:
        if name not in known:
            raise unknown_name("adversary (of the chosen attacks)", name, known)
    return tuple(dict.fromkeys(name.removeprefix(MALICIOUS) for name in chosen))


def played_by(attacks: Iterable[type[Attack]], named: str | None = None) -> list[type[Attack]]:
    """The attacks that one of the named adversaries runs.

    ``malicious-client`` runs those that leave the protocol alone; ``client`` all that a client runs.
    """
    attacks = list(attacks)
    if named is None:
        return attacks
    chosen = {name.strip() for name in named.split(",")}
    return [a for a in attacks if any(chosen & set(_roles(a, who)) for who in a.adversaries)]


def _roles(attack: type[Attack], who: str) -> tuple[str, ...]:
    return (who, f"{MALICIOUS}{who}") if attack.behaviour == "malicious" else (who,)


def controls(attacks: Iterable[type[Attack]], named: Iterable[str]) -> tuple[str, ...] | None:
    """The control settings that were named; None where none were: all that the attacks declare.

    Raises:
        BadInput: for a name that none of the attacks declares.
    """
    declared = tuple(dict.fromkeys(c.name for attack in attacks for c in attack.controls))
    chosen = tuple(dict.fromkeys(named))
    for name in chosen:
        if not declared:
            raise BadInput(f"control {name!r}: the chosen attacks declare none, so leave it out")
        if name not in declared:
            raise unknown_name("control (of the chosen attacks)", name, declared)
    return chosen or None


@dataclass(frozen=True)
class Variant:
    """One setting under which a run is attacked, and by which attacks.

    Args:
        plays: of an active attack, which has the run to itself: the algorithm as its party plays it.
        why_not: why it cannot be run; empty where it can.
    """

    name: str
    settings: Mapping[str, Any]
    attacks: tuple[type[Attack], ...]
    plays: Callable[[type[Algorithm]], type[Algorithm]] | None = None
    why_not: str = ""


def variants(
    experiment: Experiment, attacks: Iterable[type[Attack]], controls: Collection[str] | None = None
) -> list[Variant]:
    """The configured run, and one for each setting in which attacks show their reach.

    Attacks share the runs of controls of the same name. An attack whose channel the algorithm, or the form
    that a budget gives it, lacks needs none, and neither does a control that the configured run is already.

    Args:
        controls: these only, by name; None: all that the attacks declare.
    """
    attacks, made = tuple(attacks), experiment.make_algorithm()
    kind, used = type(made), _channels(experiment)
    configured = {"training": made.settings.model_dump()}
    by_name: dict[tuple[str, str], Variant] = {}
    for attack in attacks:
        for control in attack.controls if used & set(attack.reads()) else ():
            if controls is not None and control.name not in controls:
                continue
            settings, runs = dict(control.settings), _runs(kind, control)
            why_not = _why_not(experiment, kind, control)
            if (
                not why_not
                and attack.depends_on
                and all(settings.get(k) == at(configured, k) for k in attack.depends_on)
            ):
                continue  # the configured run shows it
            if settings.pop("algorithm", None) is not None and runs is not None and runs is not kind:
                settings["algorithm"] = runs.name
            if "federated_epochs" in kind.Settings.model_fields:  # rounds before the first scored one
                settings.setdefault("training.federated_epochs", 1)
            name, plays = _played(control.name, attack)
            known = by_name.get((name, why_not), Variant(name, settings, ()))
            by_name[name, why_not] = Variant(name, settings, (*known.attacks, attack), plays, why_not)
    active = [attack for attack in attacks if used & set(attack.reads()) and _played("", attack)[1]]
    played = [Variant(f"{AS_CONFIGURED}, {_slug(a)} plays", {}, (a,), _played("", a)[1]) for a in active]
    others = tuple(attack for attack in attacks if attack not in active)
    honest = [Variant(AS_CONFIGURED, {}, others)] if others or not active else []
    return [*honest, *played, *by_name.values()]


def _why_not(experiment: Experiment, kind: type[Algorithm], control: Control) -> str:
    """Why a control cannot be run beside an algorithm; empty where it can.

    A control may name another algorithm, which has to be a variant of the one that is audited: settings that
    were chosen for this one are that one's too.
    """
    runs = _runs(kind, control)
    if runs is None:
        return f"the control runs {control.settings['algorithm']}, which is no variant of {kind.name}"
    known = runs.Settings.model_fields
    lacking = [k for k in control.settings if k.startswith("training.") and k[9:] not in known]
    if lacking:
        return f"the control sets {' and '.join(lacking)}, which {runs.name} does not have"
    if kind is algorithm_named(experiment.algorithm).of_kind(experiment.kind):
        return ""
    own = {key[9:]: value for key, value in control.settings.items() if key.startswith("training.")}
    set_by_hand = experiment.model_copy(update={"training": {**experiment.training, **own}})
    if control.settings.keys() != {"rounds"} and type(set_by_hand.make_algorithm()) is kind:
        return ""
    return (
        f"{kind.name}, which a budget puts in its place, does not run with {' and '.join(control.settings)}"
    )


def _runs(kind: type[Algorithm], control: Control) -> type[Algorithm] | None:
    """What a control runs beside an algorithm: its variant, or a variant of both; None where none is."""
    if "algorithm" not in control.settings:
        return kind
    named = algorithm_named(control.settings["algorithm"])
    both = (one for one in (named, *ALGORITHMS.own.values()) if issubclass(one, kind))
    return next((one for one in both if issubclass(one, named)), None)


def _played(
    name: str, attack: type[Attack]
) -> tuple[str, Callable[[type[Algorithm]], type[Algorithm]] | None]:
    """A control's run and who plays it: an active attack changes the run, so it shares it with no other."""
    plays = getattr(attack, "plays", None)
    return (f"{name}, {_slug(attack)} plays", plays) if plays else (name, None)


def _slug(attack: type[Attack]) -> str:
    return attack.id.split("-", 1)[0]


def unscored(experiment: Experiment, attack: type[Attack], adversary: str, variant: str) -> dict[str, Any]:
    """A cell without a score, for the list of what was not run."""
    about = {"algorithm": experiment.algorithm, "policy": experiment.policy, "seed": experiment.seed}
    return {**about, "attack": attack.id, **attack.in_words(), "adversary": adversary, "variant": variant}


def at(config: Any, dotted: str) -> Any:
    """A setting of a resolved configuration; None where the algorithm has none of that name."""
    for key in dotted.split("."):
        config = config.get(key) if isinstance(config, Mapping) else None
    return config
