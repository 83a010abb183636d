"""train(): the one loop."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from secure_fedgraph.algorithm import Algorithm, State
from secure_fedgraph.core.errors import WrongType
from secure_fedgraph.core.upload import unlike_real_numbers
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.running.options import run_options
from secure_fedgraph.running.preparation import Prepared, prepare
from secure_fedgraph.running.run import Run
from secure_fedgraph.running.session import Session


def train(
    algorithm: Algorithm,
    federation: Federation,
    policy: Policy | str | None = None,
    **options: Any,
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
