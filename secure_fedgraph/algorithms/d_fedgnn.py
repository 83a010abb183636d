"""D-FedGNN: peers on a ring train and mix their models with their neighbours'; no server reads anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Literal

import torch

from secure_fedgraph.algorithm import State
from secure_fedgraph.algorithms.fedavg import Local
from secure_fedgraph.algorithms.training.local_training import fit
from secure_fedgraph.algorithms.training.settings import TrainingSettings
from secure_fedgraph.core.channel import Channel, Reveal
from secure_fedgraph.core.errors import BadInput, HostileMessage
from secure_fedgraph.core.inputs import NOTHING, Expected, Numbers, Texts, Whole
from secure_fedgraph.core.upload import Upload
from secure_fedgraph.graph.schema import Schema, Task
from secure_fedgraph.models.parameters import difference, load, parameters_of, total
from secure_fedgraph.seams import ClientContext, RoundApi

Link = tuple[str, str]
SEED, LINKS = "seed", "links"
SHARE_OF_A_LINK = 1 / 3
PEERS = 3
LONGEST_NAME = 200
_START, _TRAINED, _MODEL, _READ = "seed of the start", "trained", "model", "read from peers"


def ring(names: Collection[str]) -> tuple[Link, ...]:
    """The links of a ring over these clients in order of their names; two have one link, one has none.

    >>> ring(["c", "a", "b"])
    (('a', 'b'), ('a', 'c'), ('b', 'c'))
    """
    order = sorted(names)
    after = zip(order, order[1:] + order[:1], strict=True)
    return tuple(sorted({(min(pair), max(pair)) for pair in after if pair[0] != pair[1]}))


def mixing_weights(name: str, links: Collection[Link]) -> dict[str, float]:
    """A client's row of the mixing matrix: a third for each link, and what is left for itself.

    The matrix is symmetric and its rows add up to 1, so it is doubly stochastic whichever links hold.

    >>> mixing_weights("a", [("a", "b")])
    {'b': 0.3333333333333333, 'a': 0.6666666666666667}
    """
    others = [one for link in links if name in link for one in link if one != name]
    return {**dict.fromkeys(others, SHARE_OF_A_LINK), name: 1 - SHARE_OF_A_LINK * len(others)}


class RingSettings(TrainingSettings):
    """How a peer trains.

    Args:
        scored: which of a peer's models is evaluated: the one ``after_mixing``, or its own ``before_mixing``.
            Training is the same.
    """

    scored: Literal["after_mixing", "before_mixing"] = "after_mixing"


class DFedGnn(Local):
    """Decentralised averaging on a ring: ``w_i <- sum_j omega_ij w_j`` after each round of local training.

    All start from the same public weights. In a round every peer trains, then gives its two neighbours the
    change of its weights since that start, sealed to these two. Each mixes a third of either neighbour's
    with a third of its own. The server is a relay: it says when a round begins, carries what it cannot open
    and says which links held.

    A peer that is gone is in no link of that round. A link over which only one side heard is skipped by
    both. What is left is still doubly stochastic, so the mean over the peers that are there does not move.

    Guarantees:
        - under every policy but ``plaintext`` the relay reads ciphertexts only; a peer that is no neighbour
          has no key to them;
        - a peer mixes only what it read in that round, and no more than a third of it from one neighbour,
          whatever the relay says.

    What leaks: a neighbour reads every model of every round, whole, and attacks that read single updates
    read it as a server in FedAvg would (``docs/attacks/weights.md``). Under ``local_dp`` what is sent is
    clipped and noised; a sum that hides single models does not exist here.

    References:
        Pei, Mao, Liu, Chen, Xu, Qiang, Tech, Decentralized Federated Graph Neural Networks, FTL-IJCAI 2021;
        Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms?, NeurIPS 2017,
        algorithm 1.
    """

    name = "d-fedgnn"
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    summary = "no server: peers on a ring mix their models with their neighbours', sealed"
    reference = "Pei et al. 2021"
    rounds = 200
    partitions: ClassVar[tuple[str, ...]] = (
        "label_skew",
        "louvain",
        "louvain_compiled",
        "random",
        "file_order",
        "dirichlet",
    )
    clients: ClassVar[Mapping[str, int]] = {"cora": 5, "citeseer": 5, "dblp": 10}
    Settings: ClassVar[type[TrainingSettings]] = RingSettings
    settings: RingSettings

    SHARE = Channel(
        "model",
        Reveal.EACH,
        to="peer",
        trained=True,
        without_lost=True,
        why="a peer mixes its neighbours' models",
    )
    MIX = Channel("mix", Reveal.NOTHING)

    def init(self, schema: Schema, seed: int) -> State:
        """The public seed of the weights that everybody starts from."""
        return {SEED: torch.tensor(seed)}

    def check_run(self, clients: int, split: Mapping[str, Any], evaluation: str) -> None:
        """That there are three peers.

        Raises:
            BadInput: for fewer.
        """
        super().check_run(clients, split, evaluation)
        if clients < PEERS:
            raise BadInput(
                f"clients = {clients}: a ring needs {PEERS} peers or more; add clients, or use fedavg"
            )

    def round(self, round: RoundApi, state: State) -> State:
        """All train; each gives its neighbours its model; all mix over the links that held."""
        seed = {SEED: int(state[SEED])}
        round.scatter(self.as_used(self.TRAIN), dict.fromkeys(round.cohort, seed))
        links, share = ring(round.cohort), self.as_used(self.SHARE)
        read: set[Link] = set()
        for name in sorted(round.cohort):
            near = tuple(sorted({one for link in links if name in link for one in link} - {name}))
            if near:
                read |= set(round.share(share, None, (name,), near, among=tuple(sorted((name, *near)))))
        held = [one for link in links if {link, link[::-1]} <= read for one in link]
        request = {LINKS: tuple(held)}
        round.scatter(self.as_used(self.MIX), dict.fromkeys(round.cohort, request))
        return state

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """The public seed, the links that held, or nothing."""
        if channel == self.TRAIN.name:
            return ({SEED: Whole()},)
        if channel == self.MIX.name:
            return ({LINKS: Texts(2**16, LONGEST_NAME)},)
        return NOTHING

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """A change of the model's weights."""
        if channel != self.SHARE.name:
            return super().shows(channel, schema)
        return ({name: Numbers(tuple(v.shape)) for name, v in self._start(schema, 0).items()},)

    @Local.TRAIN.answer
    def train(self, client: ClientContext, given: State) -> None:
        """One round of training from the mixed model of the last round."""
        seed = int(given[SEED])
        if client.memory.setdefault(_START, seed) != seed:
            raise HostileMessage(
                f"{client.name} started from another seed than {seed}: all start from the same"
            )
        model = self.model(client.schema)
        load(model, client.memory.get(_MODEL) or self._start(client.schema, seed))
        with self.seeded_sampling(client):
            fit(client, self.training_graph(client), model, self.settings, device=self.device)
        trained = parameters_of(model)
        client.memory[_TRAINED] = trained
        client.memory[_MODEL] = trained

    @SHARE.answer
    def share_model(self, client: ClientContext, given: State) -> Upload:
        """The change of the trained weights since the public start."""
        return Upload(difference(*self._before_mixing(client)))

    @SHARE.read
    def hear(self, client: ClientContext, models: Mapping[str, State]) -> None:
        """Keeps neighbours' models until they are mixed."""
        client.scratch[_READ] = {**client.scratch.get(_READ, {}), **models}

    @MIX.answer
    def mix(self, client: ClientContext, given: Mapping[str, Any]) -> None:
        """Mixes its own model and those of the neighbours over the links that held."""
        trained, start = self._before_mixing(client)
        parts = {**client.scratch.get(_READ, {}), client.name: difference(trained, start)}
        weights = mixing_weights(client.name, self._links(client, given[LINKS], parts))
        mixed = {
            name: torch.stack([weight * parts[peer][name] for peer, weight in weights.items()]).sum(0)
            for name in start
        }
        client.memory[_MODEL] = total(start, mixed)

    def own_model(self, client: ClientContext) -> State:
        """The peer's model, before or after mixing as the settings say; the start before its first round."""
        own = client.memory.get(_TRAINED if self.settings.scored == "before_mixing" else _MODEL)
        if own is None:
            seed = client.memory.get(_START, client.generator("initialisation").initial_seed())
            return self._start(client.schema, seed)
        return dict(own)

    def _start(self, schema: Schema, seed: int) -> State:
        return parameters_of(self.start(schema, seed))

    def _before_mixing(self, client: ClientContext) -> tuple[State, State]:
        """What it trained, and the public start."""
        if _TRAINED not in client.memory:
            raise HostileMessage(f"{client.name} was asked for a model before it was asked to train one")
        return client.memory[_TRAINED], self._start(client.schema, client.memory[_START])

    @staticmethod
    def _links(client: ClientContext, names: tuple[str, ...], parts: Mapping[str, State]) -> set[Link]:
        """Its own links, of the list of both ends of all."""
        pairs = set(zip(names[::2], names[1::2], strict=len(names) % 2 == 0))
        own = {(a, b) if a < b else (b, a) for a, b in pairs if client.name in (a, b) and a != b}
        unheard = sorted({one for link in own for one in link} - set(parts))
        if len(names) % 2 or unheard or len(own) > PEERS - 1:
            what = f"{unheard[0]!r}, of whom it read nothing" if unheard else f"{len(own)} neighbours"
            raise HostileMessage(f"{client.name} was asked to mix with {what}: a ring has two neighbours")
        return own
