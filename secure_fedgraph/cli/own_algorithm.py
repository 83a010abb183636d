"""Tries out a user's own algorithm: all that it reads and sends must go through its channels."""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from secure_fedgraph import errors
from secure_fedgraph.algorithms.plugins import algorithm_named
from secure_fedgraph.audits.grid.pool import Failed, Pool
from secure_fedgraph.client import is_foreign, is_noised
from secure_fedgraph.errors import BadInput, Refused, SecureFedGraphError
from secure_fedgraph.experiment.config import Experiment
from secure_fedgraph.experiment.protect import protect
from secure_fedgraph.experiment.results import execute, in_form, make_federation, weights
from secure_fedgraph.protocol import Transcript, wire
from secure_fedgraph.protocol.channel import Reveal
from secure_fedgraph.protocol.message import CARRIER, Message
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, everything
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import Prepared, prepare
from secure_fedgraph.running.rehearsal import Seen, rehearse
from secure_fedgraph.running.returned import as_state
from secure_fedgraph.running.session import Session

ROUNDS = 2
AGAIN = 3
"""How many more isolated runs must equal the first before a difference counts: coins may agree by chance."""
Answer = tuple[int, str, str]
"""Which answer of a client on a channel: number, channel, client."""
Result = TypeVar("Result")


def check_own(*experiments: Experiment) -> None:
    """Tries each algorithm of the experiments that is not of this package, once.

    It runs for two rounds

    - with its clients in processes of their own, where they share nothing, nor do they with the server;
    - all in one process, a fresh one, so that nothing is left from another run. An answer or a state that
      comes out otherwise was made of something that came through no channel;
    - the same without anybody who examines it: what the referee reads must change nothing;
    - on two sets of stand-ins for each policy that hides or noises something: names and shapes of tensors,
      which travel beside the noise, must be the same.

    What comes out otherwise in every run is drawn from the operating system, as it may be.

    Args:
        experiments: the runs of one command.

    Raises:
        Refused: naming the channel and the client, or what else differs.
    """
    for name in dict.fromkeys(one.algorithm for one in experiments):
        if is_foreign(algorithm_named(name)):
            of_it = [one for one in experiments if one.algorithm == name]
            _check(_short(of_it[0]), list({one.policy: one for one in reversed(of_it)}.values()))


def _short(experiment: Experiment) -> Experiment:
    settled: dict[str, Any] = {
        "policy": "plaintext",
        "device": "cpu",  # the same bits in every run
        "epsilon": None,
        "protection": {},
        "steps": {},
        "rounds": min(ROUNDS, experiment.rounds or ROUNDS),
        "ledger": None,
        "checkpoint_every": 0,
    }
    return experiment.model_copy(update=settled)


def _check(short: Experiment, experiments: Sequence[Experiment]) -> None:
    broken = f"algorithm {short.algorithm!r} breaks the protocol: "
    unexamined, together, depending = _fresh(_in_one_process, short, experiments)
    try:
        apart = _apart(short)
    except BadInput:
        raise
    except Exception as error:
        raise Refused(
            f"{broken}it runs in one process and not with its clients in processes of their own ({error}), "
            "so something in it reads past its channels"
        ) from None
    differs = _first_difference(together, apart)
    if differs and all(not _first_difference(apart, _apart(short)) for _ in range(AGAIN)):
        raise Refused(
            f"{broken}with clients in processes of their own {differs} comes out otherwise, so it reads a "
            "peer or sends outside its channels; let all that an answer needs be in client.graph, "
            "client.memory or what it is given"
        )
    if unexamined is not None:
        _check_unexamined(broken, unexamined, together, short)
    if depending:
        policy, channel = depending
        raise Refused(
            f"algorithm {short.algorithm!r}, channel {channel!r}: names or shapes of its tensors depend on "
            f"labels, features, links or the split, and {policy} does not cover them: send the same tensors "
            "whatever the graph holds, zeros where there is nothing"
        )


def _check_unexamined(broken: str, unexamined: _Tried, examined: _Tried, short: Experiment) -> None:
    differs = _first_difference(unexamined, examined)
    if differs and all(not _first_difference(unexamined, one) for one in _fresh(_unexamined_again, short)):
        raise Refused(
            f"{broken}{differs} comes out otherwise where no referee examines it, so what the referee reads "
            "gets into training, and no guarantee covers that; let predictions keep nothing"
        )


@dataclass(frozen=True)
class _Tried:
    answers: Mapping[Answer, str]
    """Digests."""
    weights: str | None


def _fresh(work: Callable[..., Result], *arguments: Any) -> Result:
    """In a process of its own, in which nothing is left of another run."""
    with Pool(1) as pool:
        pool.start("work", work, *arguments)
        ((_, outcome),) = pool.finished()
    result: Result = _of(outcome)
    return result


def _of(outcome: Any) -> Any:
    """A process's result, or the error that it ended with."""
    if not isinstance(outcome, Failed):
        return outcome
    if not outcome.kind:
        raise Refused(f"an algorithm that is not of this package is tried before it runs: {outcome.reason}")
    kind = getattr(errors, outcome.kind, SecureFedGraphError)
    raise kind(outcome.reason)


def _in_one_process(
    short: Experiment, experiments: Sequence[Experiment]
) -> tuple[_Tried | None, _Tried, tuple[str, str] | None]:
    # without the referee first: in this order nothing that it read is left in the process
    unexamined = _unexamined(short) if short.evaluation == REFEREE else None
    return unexamined, _run(short, isolated=False), _depending(experiments)


def _apart(short: Experiment) -> _Tried:
    return _run(short, isolated=True)


def _unexamined_again(short: Experiment) -> list[_Tried]:
    return [_unexamined(short) for _ in range(AGAIN)]


def _run(experiment: Experiment, isolated: bool) -> _Tried:
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        run = execute(experiment.model_copy(update={"isolated": isolated}), Path(folder), keep=everything)
        return _Tried(_answers(run.transcript), weights(run))


def _unexamined(experiment: Experiment) -> _Tried:
    """The same in one process, and nobody asks for scores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = _prepared(experiment)
        with Session(prepared) as session:
            state, _ = session.start()
            for number in session.to_do:
                state = as_state(
                    prepared.algorithm.round(session.round(number), state), prepared.algorithm, "round"
                )
            run = session.end(state, [])
        return _Tried(_answers(run.transcript), weights(run))


def _prepared(experiment: Experiment) -> Prepared:
    federation = make_federation(experiment)
    algorithm = in_form(experiment, federation)
    policy = protect(experiment, algorithm, federation).policy
    options = RunOptions(
        rounds=experiment.rounds,
        seed=experiment.seed,
        evaluation=experiment.evaluation,
        keep=everything,
        checkpoint_every=0,
        allow_plaintext=experiment.allow_plaintext,
    )
    return prepare(algorithm, federation, policy, options)


def _depending(experiments: Sequence[Experiment]) -> tuple[str, str] | None:
    """The first policy and channel under which a hidden or noised upload's layout depends on data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for experiment in experiments:
            try:
                prepared = _prepared(experiment)
                whole, hidden = _to_hide(prepared)
                if not hidden or prepared.algorithm.pools:
                    continue
                one, other = (rehearse(prepared, hidden, variant) for variant in (0, 1))
            except SecureFedGraphError:
                continue  # the run itself will say what is wrong, or is no worse for it
            for channel in sorted(hidden):
                if _layouts(one, channel, channel in whole) != _layouts(other, channel, channel in whole):
                    return experiment.policy, channel
    return None


def _to_hide(prepared: Prepared) -> tuple[set[str], set[str]]:
    """The channels under noise, and those besides that not everybody can read."""
    bounds = prepared.bound.bounds
    noised = {name for name, bound in bounds.items() if is_noised(bound, prepared.bound)}
    uploads = {name: b for name, b in bounds.items() if b.channel.reveal is not Reveal.NOTHING}
    hidden = {name for name, b in uploads.items() if not b.unprotected}
    return noised, noised | hidden


def _layouts(seen: Seen, channel: str, whole: bool) -> dict[str, Any]:
    """By client; how many rows there are counts under noise only."""
    return {
        client: [layout if whole else layout.fields for layout in layouts]
        for (client, name), layouts in seen.items()
        if name == channel
    }


def _answers(transcript: Transcript) -> dict[Answer, str]:
    return {answer: hashlib.sha256(body).hexdigest() for answer, body in _bodies(transcript)}


def _bodies(transcript: Transcript) -> Iterator[tuple[Answer, bytes]]:
    """What clients answered, without what names the run."""
    count: Counter[tuple[str, str]] = Counter()
    for sent in transcript.sent:
        asked_by_referee = REFEREE in (sent.sender, sent.recipient)
        if sent.sender != SERVER and not asked_by_referee and not sent.channel.startswith(CARRIER):
            tree = Message.from_bytes(transcript.body(sent.number)).tree()
            count[sent.channel, sent.sender] += 1
            yield (count[sent.channel, sent.sender], sent.channel, sent.sender), wire.encode(tree)


def _first_difference(one: _Tried, other: _Tried) -> str:
    """What differs, in words; nothing where all is the same."""
    for answer in sorted(one.answers.keys() | other.answers.keys()):
        if one.answers.get(answer) != other.answers.get(answer):
            return f"{answer[2]}'s answer on channel {answer[1]!r}"
    return "" if one.weights == other.weights else "what the server's half makes of the answers"
