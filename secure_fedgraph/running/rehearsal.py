"""Rehearsals: an algorithm runs on stand-ins of the owners' graphs, so that its uploads' layouts are public.

Noise covers the values of an upload. The names and shapes of its tensors travel beside the noise, so no
epsilon covers them where they depend on data. Under noise a client's door therefore sends the uploads of an
algorithm that is not of this package in a layout that is known before round 1: the one that the same
algorithm gives on graphs of the same public facts and made-up data (:mod:`~secure_fedgraph.graph.stand_in`).
"""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from secure_fedgraph.client import has_foreign_code, is_noised
from secure_fedgraph.errors import Refused
from secure_fedgraph.evaluation import in_band
from secure_fedgraph.graph.stand_in import stand_in
from secure_fedgraph.privacy.binding import Protection
from secure_fedgraph.privacy.carriers.plain import Plain
from secure_fedgraph.privacy.policy import SCORES, Policy
from secure_fedgraph.protocol import Transcript
from secure_fedgraph.protocol.channel import Channel, Reveal
from secure_fedgraph.protocol.message import ANSWER, CARRIER, Message
from secure_fedgraph.protocol.transcript import REFEREE, SERVER, everything
from secure_fedgraph.protocol.upload import Layout
from secure_fedgraph.running.options import RunOptions
from secure_fedgraph.running.preparation import Prepared
from secure_fedgraph.running.session import Session

LEAST = 5
"""Rounds that are rehearsed, where the run has them: what a client remembers changes what it sends."""
Seen = Mapping[tuple[str, str], tuple[Layout, ...]]
"""(client, channel) -> the layouts of its uploads, each once."""


def with_layouts(prepared: Prepared) -> Prepared:
    """The same run with the layouts that its clients keep to under noise.

    Rehearsed are :data:`LEAST` rounds, and more until each client has been asked on each noised channel.

    Raises:
        Refused: where the rehearsal fails, or a client sends two layouts on one channel.
    """
    noised = {name for name, bound in prepared.bound.bounds.items() if is_noised(bound, prepared.bound)}
    if not noised or prepared.algorithm.pools or not has_foreign_code(prepared.algorithm):
        return prepared
    seen = rehearse(prepared, noised)
    by_client: dict[str, dict[str, Layout]] = defaultdict(dict)
    for (client, channel), layouts in seen.items():
        if channel not in noised:
            continue
        if len(layouts) > 1:
            raise Refused(
                f"channel {channel!r}: {prepared.algorithm.name} sends tensors of other names or shapes from "
                "one round to the next, and noise does not cover names and shapes: send the same in each, or "
                "declare a channel for each"
            )
        by_client[client][channel] = layouts[0]
    return replace(prepared, layouts=by_client)


def rehearse(prepared: Prepared, until: frozenset[str] | set[str] = frozenset(), variant: int = 0) -> Seen:
    """Runs a copy of the algorithm on stand-ins, in the clear, with nobody who examines it.

    Args:
        prepared: the run that is rehearsed. Its clients' data are not read but for their public facts.
        until: channels on which every client is to be asked, if the run's rounds suffice for that.
        variant: of the stand-ins.

    Raises:
        Refused: where the algorithm cannot be copied, or fails on stand-ins.
    """
    name = prepared.algorithm.name
    try:
        with torch.random.fork_rng(devices=()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _seen(_played(_staged(prepared, variant), until))
    except (Exception, SystemExit) as error:  # what somebody else's code raises
        raise Refused(
            f"algorithm {name!r} fails on stand-ins of the owners' graphs, which have other labels, features "
            f"and links ({type(error).__name__}: {error}), so nobody knows which tensors it sends, and noise "
            "does not cover their names and shapes: let it run on any graph of the data's schema"
        ) from error


def _staged(prepared: Prepared, variant: int) -> Prepared:
    """The same run on stand-ins and under no protection but where values are opened that nobody may read."""
    federation, bounds = prepared.federation, prepared.bound.bounds
    owners = {name: stand_in(graph, federation.schema, variant) for name, graph in federation.owners.items()}

    def protection(channel: Channel) -> Protection:
        bound = bounds[channel.name].protection
        # what is valued is never opened, and items are counted otherwise where no noise covers them
        kept = channel.reveal is Reveal.VALUES or channel.name == SCORES
        as_is = kept and isinstance(bound, Protection)
        return bound if as_is else Protection(Plain(), name="rehearsal")  # type: ignore[return-value]

    real = prepared.bound.policy
    policy = Policy("rehearsal", protection, relation=real.relation, steps=real.steps)
    return Prepared(
        copy.deepcopy(prepared.algorithm),
        replace(federation, owners=owners, pool=None),
        policy.bind([bound.channel for bound in bounds.values()], federation.names),
        RunOptions(
            rounds=prepared.options.rounds,
            seed=prepared.options.seed,
            evaluation=prepared.evaluation,
            keep=everything,
            checkpoint_every=0,
        ),
    )


def _played(staged: Prepared, until: frozenset[str] | set[str]) -> Transcript:
    wanted = {(client, channel) for client in staged.federation.names for channel in until}
    with Session(staged) as session:
        state, _ = session.start()
        for number in session.to_do:
            if number > LEAST and wanted <= _seen(session.transcript).keys():
                break
            round = session.round(number)
            state = staged.algorithm.round(round, state)
            if staged.evaluation == "in_band" and number > staged.algorithm.warm_up:
                in_band(staged.algorithm, state, round, staged.federation.schema)
        session.transcript.close()
        return session.transcript


def _seen(transcript: Transcript) -> Seen:
    layouts_of: dict[tuple[str, str], list[Layout]] = defaultdict(list)
    for client, channel, layout in _layouts(transcript):
        if layout not in layouts_of[client, channel]:
            layouts_of[client, channel].append(layout)
    return {key: tuple(layouts) for key, layouts in layouts_of.items()}


def _layouts(transcript: Transcript) -> Iterator[tuple[str, str, Layout]]:
    for sent in transcript.sent:
        if sent.sender in (SERVER, REFEREE) or sent.recipient == REFEREE or sent.channel.startswith(CARRIER):
            continue
        message = Message.from_bytes(transcript.body(sent.number))
        text = message.tree().get("layout")
        if message.step == ANSWER and isinstance(text, str):
            yield sent.sender, sent.channel, Layout.from_text(text)
