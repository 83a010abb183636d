"""Whether the files of a finished run's folder agree with each other, before anything is concluded from them.

Each file could be another run's, or be changed, and still be well formed. A contradiction is refused by the
names of both files. What is missing and can be missing for a good reason is said, check by check.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from secure_fedgraph.algorithms.plugins import is_own
from secure_fedgraph.audits.conformance.printed import check_shared
from secure_fedgraph.audits.grid.figures import check_figures
from secure_fedgraph.core import files
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage, SecureFedGraphError
from secure_fedgraph.core.message import ANSWER, CARRIER, Message
from secure_fedgraph.core.parcel import READ
from secure_fedgraph.core.spending.ledger import Charge, read_ledger
from secure_fedgraph.experiment.config import Experiment, experiment_of
from secure_fedgraph.experiment.protect import budget_of
from secure_fedgraph.experiment.released import check_model
from secure_fedgraph.experiment.results import ASKED, is_read_singly
from secure_fedgraph.federation import Federation
from secure_fedgraph.privacy.policy import BoundPolicy, Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.transcript import INDEX, PEER, REFEREE, SERVER, Opened, Sent
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import Prepared, prepare
from secure_fedgraph.running.run import Run
from secure_fedgraph.storage.party_store import read_json as read_checked

LEDGER = "ledger.jsonl"
RESULT = "result.json"
MEND = "put copies of both back that are of one run, or run again with --set transcript=full"
HEADER = ("round", "exchange", "channel", "step", "sender", "recipient")
"""What a message says of itself, and its note too."""


def check_evidence(
    folder: Path,
    result: Mapping[str, Any],
    experiment: Experiment,
    federation: Federation,
    policy: Policy,
    transcript: Transcript,
) -> None:
    """Checks a finished run's files against each other.

    Args:
        folder: of the run.
        result: what its ``result.json`` holds.
        experiment: the result's configuration.
        federation: made from it again.
        policy: the configuration's, with the planned noise.
        transcript: as its index has it.

    Raises:
        BadInput: naming two files that contradict each other, the key, and both values.
    """
    _check_asked(folder, result, experiment)
    prepared = _prepared(folder, experiment, federation, policy)
    _check_public(folder, result, prepared, transcript)
    _check_traffic(folder, result, prepared.bound, transcript)
    _check_rounds(folder, result, experiment, prepared, transcript)
    if isinstance(result.get("released"), str):
        check_model(folder, result["released"])
    check_figures(folder / RESULT, result, experiment, _rebuilt(result, experiment, prepared, transcript))
    _check_kept(folder, result, experiment, transcript)
    _check_readers(folder, prepared.bound, transcript)
    _check_all_opened(folder, prepared.bound, transcript)


def check_header(folder: Path, note: Sent, raw: bytes) -> str:
    """That a message says of itself what its note says of it.

    Returns:
        The name of the run that the message is of.

    Raises:
        BadInput: naming the first key that differs.
    """
    path = folder / "transcript" / f"{note.number:06d}.sfg"
    try:
        message = Message.from_bytes(raw)
    except HostileMessage as error:
        raise BadInput(f"{path} is no message ({error}): {MEND}") from None
    for key in HEADER:
        there, here = getattr(message, key), getattr(note, key)
        if there != here:
            raise _contradiction(
                folder / "transcript" / INDEX, path, f"{key} of note {note.number}", here, there
            )
    return message.run


def charges_of(
    folder: Path, experiment: Experiment, runs: frozenset[str], shared: Path | None = None
) -> tuple[list[Charge], str]:
    """What a run's ledger says that it charged.

    Args:
        runs: the names of runs in the messages; a ledger that several runs share names others besides.
        shared: the ledger that the run charged, where it is none of its own folder.

    Returns:
        The charges, and why there is no ledger to read: empty where there is one.

    Raises:
        BadInput: for a ledger that is damaged, no file, or has charges of other runs alone.
    """
    path = folder / LEDGER if shared is None else shared
    if shared is not None:
        check_shared(folder, shared, experiment.ledger is not None)
    if not (path.exists() or path.is_symlink()):
        if experiment.ledger is not None:
            place = str(experiment.ledger)[:200]
            return [], (
                f"the run charged the ledger {place!r}, which no audit opens because a file names it: what "
                "was charged is not checked; name that ledger by --ledger"
            )
        return [], (
            f"{path} is missing: what was charged is not checked; put the run's ledger back (owners on "
            "machines of their own keep theirs)"
        )
    charges = read_ledger(path)
    mine = [one for one in charges if not runs or any(one.counts_for(run) for run in runs)]
    if charges and not mine:
        named = sorted({one.run for one in charges})[0]
        raise _contradiction(path, folder / "transcript", "run", named[:40], min(runs))
    return mine, ""


def owes(run: Run) -> bool:
    """Whether a run sent anything that it had to charge."""
    uploading = {
        name
        for name, one in run.policy.bounds.items()
        if one.channel.to != REFEREE and one.channel.reveal is not Reveal.NOTHING
    }
    return bool(run.policy.randomizers) or any(
        sent.step == ANSWER and sent.recipient == SERVER and sent.channel in uploading
        for sent in run.transcript.sent
    )


def _check_asked(folder: Path, result: Mapping[str, Any], experiment: Experiment) -> None:
    """What was asked for, as the run noted it before it began, against the result's configuration."""
    path = folder / "checkpoint" / ASKED
    if files.size_of(path) is None:
        return
    asked, config = read_checked(path, folder), result["config"]
    begun, seeds = asked.get("config"), asked.get("seeds")
    if not isinstance(begun, dict):
        raise _contradiction(path, folder / RESULT, "config", begun, config)
    if seeds != [result["seed"]]:
        raise _contradiction(path, folder / RESULT, "seeds", seeds, result["seed"])
    for key in sorted(begun.keys() & config.keys() - {"rounds", "training"}):
        if begun[key] != config[key]:
            raise _contradiction(path, folder / RESULT, f"config.{key}", begun[key], config[key])
    if begun.get("rounds") not in (None, config.get("rounds")):
        raise _contradiction(path, folder / RESULT, "config.rounds", begun["rounds"], config.get("rounds"))
    training = begun.get("training") or {}
    try:
        as_asked = experiment_of({**experiment.model_dump(), "training": training})
        settings = as_asked.make_algorithm().settings.model_dump(mode="json")
    except (ValueError, TypeError, AttributeError) as error:
        raise BadInput(f"{path}: config.training fits no {experiment.algorithm} ({error}): {MEND}") from None
    for key in sorted(training.keys() & settings.keys()):
        there = (config.get("training") or {}).get(key)
        if settings[key] != there:
            raise _contradiction(path, folder / RESULT, f"config.training.{key}", settings[key], there)


def _prepared(folder: Path, experiment: Experiment, federation: Federation, policy: Policy) -> Prepared:
    """The run as its configuration binds it once more; nothing is sent."""
    options = RunOptions(
        rounds=experiment.rounds,
        seed=experiment.seed,
        evaluation=experiment.evaluation,
        evaluate_every=experiment.evaluate_every,
        evaluate_sample=experiment.evaluate_sample,
        allow_plaintext=experiment.allow_plaintext,
        resume=True,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run itself has warned
            return prepare(experiment.make_algorithm(), federation, policy, options)
    except SecureFedGraphError as error:
        raise BadInput(f"{folder / RESULT}: no run has this config ({error}): put a copy back") from None


def _check_public(
    folder: Path, result: Mapping[str, Any], prepared: Prepared, transcript: Transcript
) -> None:
    """The public facts of an index, against what the result's configuration binds and what its rows say."""
    index, result_file = folder / "transcript" / INDEX, folder / RESULT
    public = transcript.public
    due = json.loads(json.dumps(prepared.public(), default=str))
    older = {"settings": result["config"].get("training") or {}}
    for key in sorted(due.keys() | public.keys()):
        if key in ("settings", "channels") and isinstance(public.get(key), dict):
            continue
        if public.get(key) != due.get(key):
            raise _contradiction(index, result_file, f"public.{key}", public.get(key), due.get(key))
    by_name = {row["name"]: row for row in result["channels"]}
    older |= {f"channels.{name}": row for name, row in by_name.items()}
    tables = (
        {"settings": (public["settings"], due["settings"])} if isinstance(due.get("settings"), dict) else {}
    )
    for name in sorted(public["channels"].keys() | due["channels"].keys() | by_name.keys()):
        named = [name in one for one in (public["channels"], due["channels"], by_name)]
        if not all(named):
            raise _contradiction(
                index, result_file, f"public.channels.{name}", named[0], named[1] and named[2]
            )
        tables[f"channels.{name}"] = (public["channels"][name], due["channels"][name])
    for place, (noted, bound) in tables.items():
        for key in sorted(noted.keys() | bound.keys()):
            if key not in noted and key not in older.get(place, {}):
                continue  # of a run before there was this key
            if noted.get(key) != bound.get(key):
                raise _contradiction(
                    index, result_file, f"public.{place}.{key}", noted.get(key), bound.get(key)
                )
    for name, row in by_name.items():
        for key, value in due["channels"][name].items():
            if key in row and row[key] != value:
                raise _contradiction(result_file, index, f"channels.{name}.{key}", row[key], value)


def _rebuilt(
    result: Mapping[str, Any], experiment: Experiment, prepared: Prepared, transcript: Transcript
) -> Run:
    """The run as its result and its record have it: no state, no charges."""
    return Run(
        prepared.algorithm,
        prepared.federation,
        prepared.bound,
        {},
        list(result["rounds"]),
        transcript,
        (),
        0.0,
        prepared.evaluation,
        budget_of(experiment, prepared.federation),
        experiment.evaluate_every,
    )


def _check_traffic(
    folder: Path, result: Mapping[str, Any], bound: BoundPolicy, transcript: Transcript
) -> None:
    """What was sent, counted in the index, against the result's figures."""
    index, result_file = folder / "transcript" / INDEX, folder / RESULT
    for key, total in transcript.traffic().items():
        if result["bytes"].get(key) != total:
            raise _contradiction(index, result_file, f"bytes.{key}", total, result["bytes"].get(key))
    by_channel: dict[str, list[Sent]] = defaultdict(list)
    for sent in transcript.sent:
        by_channel[sent.channel].append(sent)
    rows = [(f"channels.{row['name']}", row["name"], row) for row in result["channels"]]
    rows += [(f"carriers.{row['name']}", row["name"], row) for row in result.get("carriers") or ()]
    for name in sorted(by_channel.keys() - {name for _, name, _ in rows}):
        if not name.startswith(CARRIER) or "carriers" in result:
            raise _contradiction(
                index, result_file, f"channels.{name}", f"{len(by_channel[name])} messages", None
            )
    for place, name, row in rows:
        mine = by_channel[name]
        counted = {
            "bytes": sum(s.bytes for s in mine),
            "bytes_up": sum(s.bytes for s in mine if s.recipient == SERVER),
            "bytes_down": sum(s.bytes for s in mine if s.sender == SERVER),
            "messages": len(mine),
            "uploads": (uploads := sum(s.recipient == SERVER and s.step == ANSWER for s in mine)),
            "read_singly": uploads if name in bound.bounds and is_read_singly(bound[name]) else 0,
        }
        for key, count in counted.items():
            if key in row and row[key] != count:
                raise _contradiction(index, result_file, f"{place}.{key}", count, row[key])
    for key, notes in (("left_out", transcript.left_out), ("cut", transcript.cut)):
        listed = result.get(key) or []
        if len(listed) != len(notes):
            raise _contradiction(index, result_file, f"entries of {key}", len(notes), len(listed))
        for number, (note, row) in enumerate(zip(notes, listed, strict=True)):
            for part in sorted(row.keys() & vars(note).keys()):
                if row[part] != getattr(note, part):
                    raise _contradiction(
                        index, result_file, f"{key}.{number}.{part}", getattr(note, part), row[part]
                    )


def _check_rounds(
    folder: Path,
    result: Mapping[str, Any],
    experiment: Experiment,
    prepared: Prepared,
    transcript: Transcript,
) -> None:
    """The rounds that messages are of, against those that the result has figures of."""
    index, result_file = folder / "transcript" / INDEX, folder / RESULT
    numbers = [row.get("round") for row in result.get("rounds") or ()]
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) != experiment.rounds:
        raise BadInput(
            f"{result_file} is damaged (config.rounds is {experiment.rounds}, and rounds has {len(numbers)}, "
            f"numbered {str(numbers)[:60]}): put a copy back, or run again with --set transcript=full"
        )
    sent = {one.round for one in transcript.sent if not one.channel.startswith(CARRIER)}
    last = prepared.last
    # an own algorithm may send nothing in its last rounds
    if max(sent, default=0) > last or (max(sent, default=0) < last and not is_own(experiment.algorithm)):
        raise _contradiction(index, result_file, "the last round", max(sent, default=0), last)


def _check_kept(
    folder: Path, result: Mapping[str, Any], experiment: Experiment, transcript: Transcript
) -> None:
    """That all messages of a channel in a round were kept or none, and all of a run that keeps everything."""
    index, result_file = folder / "transcript" / INDEX, folder / RESULT
    kept: dict[tuple[str, int], Sent | Opened] = {}
    # the runs of a grid have no command, and keep what their attacks read
    everything = experiment.transcript == "full" and bool(result.get("command"))
    for note in _notes(transcript):
        place = f"kept of note {note.number}, channel {note.channel!r} in round {note.round}"
        if everything and not note.kept:
            raise _contradiction(index, result_file, f"{place} (config.transcript = 'full')", False, True)
        first = kept.setdefault((note.channel, note.round), note)
        if first.kept != note.kept:
            what = f"{place} is {note.kept}, and of note {first.number} {first.kept}"
            raise BadInput(f"{index} is damaged ({what}): a run keeps all of them or none; {MEND}")


def _check_readers(folder: Path, bound: BoundPolicy, transcript: Transcript) -> None:
    """Who opened a value, against whom its channel names as the reader."""
    index, clients = folder / "transcript" / INDEX, set(transcript.public["clients"])
    for note in transcript.made:
        if note.contributors != (note.reader,) or note.reader not in clients:
            raise _damaged(
                index, f"made has note {note.number}, of which {note.reader!r} is not the one client"
            )
    for note in transcript.opened:
        channel = bound.bounds[note.channel].channel if note.channel in bound.bounds else None
        if channel is None:
            raise _damaged(index, f"opened has note {note.number} of {note.channel!r}, which is no channel")
        right = note.reader in clients if channel.to == PEER else note.reader == str(channel.to)
        if not right or note.reader in note.contributors:
            raise _damaged(
                index,
                f"opened has note {note.number}, channel {note.channel!r}, with reader {note.reader!r}, and "
                f"the {channel.to} reads that channel",
            )
        strangers = set(note.contributors) - clients
        if strangers:
            raise _damaged(index, f"opened has note {note.number} of {min(strangers)!r}, which is no client")


def _check_all_opened(folder: Path, bound: BoundPolicy, transcript: Transcript) -> None:
    """That whatever was answered was opened, but for exchanges in which a run was stopped.

    What clients read of each other is left out where clients are in processes of their own: no note shows it.
    """
    index, cut_off = folder / "transcript" / INDEX, _cut_off(transcript)
    opened: dict[tuple[int, str], set[str]] = defaultdict(set)
    for one in transcript.opened:
        opened[one.exchange, one.channel] |= set(one.contributors)
    answered: dict[tuple[int, str], set[str]] = defaultdict(set)
    for sent in transcript.sent:
        if sent.step == ANSWER and sent.sender not in (SERVER, REFEREE):
            answered[sent.exchange, sent.channel].add(sent.sender)
    for (exchange, name), senders in answered.items():
        protection = bound.bounds.get(name)
        if protection is None:
            continue
        seen, channel = opened[exchange, name], protection.channel
        if channel.reveal is Reveal.NOTHING or channel.to == PEER:
            continue
        if not seen <= senders:
            what = f"opened of {min(seen - senders)!r}, which sent nothing"
        elif exchange in cut_off or seen == senders or (seen and protection.carrier.tolerates_dropouts):
            continue
        else:
            what = f"not opened of {min(senders - seen)!r} by the {channel.to}, who reads that channel"
        raise _damaged(index, f"channel {name!r} in exchange {exchange} is {what}")
    unread = (
        _unread(transcript) if any(one.reader not in (SERVER, REFEREE) for one in transcript.opened) else []
    )
    for sent in unread:
        if sent.exchange not in cut_off:
            raise _damaged(
                index,
                f"{sent.sender} was delivered channel {sent.channel!r} in exchange {sent.exchange}, and "
                "opened nothing",
            )


def _unread(transcript: Transcript) -> Iterator[Sent]:
    """Replies of clients to what peers had answered, where no note says that the client read it."""
    asked = {
        (s.exchange, s.channel, s.recipient): s.number
        for s in transcript.sent
        if s.step == READ and s.sender == SERVER
    }
    opened: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for one in transcript.opened:
        opened[one.channel, one.reader, one.round].append(one.number)
    for sent in transcript.sent:
        if sent.step == READ and sent.recipient == SERVER:
            since = asked.get((sent.exchange, sent.channel, sent.sender), sent.number)
            numbers = opened[sent.channel, sent.sender, sent.round]
            if not any(since < number < sent.number for number in numbers):
                yield sent


def _cut_off(transcript: Transcript) -> set[int]:
    """The exchanges in which a run was stopped and resumed: the last ones before each process began.

    Numbers of exchanges follow each other in one process, and a resumed run leaves some out.
    """
    cut_off = {one.exchange for one in transcript.stopped}
    last, answering = 0, 0
    stops = [one.number for one in transcript.stopped]
    for sent in transcript.sent:
        if last and (sent.exchange > last + 1 or (stops and sent.number > stops[0])):
            cut_off |= {last, answering}
            stops = [number for number in stops if number > sent.number]
        last = sent.exchange
        answering = last if sent.step == ANSWER else answering
    return cut_off


def _notes(transcript: Transcript) -> Iterator[Sent | Opened]:
    yield from transcript.sent
    yield from transcript.opened
    yield from transcript.made


def _contradiction(one: Path, other: Path, key: str, here: object, there: object) -> BadInput:
    said, instead = (json.dumps(value, default=str)[:160] for value in (here, there))
    return BadInput(
        f"{one} and {other} contradict each other: {key} is {said} by the first, {instead} by the other; "
        f"{MEND}"
    )


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} is damaged ({why}): put a copy back, or run again with --set transcript=full")
