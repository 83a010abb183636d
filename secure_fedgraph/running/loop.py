"""train(): the one loop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self

from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.backends.in_process import InProcess
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BadInput, WrongType
from secure_fedgraph.core.message import ANSWER
from secure_fedgraph.core.spending.ledger import Charge, Ledger, check_mark, read_ledger
from secure_fedgraph.core.upload import unlike_real_numbers
from secure_fedgraph.disputes.record import SumRecord
from secure_fedgraph.evaluation import in_band
from secure_fedgraph.federation import Federation
from secure_fedgraph.graph.placing import CPU
from secure_fedgraph.graph.seeds import sub_seed
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.courier import Courier
from secure_fedgraph.protocol.memory import copied
from secure_fedgraph.protocol.transcript import REFEREE, SERVER
from secure_fedgraph.protocol.transport import Lost
from secure_fedgraph.round import Round, SetUps, set_up
from secure_fedgraph.running.options import run_options
from secure_fedgraph.running.preparation import Prepared, prepare
from secure_fedgraph.running.remote_clients import Reached
from secure_fedgraph.running.run import Run
from secure_fedgraph.storage.checkpoint import Checkpoint

# What is open while a run goes: its checkpoint, ledger, transcript, clients and courier.


class Session:
    """Everything that a run opens (checkpoint, ledger, transcript, clients), closed together at its end.

    Args:
        prepared: what runs.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared, self.options = prepared, prepared.options
        self._started, self._stack = time.perf_counter(), ExitStack()
        self._reached: Reached | None = None
        self._set_ups = SetUps()

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # if one part fails to open, the parts before it are closed
            prepared, options = self.prepared, self.options
            out, resume = options.folder, options.resume
            folder = out / "checkpoint" if out and (options.checkpoint_every or resume) else None
            self._kept = stack.enter_context(Checkpoint(folder, prepared.facts(), resume))
            self.transcript = Transcript(out and out / "transcript", options.keep, prepared.public(), resume)
            self.transcript.check_whole(self._kept.progress.notes)
            self._ledger = self._open_ledger()
            # the checkpoint may be older than the ledger: no exchange number is answered twice
            answered = {name: self._ledger.answered(name, self._run) for name in prepared.federation.names}
            self._last_charged = max(answered.values())
            self._after = max(self._kept.reserved, self._last_charged)
            if resume and options.connect is None:
                self._check_charged(answered)
            self._record = SumRecord(out, self._kept.progress.round) if out else None
            self._clients = self._open_clients()
            stack.callback(self._clients.close)
            self.courier = Courier(
                self._run,
                self._clients,
                self.transcript,
                self._after,
                self._kept.reserve,
                options.dropouts,
                "" if self._reached is None else self._reached.common,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self) -> tuple[State, list[dict[str, Any]]]:
        """The state before the next round, and the scores of the rounds before; clients agree on keys."""
        options, past, algorithm = self.options, self._kept.progress, self.prepared.algorithm
        if not options.resume:  # refuses settings that fit no such data: before anything is written
            seed = sub_seed(options.seed, "initialisation")
            state, history = algorithm.init(self.prepared.federation.schema, seed), list[dict[str, Any]]()
        if options.on_start is not None:
            options.on_start()
        if options.resume:
            self._clients.load(self._kept.label)
            if options.connect is None:  # else each has its own ledger
                self.transcript.note_stopped(self._last_charged)
            state, history = past.state, list(past.history)
        else:
            self._commit(0, state, history, 0.0)
        if options.on_round is not None:
            for row in history:
                options.on_round(row)
        if self.to_do:
            set_up(self.prepared.bound, self.courier, self._present)
        return state, history

    @property
    def to_do(self) -> range:
        """The numbers of the rounds that are left."""
        return range(self._kept.progress.round + 1, self.prepared.last + 1)

    def round(self, number: int) -> Round:
        """The server's view of one round, with its cohort.

        Raises:
            BadInput: for a cohort that is not of these clients.
        """
        names = self.prepared.federation.names
        cohort = self.options.sampler(number, names, sub_seed(self.options.seed, "cohort"))
        strangers = sorted({str(name) for name in cohort} - set(names))
        if strangers:
            known = ", ".join(names[:12]) + ", ..." * (len(names) > 12)
            raise BadInput(
                f"sampler: round {number} asks for {strangers[0]!r}, and the clients are {known}: give some"
            )
        present = set(self._present)
        here = tuple(name for name in cohort if name in present)
        if not here:
            raise Lost(f"round {number} asks for {', '.join(cohort[:12])}, and none of them can be reached")
        keep = None if self._record is None else self._record.keep
        return Round(number, here, self.prepared.bound, self.courier, set_ups=self._set_ups, record=keep)

    def scores(self, round: Round, state: State) -> dict[str, Any]:
        """A round's row of the history: by the referee, in band, or without scores where none are due.

        The referee works with copies: no guarantee covers what it reads, so nothing that it keeps on the
        algorithm or changes in the state may get into training.
        """
        algorithm, federation = self.prepared.algorithm, self.prepared.federation
        scores: dict[str, Any]
        due = self.options.scores(round.number - algorithm.warm_up, self.prepared.rounds)
        final = round.number == self.prepared.last or (due and self.options.evaluate_every > 1)
        if self.prepared.evaluation == "at_home" or not due:
            scores = {}
        elif self.prepared.evaluation == "in_band":
            scores = in_band(algorithm, state, round, federation.schema, final)
        else:
            names = federation.names
            referee_round = Round(round.number, names, self.prepared.bound, self.courier, reader=REFEREE)
            examined = copied(algorithm, f"algorithm {algorithm.name!r}")
            state = copied(state, f"the state of {algorithm.name!r}")
            referee = federation.referee
            scores = referee.evaluate(examined, state, referee_round, federation.schema, final)
            if round.number == self.prepared.last and algorithm.COMBINED.name in self.prepared.bound.bounds:
                scores |= referee.personal(examined, state, referee_round, federation.schema)
        extra: dict[str, Any] = {"loss": scores.pop("loss", None), "owners": scores.pop("owners", {})}
        more: dict[str, Any] = {key: scores.pop(key) for key in ("metrics", "tested") if key in scores}
        row = {"round": round.number - algorithm.warm_up, **extra, "accuracy": scores, **more}
        if self.options.on_round is not None:
            self.options.on_round(row)
        return row

    def keep(self, number: int, state: State, history: list[dict[str, Any]]) -> None:
        """Writes a checkpoint, if one is due."""
        every = self.options.checkpoint_every
        due = number == self.prepared.last or (every and not number % every)
        if due:
            self._commit(number, state, history, self._seconds())

    def _commit(self, number: int, state: State, history: list[dict[str, Any]], seconds: float) -> None:
        mark, notes = self._ledger.mark(), self.transcript.sync()
        self._kept.commit(number, state, history, seconds, self._clients, mark, notes)

    def end(self, state: State, history: list[dict[str, Any]]) -> Run:
        """What the run leaves: whoever reads it needs no GPU."""
        self.transcript.close()
        return Run(
            self.prepared.algorithm.on(CPU.type),
            self.prepared.federation,
            self.prepared.bound,
            state,
            history,
            self.transcript,
            self._charges(),
            self._seconds(),
            self.prepared.evaluation,
            self.options.budget,
            self.options.evaluate_every,
            server_scores=self._reached is not None and self._server_reads,
        )

    @property
    def _server_reads(self) -> bool:
        """Whether a server that is the referee reads anything of clients: answers, or labels of columns."""
        examined = any(one.channel.to == REFEREE for one in self.prepared.bound.bounds.values())
        return examined or self.prepared.federation.holders > 1

    @property
    def _run(self) -> str:
        return self.options.run or self._kept.progress.run

    def _seconds(self) -> float:
        return self._kept.progress.seconds + time.perf_counter() - self._started

    @property
    def _present(self) -> tuple[str, ...]:
        """The clients that can be asked: all, but for those on other machines that are away."""
        return self.prepared.federation.names if self._reached is None else self._reached.present

    def _open_ledger(self) -> Ledger:
        options, past, algorithm = self.options, self._kept.progress, self.prepared.algorithm
        if options.connect is not None:  # each client has its own, on its own machine
            return Ledger(None)
        path = options.shared_ledger or (options.folder and options.folder / "ledger.jsonl")
        if options.resume and path and past.ledger:
            check_mark(path, past.ledger)
        budget = options.budget
        ledger = Ledger.go_on(path, budget) if options.resume and path else Ledger(path, budget)
        ledger.check_relation(self.prepared.bound.policy.relation)
        if algorithm.pools and not options.resume:  # every owner has handed over its raw data before round 1
            relation = self.prepared.bound.policy.relation
            ledger.charge(Charge("pool", past.run, 0, 0, "pooled raw data", "client", relation))
        return ledger

    def _check_charged(self, answered: Mapping[str, int]) -> None:
        """Checks that the ledger has the charges of all uploads that the record knows of.

        The checkpoint may be older than both, and so know less of the ledger.

        Raises:
            BadInput: for one that lacks a charge.
        """
        uploading = {
            name: bound.channel.reveal is not Reveal.NOTHING
            for name, bound in self.prepared.bound.bounds.items()
        }
        for sent in self.transcript.sent:
            if sent.recipient != SERVER or sent.step != ANSWER or not uploading.get(sent.channel):
                continue
            if sent.exchange > answered.get(sent.sender, sent.exchange):
                raise BadInput(
                    f"{self._ledger.path} lacks the charge of {sent.sender}'s upload of exchange "
                    f"{sent.exchange}, which this run has sent: resume with the ledger that it was started "
                    "with, as it was then, or treat the budget as spent"
                )

    def _open_clients(self) -> InProcess | Reached:
        prepared, options, kept = self.prepared, self.options, self._kept.clients
        if options.connect is not None:
            self._reached = options.connect(self._run, self._after, self._kept.label)
            return self._reached
        seed = sub_seed(options.seed, "clients")
        witness = self.transcript.record_opened
        clients = prepared.federation.make_clients(
            prepared.algorithm, prepared.bound, self._run, self._ledger, seed, witness, kept, self._after
        )
        return InProcess(clients, self._ledger.exchange)

    def _charges(self) -> tuple[Charge, ...]:
        """All charges of this run, from every process, before and after a kill."""
        if self._reached is not None:
            return tuple(self._reached.charges())
        path = self._ledger.path
        if path is None:
            return tuple(self._ledger.charges)
        self._ledger.check_kept()
        charges = read_ledger(path) if path.is_file() else []
        return tuple(charge for charge in charges if charge.counts_for(self._run))


def train(
    algorithm: Algorithm, federation: Federation, policy: Policy | str | None = None, **options: Any
) -> Run:
    """Runs an algorithm over a federation under a policy.

    Guarantees:
        - every channel is bound before round 1, or nothing is sent at all;
        - clients are reached as message bytes through their one door;
        - a run that was killed and resumed ends with the same weights as a run that was never killed, if no
          noise is drawn and no upload is valued under encryption (CKKS adds noise of its own, which fresh
          keys change); the charge of the interrupted round stays, and clients agree on fresh keys;
        - sums that survive drop-outs (``masked``) go on without a client that sends an invalid answer or
          whose process dies, and the transcript records it; in every other exchange this ends the run with an
          error that names the client. After a process died no checkpoint is written: a resumed run starts
          from the last one before that.

    Args:
        policy: one of ``policies``, or the name of one that needs no settings, such as ``"masked"``. With a
            budget the name may be one of noise, such as ``"distributed_dp"``: updates are then clipped to 1,
            and the noise is planned before round 1, so that the whole run keeps to the budget. By default
            the strictest recipe that binds, channel by channel. If the policy does not bind to the algorithm
            as configured, the run takes the first of the algorithm's forms that it binds to. A setting made
            by hand never changes. A :class:`~secure_fedgraph.forms.FormWarning` and ``run.form`` name the
            form.
        options: as :class:`~secure_fedgraph.running.options.RunOptions`, such as ``rounds=10, out="runs/a"``.

    Raises:
        Refused: where a protection cannot give a channel what it declares, in any form of the algorithm.
        LeftInPlaintext: where the strictest policy would leave a channel in plaintext.
        BudgetExhausted: where a client's next message would exceed the budget; every finished round is kept.
            Sums that survive drop-outs go on without that client, and raise it where no client is left.
        BadInput: for arguments of another type or out of range, or a checkpoint that is missing, foreign,
            older or damaged.

    Warns:
        EarlyStopWarning: where noise was set by hand, and the budget stops the run before its last round.
        DataWarning: where edges carry something that the model does not read.
    """
    return played(prepare(algorithm, federation, policy, run_options(options)))


def as_state(returned: object, name: str) -> State:
    """A state of the server, as ``round`` returned it.

    Args:
        name: of the algorithm.

    Raises:
        WrongType: for anything but a dict from names to dense tensors.
    """
    items = returned.items() if isinstance(returned, dict) else [("", returned)]
    for key, value in items:
        if type(key) is not str or not isinstance(value, Tensor) or unlike_real_numbers(value):
            raise WrongType(
                f"{name}: round returns a dict from names to dense tensors, and it returned "
                f"{type(value).__name__} under {key!r:.60}"
            )
    state: State = returned  # type: ignore[assignment]
    return state


def played(prepared: Prepared) -> Run:
    """Runs what is prepared.

    Raises:
        Refused, BudgetExhausted: as :func:`train`.
    """
    with Session(prepared) as session:
        state, history = session.start()
        for number in session.to_do:
            round = session.round(number)
            state = as_state(prepared.algorithm.round(round, state), prepared.algorithm.name)
            if number > prepared.algorithm.warm_up:
                history.append(session.scores(round, state))
            session.keep(number, state, history)
        return session.end(state, history)
