"""The server's process: it waits for silos, runs the rounds, and goes on after whatever breaks."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from secure_fedgraph.core import files
from secure_fedgraph.core.channel import Reveal
from secure_fedgraph.core.errors import BadInput, SecureFedGraphError
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.silo_folder import MODEL
from secure_fedgraph.deployment.silo_messages import Post
from secure_fedgraph.deployment.silos import PATIENCE, Rejoined, Silos
from secure_fedgraph.deployment.terms import Terms, owners_in, terms_in
from secure_fedgraph.experiment.kept_schema import keep_schema
from secure_fedgraph.experiment.released import keep
from secure_fedgraph.experiment.results import begin, execute, finish, run_result, write_json
from secure_fedgraph.graph.partition.result import EVERYBODY, TestSet
from secure_fedgraph.protocol.transcript import REFEREE
from secure_fedgraph.protocol.transport import Lost
from secure_fedgraph.running.run import Run

_LOG = logging.getLogger("secure_fedgraph.server")
REPORTS = "charges"
"""The folder with the silos' signed reports."""
USED = "federation.toml"


@dataclass(frozen=True)
class Serving:
    """How a server waits.

    Args:
        start_with: how many silos there have to be; 0 for all.
        wait: seconds that it waits for them, at the start and after a loss.
        grace: seconds that the others have once enough are there.
        patience: seconds that a silo has for one answer.
        most_losses: how often in a row a round may be begun again without being finished.
    """

    start_with: int = 0
    wait: float = 600.0
    grace: float = 15.0
    patience: float = PATIENCE
    most_losses: int = 20


def serve(
    approved: Approved,
    post: Post,
    out: Path,
    command: str,
    how: Serving = Serving(),
    on_round: Callable[[dict[str, Any]], None] = lambda row: None,
    on_event: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Runs a federation to its end, and writes its results.

    Guarantees:
        - a run that was killed is taken up again by the same call: its checkpoint is in ``out``;
        - a silo that is away is gone on without where the protection survives it, and waited for where not;
        - each silo's signed report of charges is kept beside the result;
        - ``predict`` and ``export`` read the folder as that of a run in one process.

    Args:
        approved: the federation's file.
        post: the way to the silos.
        out: folder for results.
        command: what was typed.
        how: how it waits.
        on_round: called with each round's scores.
        on_event: called with a line for people.

    Returns:
        The ``secure-fedgraph/run/1`` object that was written.

    Raises:
        Lost: where silos stay away; the run can be taken up again.
        Refused: where a silo refuses, with what it says.
        BadInput: for a folder of another federation's run.
    """
    terms = terms_in(approved)
    _keep_file(approved, out)
    silos = Silos(post, approved, how.patience, _is_tolerant(terms), on_event)
    least = _least(terms, how)
    losses, done = 0, -1

    def each(row: dict[str, Any]) -> None:
        nonlocal losses, done
        if row["round"] > done:
            losses, done = 0, row["round"]
            on_round(row)

    while True:
        here = silos.gather(least, how.grace, how.wait)
        on_event(f"{len(here)} of {len(silos.names)} silos are here: {', '.join(here)}")
        try:
            owners = _owners(approved, silos)
            run = execute(
                terms.experiment,
                out,
                each,
                checkpoints=True,
                on_start=partial(begin, out, terms.experiment, [terms.experiment.seed], command),
                on_form=on_event if losses == 0 and done < 0 else lambda line: None,
                federation=owners,
                connect=silos.connect,
                sampler=terms.sampler,
                run_name=approved.run,
            )
            break
        except (Lost, Rejoined, OSError) as error:
            losses += not isinstance(error, Rejoined)
            if losses > how.most_losses:
                raise SecureFedGraphError(
                    f"{error}; a round was begun {losses} times and not finished: see the silos' logs, "
                    "then start the server again"
                ) from None
            on_event(f"{error}: the run is taken up again at its last round")
    result = run_result(run, terms.experiment, command)
    keep(run, out, terms.experiment)
    keep_schema(terms.experiment, out)
    _release(run, silos, out)
    write_json(out / "result.json", result)
    _keep_reports(silos, out)
    finish(out)
    return result


def _release(run: Run, silos: Silos, out: Path) -> None:
    """Gives the trained model to the silos, and keeps it beside the result; personal models stay there."""
    released = run.algorithm.released(run.state)
    if released is None:
        return
    tensors = {name: value for name, value in released.items() if isinstance(value, torch.Tensor)}
    if len(tensors) < len(released):
        return
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    files.write(out / MODEL, [buffer.getbuffer()], private=True, root=out)
    silos.release(tensors)


def _owners(approved: Approved, silos: Silos) -> Any:
    if not approved.federation.data.rows:
        return owners_in(approved)
    begun = silos.exam()
    masks = {key: torch.from_numpy(begun[key].astype(bool)) for key in ("train", "validation", "test")}
    test_set = TestSet(
        inputs=Data(num_nodes=len(begun["labels"])),
        labels=torch.from_numpy(begun["labels"].copy()),
        tests={EVERYBODY: masks["test"].nonzero().flatten()},
        validations={EVERYBODY: masks["validation"].nonzero().flatten()},
        trainings={EVERYBODY: masks["train"].nonzero().flatten()},
    )
    return owners_in(approved, test_set)


def _least(terms: Terms, how: Serving) -> int:
    """How many silos a run needs: all, where a protection survives no drop-out."""
    names = terms.prepared.federation.names
    if not how.start_with:
        return len(names)
    if how.start_with > len(names):
        raise BadInput(f"--start-with {how.start_with}: there are {len(names)} silos; give at most that many")
    if how.start_with < len(names) and not _is_tolerant(terms):
        raise BadInput(
            f"--start-with {how.start_with}: under policy {terms.experiment.policy} "
            f"{terms.experiment.algorithm} needs every silo's answer; leave it out"
        )
    if how.start_with < terms.quorum:
        raise BadInput(f"--start-with {how.start_with}: the quorum is {terms.quorum}; give that many or more")
    return how.start_with


def _is_tolerant(terms: Terms) -> bool:
    """Whether every upload of a run survives that a silo is away."""
    answered = [
        one
        for one in terms.prepared.bound.bounds.values()
        if one.channel.reveal is not Reveal.NOTHING and one.channel.to != REFEREE
    ]
    return all(one.carrier.tolerates_dropouts for one in answered)


def _keep_file(approved: Approved, out: Path) -> None:
    """Keeps the federation's file beside its results: a folder is one federation's."""
    files.private_folder(out)
    path = out / USED
    if files.size_of(path) is None:
        if (out / "result.json").exists():
            raise BadInput(f"{out} holds a result already: give another --out")
        files.write(path, [approved.content], private=False)
    elif files.read(path, root=out) != approved.content:
        raise BadInput(f"{out} holds the run of another federation's file: give another --out")
    elif (out / "result.json").exists():
        raise BadInput(f"{out} is finished: for another run make a new file with 'federation init'")


def _keep_reports(silos: Silos, out: Path) -> None:
    folder = files.private_folder(out / REPORTS, out)
    for name, report in silos.reports.items():
        text = json.dumps(report.to_json(), indent=1)
        files.write(folder / f"{name}.json", [text.encode()], private=False, root=out)
