"""train(): the one loop."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.backends.in_process import InProcess
from secure_fedgraph.backends.isolated import PATIENCE, Workers
from secure_fedgraph.errors import BadInput, check_number, check_whole, wrong_type
from secure_fedgraph.evaluation import MODES, in_band
from secure_fedgraph.federation import Federation
from secure_fedgraph.forms import FormWarning, fit, said
from secure_fedgraph.graph.data.own_graph import DataWarning
from secure_fedgraph.graph.kinds import GraphDataset, GraphSetDataset
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.models.parameters import load
from secure_fedgraph.privacy.policy import BoundPolicy, Policy, policy_named, strictest
from secure_fedgraph.privacy.spending.budget import Budget
from secure_fedgraph.privacy.spending.ledger import Charge, Ledger, check_mark, read_ledger, report
from secure_fedgraph.protocol import Channel, Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.dropouts import Dropouts
from secure_fedgraph.protocol.transcript import REFEREE, Keep, nothing
from secure_fedgraph.round import Round, Sampler, everyone, set_up
from secure_fedgraph.storage.checkpoint import Checkpoint

LOWER_IS_BETTER = ("mae",)
OnRound = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, repr=False)
class Run:
    """What a training run leaves: the state, the scores, the record of what was sent, the charges."""

    algorithm: Algorithm
    federation: Federation
    policy: BoundPolicy
    state: State
    history: Sequence[dict[str, Any]]
    transcript: Transcript
    charges: Sequence[Charge]
    seconds: float
    evaluation: str
    budget: Budget | None = None

    def __repr__(self) -> str:
        last = {k: v for k, v in self.history[-1]["accuracy"].items() if isinstance(v, float)}
        scores = ", ".join(f"{name} {value:.3f}" for name, value in last.items())
        made_of = (
            f"{self.algorithm.name} on {self.federation.facts['data']}, {len(self.federation.names)} clients"
        )
        number = self.history[-1]["round"]
        return f"Run({made_of}, policy {self.policy.policy.name}, round {number}: {scores})"

    @property
    def model(self) -> nn.Module:
        """The trained model that everybody was given, ready to predict.

        Raises:
            BadInput: where models are personal, or the algorithm has no single module.
        """
        released, build = self.algorithm.released(self.state), getattr(self.algorithm, "model", None)
        if released is None or not callable(build):
            raise BadInput(
                f"{self.algorithm.name} releases no single model: its clients keep theirs, or it has several"
            )
        model: nn.Module = build(self.federation.schema)
        load(model, released)
        return model.eval()

    @property
    def accuracy(self) -> dict[str, Any]:
        """The last round's scores; beside them the best round by validation and the best test score."""
        last = self.history[-1]["accuracy"]
        figures = [key for key in last if key != "validation"]
        found: dict[str, Any] = {key: last[key] for key in figures}
        if self.evaluation != "referee":
            return found
        scored = [r for r in self.history if "validation" in r["accuracy"]]
        if scored:
            lower = self.algorithm.measure(self.federation.schema) in LOWER_IS_BETTER
            choose = min if lower else max
            chosen = choose(scored, key=lambda r: r["accuracy"]["validation"])
            by_validation = {key: chosen["accuracy"][key] for key in figures}
            found["best_by_validation"] = {"round": chosen["round"], **by_validation}
        found["best_on_test"] = {
            key: (min if key.startswith(LOWER_IS_BETTER) else max)(
                r["accuracy"][key] for r in self.history if key in r["accuracy"]
            )
            for key in figures
        }
        return found

    @property
    def form(self) -> dict[str, Any]:
        """The settings of the form that the policy made the algorithm take; empty as configured."""
        return dict(self.algorithm.form.settings) if self.algorithm.form else {}

    def privacy(self, unit: str | None = None, delta: float = 1e-5) -> dict[str, Any]:
        """What was spent, by unit; with ``unit`` that entry alone.

        Raises:
            BadInput: for a unit that nothing in the run speaks for, or a delta outside 0 to 1.
        """
        check_number("delta", delta)
        if not 0 < delta < 1:
            raise BadInput(f"delta = {delta}: give a number between 0 and 1; 1e-5 is usual")
        speaks = [one.unit for one in self.policy.drawn] + ([self.budget.unit] if self.budget else [])
        units = tuple(dict.fromkeys((*self.federation.units, *speaks)))
        entries = report(self.charges, delta, self.federation.holders, units)
        if unit is None:
            return entries
        if not isinstance(unit, str) or unit not in entries:
            raise BadInput(
                f"nothing in this run was charged to unit {unit!r}: units here are {sorted(entries)}"
            )
        found: dict[str, Any] = entries[unit]
        return found


def train(
    algorithm: Algorithm,
    federation: Federation,
    policy: Policy | str | None = None,
    *,
    rounds: int | None = None,
    seed: int = 0,
    sampler: Sampler = everyone,
    evaluation: str = "referee",
    out: Path | str | None = None,
    keep: Keep = nothing,
    on_round: OnRound | None = None,
    on_start: Callable[[], None] | None = None,
    isolated: bool = False,
    answer_within: float = PATIENCE,
    resume: bool = False,
    checkpoint_every: int = 1,
    dropouts: Dropouts | None = None,
    budget: Budget | None = None,
    ledger: Path | str | None = None,
    allow_plaintext: bool = False,
) -> Run:
    """Runs an algorithm over a federation under a policy.

    Guarantees:
        - every channel is bound before round 1, or nothing is sent at all;
        - clients are reached as message bytes through their one door;
        - a killed run that is resumed ends with the weights of one that was not, where no noise is drawn
          and nothing is valued encrypted (CKKS has noise of its own, and fresh keys other noise);
          what its interrupted round was charged stays charged, and clients agree on fresh keys;
        - sums that survive drop-outs (``masked``) go on without a client that answers nonsense or whose
          process dies, and the transcript says so; every other exchange ends the run with an error that names
          it. Where a process died, no checkpoint is kept any more: a resumed run starts from the last before.

    Args:
        policy: one of ``policies``, or the name of one that needs no settings, such as ``"masked"``; by
            default the strictest recipe that binds, channel by channel. Where it does not bind to the
            algorithm as configured, the first of the algorithm's forms that it binds to is taken, but for
            what was set by hand; a :class:`~secure_fedgraph.forms.FormWarning` says so, and ``run.form``.
        rounds: by default the algorithm's own number.
        seed: for initialisation and sampling, each from a sub-seed; nothing that protects somebody.
        sampler: picks the cohort of a round.
        evaluation: ``"referee"`` or ``"in_band"``.
        out: folder for the ledger, the transcript and the checkpoints; in memory without one.
        keep: which messages the transcript keeps in full.
        on_round: called with each round's scores; on resume with those of the earlier rounds first.
        on_start: called once nothing can be refused any more and nothing has been sent yet.
        isolated: every client in a process of its own. It opens the same values on the same seed, to the
            bit with one thread (with more, torch adds up in another order each time, in either mode). What
            clients open from their peers is not in the transcript then: nobody looks into another process.
        answer_within: seconds that an isolated client's process has for an answer; then it is ended, and it
            is gone as one is that died.
        resume: go on from the checkpoint in ``out``, with the arguments that the run was started with.
        checkpoint_every: that many rounds; 0 never. The last round always counts.
        dropouts: clients that a simulation keeps from answering, where the carrier survives it (``masked``).
        budget: what no client may exceed: the run stops before the message that would.
        ledger: a ledger that other runs over the same data share, so that what they spend adds up; by default
            ``ledger.jsonl`` in ``out``.
        allow_plaintext: accept that ``strictest`` leaves channels in plaintext to which nothing stricter
            binds; without it that is refused.

    Raises:
        Refused: where a protection cannot give a channel what it declares, in any form of the algorithm.
        LeftInPlaintext: where the strictest policy would leave a channel in plaintext.
        BudgetExhausted: where a client's next message would exceed the budget; every finished round is kept.
        BadInput: for arguments of another type or out of range, or a checkpoint that is missing, foreign,
            older or damaged.

    Warns:
        DataWarning: where edges carry something that the model does not read.
    """
    _check_subjects(algorithm, federation)
    rounds = algorithm.rounds if rounds is None else rounds
    for key, number, least in (
        ("rounds", rounds, 1),
        ("seed", seed, 0),
        ("checkpoint_every", checkpoint_every, 0),
    ):
        check_whole(key, number, least)
    if evaluation not in MODES:
        raise BadInput(f"evaluation = {evaluation!r}: use one of {', '.join(MODES)}")
    check_number("answer_within", answer_within)
    if not answer_within > 0:
        raise BadInput(f"answer_within = {answer_within}: give seconds above 0, or inf to wait for ever")
    for key, flag in (("isolated", isolated), ("resume", resume)):
        if not isinstance(flag, bool):
            raise wrong_type(key, flag, "give True or False")
    for key, function in (
        ("sampler", sampler),
        ("keep", keep),
        ("on_round", on_round),
        ("on_start", on_start),
    ):
        if not callable(function) and not (function is None and key.startswith("on_")):
            raise wrong_type(key, function, "give a function")
    if not isinstance(dropouts, Dropouts | None):
        raise wrong_type("dropouts", dropouts, "give Dropouts(share=0.2), or leave it out")
    if not isinstance(budget, Budget | None):
        raise wrong_type("budget", budget, "say whose data it is about, such as Budget(8.0, unit='client')")
    policy, out, ledger = _policy(policy), _path("out", out), _path("ledger", ledger)
    if algorithm.pools:
        federation = federation.pooled()
    federation.check(algorithm, evaluation)
    configured = algorithm
    algorithm = fitted(algorithm, policy, federation, evaluation, allow_plaintext)
    if algorithm is not configured:
        warnings.warn(said(algorithm, policy.name), FormWarning, stacklevel=2)
    bound = policy.bind(channels_of(algorithm, federation, evaluation), federation.names)
    _check_inside(bound, algorithm, federation)
    if dropouts is not None and not any(one.carrier.tolerates_dropouts for one in bound.bounds.values()):
        raise BadInput(
            f"dropouts: under {policy.name} {algorithm.name} needs an answer of every client; use masked or "
            "distributed_dp, or leave dropouts out"
        )
    unread = sorted(set(federation.schema.edge_fields) - set(algorithm.reads(federation.schema)))
    if unread:
        warnings.warn(
            f"{' and '.join(unread)}: {algorithm.name}'s model does not read it", DataWarning, stacklevel=2
        )
    started, last = time.perf_counter(), algorithm.warm_up + rounds
    facts = _facts(algorithm, federation, bound, rounds, seed, evaluation)
    folder = out / "checkpoint" if out and (checkpoint_every or resume) else None
    with ExitStack() as stack:
        kept = stack.enter_context(Checkpoint(folder, facts, resume))
        past, done = kept.progress, kept.progress.round
        transcript = Transcript(
            out and out / "transcript", keep, _public(algorithm, federation, bound), resume
        )
        scratch = out or Path(stack.enter_context(TemporaryDirectory())) if isolated else out
        path = ledger or (scratch and scratch / "ledger.jsonl")
        if resume and path and past.ledger:
            check_mark(path, past.ledger)
        book = Ledger.go_on(path, budget) if resume and path else Ledger(path, budget)
        if algorithm.pools and not resume:  # every owner has handed over its raw data before round 1
            book.charge(Charge("pool", past.run, 0, 0, "pooled raw data", "client", bound.policy.relation))
        own = sub_seed(seed, "clients")
        # beside an older checkpoint: clients answer no number again that the ledger says they answered
        after = max(kept.reserved, *(book.answered(name, past.run) for name in federation.names))
        clients: InProcess | Workers
        if isolated:
            assert book.path is not None
            clients = federation.isolate(
                algorithm, bound, past.run, book.path, own, kept.clients, after, budget, answer_within
            )
        else:
            witness = transcript.record_opened
            clients = InProcess(
                federation.make_clients(algorithm, bound, past.run, book, own, witness, kept.clients, after)
            )
        stack.callback(clients.close)
        courier = Courier(past.run, clients, transcript, after, kept.reserve, dropouts)

        if on_start is not None:
            on_start()
        if resume:
            clients.load(kept.label)
            state, history = past.state, list(past.history)
        else:
            state, history = algorithm.init(federation.schema, sub_seed(seed, "initialisation")), []
            kept.commit(0, state, history, 0.0, clients, book.mark())
        if on_round is not None:
            for row in history:
                on_round(row)
        if done < last:
            set_up(bound, courier, federation.names)
        for number in range(done + 1, last + 1):
            cohort = sampler(number, federation.names, sub_seed(seed, "cohort"))
            round = Round(number, cohort, bound, courier)
            state = algorithm.round(round, state)
            if number > algorithm.warm_up:
                scores = _evaluate(evaluation, algorithm, federation, state, round, bound, courier)
                scored = number - algorithm.warm_up
                aside = {"loss": scores.pop("loss", None), "owners": scores.pop("owners", {})}
                history.append({"round": scored, **aside, "accuracy": scores})
                if on_round is not None:
                    on_round(history[-1])
            seconds = past.seconds + time.perf_counter() - started
            # a checkpoint is of everybody: where a client is lost, the last one before stays
            if not clients.lost and (number == last or (checkpoint_every and not number % checkpoint_every)):
                kept.commit(number, state, history, seconds, clients, book.mark())
        transcript.close()
        charges = book.charges if book.path is None else _charged(book.path, past.run)
    seconds = past.seconds + time.perf_counter() - started
    return Run(algorithm, federation, bound, state, history, transcript, charges, seconds, evaluation, budget)


def _check_subjects(algorithm: object, federation: object) -> None:
    """What is trained, and on what."""
    if isinstance(algorithm, type) and issubclass(algorithm, Algorithm):
        raise wrong_type("algorithm", algorithm, f"give an instance, {algorithm.__name__}()")
    if not isinstance(algorithm, Algorithm):
        raise wrong_type("algorithm", algorithm, "give an algorithm, such as FedSage()")
    if not isinstance(federation, Federation):
        raise wrong_type("federation", federation, "hand the data out first, with federate(data, clients=3)")


def _policy(policy: object) -> Policy:
    if isinstance(policy, str):
        return policy_named(policy)
    if policy is None:
        return strictest()
    if not isinstance(policy, Policy):
        call = f"call it, policies.{getattr(policy, '__name__', 'masked')}()" if callable(policy) else ""
        raise wrong_type(
            "policy", policy, call or "give one of policies, such as policies.masked(), or its name"
        )
    return policy


def _path(key: str, path: object) -> Path | None:
    if path is None:
        return None
    if not isinstance(path, str | Path):
        raise wrong_type(key, path, "give a path")
    return Path(path)


def fitted(
    algorithm: Algorithm,
    policy: Policy,
    federation: Federation,
    evaluation: str = "referee",
    allow_plaintext: bool = False,
) -> Algorithm:
    """The form of an algorithm that runs over a federation under a policy.

    Raises:
        Refused, BadInput: as :func:`train`.
    """
    if algorithm.pools:
        federation = federation.pooled()
    return fit(
        algorithm,
        policy,
        federation.names,
        allow_plaintext,
        lambda one: channels_of(one, federation, evaluation),
        lambda one: federation.check(one, evaluation),
    )


def channels_of(algorithm: Algorithm, federation: Federation, evaluation: str) -> tuple[Channel, ...]:
    """Every channel that a run opens, the examiner's included."""
    channels = (*algorithm.in_use, *federation.referee.channels(algorithm))
    if evaluation == "in_band":  # no referee, so nobody who calls himself one is answered
        return (*(c for c in channels if c.to != REFEREE), algorithm.METRICS)
    return channels


def _check_inside(bound: BoundPolicy, algorithm: Algorithm, federation: Federation) -> None:
    """That noise inside the clients fits the data and the algorithm, before anything is sent."""
    kind, carried = federation.schema.kind, federation.schema.edge_fields
    if carried and any(one.place == "edge_index" for one in bound.drawn):
        raise BadInput(
            f"links are drawn anew, and new links have no {' or '.join(carried)}: leave it out of the data"
        )
    if bound.steps is not None:
        algorithm.check_records(federation.schema, bound.steps.unit)
        record = "graph" if kind == GraphSetDataset.kind else "node"
        if bound.steps.unit != record:
            raise BadInput(
                f"steps.unit = {bound.steps.unit!r}: records of these data are {record}s; set unit={record}"
            )
    if bound.drawn and kind != GraphDataset.kind:
        raise BadInput(
            f"{bound.drawn[0].kind} are drawn anew in one graph of nodes, and these data are of kind {kind!r}"
        )


def _called(made: object) -> str:
    named = made if hasattr(made, "__qualname__") else type(made)
    return f"{getattr(named, '__module__', '')}:{getattr(named, '__qualname__', '')}"


def _charged(path: Path, run: str) -> tuple[Charge, ...]:
    """What this run was charged, by whichever process, before and after it was killed."""
    found = read_ledger(path) if path.is_file() else []
    return tuple(charge for charge in found if charge.run in (run, "unknown"))  # unknown: a torn line


def _evaluate(
    mode: str,
    algorithm: Algorithm,
    federation: Federation,
    state: State,
    round: Round,
    bound: BoundPolicy,
    courier: Courier,
) -> dict[str, Any]:
    if mode == "in_band":
        return in_band(algorithm, state, round)
    examination = Round(round.number, federation.names, bound, courier, reader=REFEREE)
    return federation.referee.evaluate(algorithm, state, examination, federation.schema)


def _public(algorithm: Algorithm, federation: Federation, bound: BoundPolicy) -> dict[str, Any]:
    """What everybody knows before round 1, and so every view holds."""
    return {
        **algorithm.public(),
        "policy": bound.policy.name,
        "clients": list(federation.names),
        "schema": {"features": federation.schema.features, "classes": federation.schema.classes},
        "channels": {row["name"]: row for row in bound.describe()},
    }


def _facts(
    algorithm: Algorithm, federation: Federation, bound: BoundPolicy, rounds: int, seed: int, evaluation: str
) -> dict[str, Any]:
    """What a run is made of, as its checkpoint notes it: JSON in, the same JSON out."""
    kind = type(algorithm)
    facts = {
        **algorithm.public(),
        "class": f"{kind.__module__}:{kind.__qualname__}",
        **{key: _called(made) for key, made in algorithm.made_with().items() if key == "model"},
        "policy": bound.policy.name,
        "channels": bound.describe(),
        "protection": {k: v for k, v in (bound.policy.made_with or {}).items() if k != "policies"},
        "noise": {
            name: {reader: [event.to_json() for event in found] for reader, found in b.releases().items()}
            for name, b in bound.bounds.items()
        },
        "steps": asdict(bound.steps) if bound.steps else None,
        "drawn": [one.to_config() for one in bound.drawn],
        "stages": {name: [stage.terms() for stage in b.stages] for name, b in bound.bounds.items()},
        "clients": list(federation.names),
        "data": {key: value for key, value in federation.facts.items() if key != "source"},
        "rounds": rounds,
        "seed": seed,
        "evaluation": evaluation,
    }
    found: dict[str, Any] = json.loads(json.dumps(facts, default=str))
    return found
