"""The base of every algorithm."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from pydantic import PositiveInt, ValidationError
from torch_geometric.data import Data

from secure_fedgraph.algorithm.settings import Form, Settings, plain, written
from secure_fedgraph.core.channel import Channel, Recipient, Reveal, UnitContributionSampled, noisy_policy
from secure_fedgraph.core.errors import BadInput, WrongType
from secure_fedgraph.core.guarantee import Unit
from secure_fedgraph.core.inputs import NOTHING, Expected, like
from secure_fedgraph.core.upload import ContributionSample, Upload
from secure_fedgraph.graph.own import pairs
from secure_fedgraph.graph.partition.result import EVERYBODY
from secure_fedgraph.graph.placing import CPU
from secure_fedgraph.graph.sample.packing import select_graphs
from secure_fedgraph.graph.schema import OF_LINKS, Schema, Task
from secure_fedgraph.metrics.counting import FEW, MANY, Counting
from secure_fedgraph.models import personal
from secure_fedgraph.models.finite import named_classes
from secure_fedgraph.models.targets import loss_of, ranking_loss, right
from secure_fedgraph.seams import ClientContext, RoundApi

State = dict[str, torch.Tensor]
_LOG = logging.getLogger("secure_fedgraph.algorithm")


class Algorithm:
    """Base of every algorithm: one file declares its channels, answers them, and runs a round.

    A subclass sets class attributes and writes three things::

        UPDATE = Channel("update", Reveal.SUM)      # what leaves a client, and what the reader learns

        @UPDATE.answer
        def update(self, client, given): ...        # the client's half: -> Upload

        def round(self, round, state): ...          # the server's half: state in, state out

    An answer may use ``client`` (:class:`~secure_fedgraph.seams.ClientContext`: its graph, its memory, its
    generators) and what it was given, and nothing else. The server's half sees the verbs of ``round``
    (:class:`~secure_fedgraph.seams.RoundApi`) and the state, and no client.

    Args:
        settings: keys of the class's ``Settings``.

    Raises:
        BadInput: for a setting that is unknown, another algorithm's or out of range, naming it.
        WrongType: for one word where a class attribute lists words.
    """

    name: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    rounds: ClassVar[PositiveInt] = 50
    pools: ClassVar[bool] = False
    """Whether the algorithm pools all owners' data: a baseline that is not federated."""
    partitions: ClassVar[tuple[str, ...]] = ("louvain", "louvain_compiled", "random")
    """The ways of handing data out that it runs on; the first that fits the data is the default."""
    kinds: ClassVar[tuple[str, ...]] = ("node",)
    """The kinds of data, as ``graph.kinds`` has them, that it learns from."""
    tasks: ClassVar[tuple[str, ...]] = (Task.CLASSES,)
    """What it learns of them: :class:`~secure_fedgraph.graph.schema.Task`."""
    of_graphs: ClassVar[type[Any] | None] = None
    """The class that stands for this one where data are sets of graphs; None where there is none."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where it can train and predict. ``cuda`` is for a class that moves all of both there (``self.device``);
    a subclass that trains or predicts in its own way names its own."""
    data: ClassVar[str] = "cora"
    """The data set that a run takes where none is named."""
    clients: ClassVar[Mapping[str, int]] = {}
    """Data set -> how many clients its paper has on it; 3 on others."""
    alone: ClassVar[str] = "local"
    """The algorithm of clients that do not collaborate, which comparisons show beside it."""
    without_links: ClassVar[Mapping[str, Any] | None] = None
    """Settings under which neither training nor inference reads a link; None where there are none."""
    hands_links_out: ClassVar[bool] = False
    """Whether clients that divide the randomising of links hand each other the results (``links`` is a
    setting then: ``own`` or ``divided``)."""
    metric: ClassVar[str] = "accuracy"
    """What the referee measures: ``accuracy``, ``auc`` (area under the ROC curve) or ``mae``."""
    Settings: ClassVar[type[Settings]] = Settings
    forms: ClassVar[tuple[Form, ...]] = ()
    """Other forms of it, for policies that refuse the one as configured; the first that fits is taken."""
    channels: ClassVar[tuple[Channel, ...]] = ()
    answers: ClassVar[Mapping[str, str]] = {}
    readers: ClassVar[Mapping[str, str]] = {}

    METRICS = Channel("metrics", Reveal.SUM)
    OWN_TESTS = Channel("own_tests", Reveal.EACH, to="referee")
    COMBINED = Channel("combined", Reveal.EACH, to="referee")
    SCORES = Channel("scores", Reveal.SUM)
    OWN_SCORES = Channel("own_scores", Reveal.EACH, to="referee")

    form: Form | None = None
    """The form that a policy made it take; None as configured."""
    device: torch.device = CPU
    """Where it trains and predicts; see :meth:`on`."""

    def __init__(self, **settings: Any) -> None:
        self.by_hand: Mapping[str, Any] = dict(settings)
        """The settings that were given, which no form changes."""
        self.settings = _settings_of(type(self), settings)

    def in_form(self, form: Form) -> Self:
        """The same algorithm in another form; what was set by hand stays.

        Raises:
            BadInput: where the form changes what was set by hand, or does not go with it.
        """
        for key, value in form.settings.items():
            if key in self.by_hand and plain(self.by_hand[key]) != plain(value):
                raise BadInput(
                    f"training.{key} = {written(self.by_hand[key])} was set by hand: leave it out, or set "
                    f"training.{key}={written(value)}"
                )
        made = copy.copy(self)
        made.settings = _settings_of(type(self), {**self.by_hand, **form.settings})
        made.form = form
        return made

    @classmethod
    def check_device(cls, device: str) -> None:
        """That it trains and predicts on a device.

        Raises:
            BadInput: where it does not.
        """
        if device not in cls.devices:
            raise BadInput(
                f"device = {device!r}: {cls.name} trains and predicts on {' or '.join(cls.devices)} only; "
                "leave it out, or use an algorithm that declares it, such as fedavg, fedsage or local"
            )

    def on(self, device: str) -> Self:
        """The same algorithm, training and predicting on a device. A run decides it (``device=`` of train).

        Raises:
            BadInput: as :meth:`check_device`.
        """
        self.check_device(device)
        if self.device.type == device:
            return self
        made = copy.copy(self)
        made.device = torch.device(device)
        return made

    @classmethod
    def of_kind(cls, kind: str) -> type[Algorithm]:
        """The class that learns from data of a kind: this one, or the one that stands for it."""
        other: type[Algorithm] | None = vars(cls).get("of_graphs")  # a subclass is a user's, and stays itself
        return other if kind == "graph" and other is not None else cls

    def for_data(self, schema: Schema) -> Algorithm:
        """The same algorithm as it learns from such data: itself, or in the class that stands for its own.

        A run asks once, before anything else.
        """
        kind = type(self).of_kind(schema.kind)
        return self if kind is type(self) else kind(**self.by_hand).on(self.device.type)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("partitions", "kinds", "tasks", "devices"):
            if isinstance(words := getattr(cls, name), str):
                raise WrongType(f"{cls.__name__}: {name} = {words!r} is one word; write ({words!r},)")
        declared: dict[str, Channel] = {
            c.name: c for base in cls.__bases__ for c in getattr(base, "channels", ())
        }
        answers = {k: v for base in cls.__bases__ for k, v in getattr(base, "answers", {}).items()}
        readers = {k: v for base in cls.__bases__ for k, v in getattr(base, "readers", {}).items()}
        for attribute, value in vars(cls).items():
            channel = getattr(value, "__answers__", None)
            if isinstance(channel, Channel):
                declared[channel.name] = channel
                answers[channel.name] = attribute
            read = getattr(value, "__reads__", None)
            if isinstance(read, Channel):
                readers[read.name] = attribute
        examined = {one.name for one in cls.examiners()}
        cls.channels = tuple(c for c in declared.values() if c.name not in examined)
        cls.answers, cls.readers = answers, readers

    @classmethod
    def channel_names(cls) -> tuple[str, ...]:
        """Of all channels that it declares, used by some settings or by none, and of the examiner's."""
        return tuple(channel.name for channel in (*cls.channels, *cls.examiners()))

    @classmethod
    def examiners(cls) -> tuple[Channel, ...]:
        """The channels on which scores are asked for."""
        return (cls.METRICS, cls.OWN_TESTS, cls.COMBINED, cls.SCORES, cls.OWN_SCORES)

    def scores_channel(self, schema: Schema, by_item: bool) -> Channel:
        """The channel on which clients' test items are counted.

        Args:
            schema: of the data.
            by_item: whether noise on it is to be for one node, graph or link: one of them is then counted in
                few cells, in all clients' sums together, and scores of nodes read no links, over which one
                would change the scores of others.
        """
        if not by_item:
            return self.SCORES
        whole, linked = schema.kind == "graph", schema.task in OF_LINKS
        unit = Unit.GRAPH if whole else Unit.EDGE if linked else Unit.NODE
        norm = Counting(schema, FEW).norm / ITEMS
        contribution = UnitContributionSampled(norm, rate=1.0, records=MOST_ITEMS)
        return replace(self.SCORES, unit=unit, unit_contribution=contribution, links=whole or linked)

    @property
    def in_use(self) -> tuple[Channel, ...]:
        """The channels that these settings use: what a policy has to bind."""
        return self.channels

    def check(self, schema: Schema) -> None:
        """Before anything is sent.

        Raises:
            BadInput: for data of a kind that it does not learn from.
        """
        if schema.kind not in self.kinds:
            raise BadInput(
                f"{self.name} learns from data of kind {' or '.join(self.kinds)}, and this is of kind "
                f"{schema.kind!r}: choose another data set or another algorithm"
            )
        if schema.task not in self.tasks:
            raise BadInput(
                f"task = {schema.task}: {self.name} learns {' and '.join(self.tasks)} only; use fedavg, "
                "fedprox, fedsage, fedridge, fedsgd or local"
            )

    def suited(
        self, channel: Channel, noise: float, schema: Schema, clients: int, sizes: Mapping[str, int]
    ) -> Self:
        """The same algorithm in the form that suits the noise, chosen by public facts; itself by default.

        Args:
            channel: one of :attr:`in_use`.
            noise: standard deviation of the noise on each value of a sum of all clients' uploads on it.
            schema: of the data.
            clients: how many.
            sizes: unit -> how many all owners hold together, where that is public.
        """
        return self

    def on_sums(self, unit: str) -> Algorithm:
        """What runs in its place where noise for one unit is on sums over all owners; itself by default.

        Args:
            unit: what a budget is for.
        """
        return self

    def untouched_by(self, unit: str) -> Algorithm:
        """What runs in its place where nothing that is sent may depend on one unit; itself by default.

        Such a unit's epsilon is 0, without noise.

        Args:
            unit: what a budget is for.
        """
        return self

    def under_budget(
        self, epsilon: float, delta: float, unit: str, schema: Schema, sizes: Mapping[str, int]
    ) -> Self:
        """The same algorithm in the form that suits a budget, before noise is planned; itself by default.

        Args:
            epsilon, delta, unit: of the budget.
            schema: of the data.
            sizes: unit -> how many all owners hold together, where that is public.
        """
        return self

    @property
    def budget_shares(self) -> Mapping[str, float]:
        """What channels weigh in a budget; those that are not named weigh 1."""
        return {}

    def uses(self, channel: Channel, rounds: int, clients: int) -> int:
        """How often each client is asked on a channel in a run, at most: what a budget is planned for."""
        return rounds + self.warm_up

    def occurrences(self, unit: str) -> int:
        """In how many records of a client's training one unit's data are, where it trains on records.

        1 says that a record is of one unit alone: it goes with the unit, and no other changes.

        Raises:
            BadInput: where it does not: noisy training steps cannot protect the unit then.
        """
        raise BadInput(
            f"{self.name} does not train on records that are one {unit} each, so noisy training steps "
            f"protect none: use {noise_on_uploads(self, unit)}, or fedavg, fedprox or fedsage"
        )

    def check_records(self, schema: Schema, unit: str) -> None:
        """Before anything is sent: that noisy training steps can be taken, on records of one unit each.

        Raises:
            BadInput: as :meth:`occurrences`, or for a model of which nobody knows one record's gradient.
        """
        self.occurrences(unit)

    def check_own(self, graph: Data, name: str) -> None:
        """In a client, before the run: that its own data serve. Nothing to check by default.

        What depends on the data is refused here. An answer never refuses for it: a server that chooses what
        it asks with would read the data off the refusals.

        Args:
            graph: the client's own.
            name: the client's.

        Raises:
            BadInput: in a sentence that names the key, the value and the mend.
        """

    def check_touched(self, graph: Data, unit: str) -> None:
        """Before a client answers anything: that one unit of its graph is in no more records than is counted.

        Raises:
            BadInput: where the graph breaks the public bound. By default there is none.
        """

    def check_inputs(self, divided: Sequence[str]) -> None:
        """Before anything is sent: that it can use what the policy randomises.

        By default it can, unless clients divide the work: they would have to hand each other the results.

        Args:
            divided: kinds of inputs whose randomising the clients divide, such as ``"links"``.

        Raises:
            BadInput: in a sentence that names the key and the mend.
        """
        for kind in divided:
            raise BadInput(
                f"{kind} are divided among the clients, and {self.name} does not hand them out: "
                f"randomise the {kind} of each client"
            )

    def check_run(self, clients: int, split: Mapping[str, Any], evaluation: str) -> None:
        """Before anything is sent: that it runs on data handed out like this. Nothing to check by default.

        Args:
            clients: how many.
            split: what the partition says about itself (``facts["partition"]``).
            evaluation: ``referee``, ``in_band`` or ``at_home``.

        Raises:
            BadInput: in a sentence that names the key, the value and the mend.
        """

    def takes(self, channel: str, schema: Schema) -> Expected | None:
        """What an answer on a channel may be given, from public facts: the client's door checks it.

        A class that answers a channel itself and declares nothing for it is given whatever comes, and has to
        look at it.

        Returns:
            The forms that may come (:mod:`~secure_fedgraph.core.inputs`); None where nothing is declared.
        """
        return None

    def shows(self, channel: str, schema: Schema) -> Expected | None:
        """What an upload, or a sum of them, holds on a channel that peers read; as :meth:`takes`."""
        return None

    def expected(self, channel: str, schema: Schema) -> Expected | None:
        """As :meth:`takes`; None where a subclass asks or answers in its own way and declares nothing."""

        def made_in(name: str) -> int:
            kinds = type(self).__mro__
            return next((i for i, kind in enumerate(kinds) if name in vars(kind)), len(kinds))

        own = min(made_in(self.answers.get(channel, "")), made_in("round"))
        return self.takes(channel, schema) if made_in("takes") <= own else None

    def given_first(self, channel: str, schema: Schema, seed: int) -> State | None:
        """The model that a channel gives in its first round of an honest run, which is public.

        Args:
            channel: its name.
            schema: public facts about the data.
            seed: of the run's first weights.

        Returns:
            It; None where the channel does not declare that it gives the model, or declares no form of it.
        """
        gives = {one.name for one in self.in_use if one.gives_model}
        forms = self.expected(channel, schema) if channel in gives else None
        if not forms or len(forms) > 1:
            return None
        start = self.init(schema, seed)
        return {name: start[name] for name in forms[0]} if forms[0].keys() <= start.keys() else None

    def first_round(self, channel: str) -> int:
        """The round in which a channel is used first: 1 by default."""
        return 1

    def _takes_released(self, schema: Schema) -> Expected:
        """The released model as it starts, nothing where none is: what scoring is given."""
        released = self.released(self.init(schema, 0))
        return NOTHING if released is None else (like(released),)

    def init(self, schema: Schema, seed: int) -> State:
        """The server's state before round 1, from public facts and the seed only."""
        raise WrongType(
            f"{type(self).__name__} has no method init: it makes the server's state before round 1"
        )

    def round(self, round: RoundApi, state: State) -> State:
        """One round on the server: what to ask, and what to make of what comes back."""
        raise WrongType(
            f"{type(self).__name__} has no method round: it says what the server asks and makes of it"
        )

    def reads(self, schema: Schema) -> tuple[str, ...]:
        """Which of the data's edge fields (``schema.edge_fields``) its model takes; none by default."""
        return ()

    def released(self, state: State) -> State | None:
        """The model that the round has released to everybody, or None where there is none."""
        return state

    def personal(self) -> Channel | None:
        """The channel on which the referee may examine personal models, where there are any."""
        return next((c for c in self.in_use if c.to == Recipient.REFEREE), None)

    def measure(self, schema: Schema) -> str:
        """What the referee measures on data of this kind: :attr:`metric`, unless the data decide."""
        return {Task.NUMBER: "mae", Task.LINKS: "auc"}.get(Task(schema.task), self.metric)

    @property
    def warm_up(self) -> int:
        """Rounds before the first that is scored."""
        return 0

    @property
    def hops(self) -> int:
        """How far from a training node training looks, in links."""
        raise NotImplementedError

    def predict(self, params: State, graph: Data, schema: Schema) -> torch.Tensor:
        """Class scores ``[nodes, classes]`` of a model on a graph."""
        raise WrongType(
            f"{type(self).__name__} has no method predict: it scores a graph with a released model"
        )

    def reach(self, schema: Schema) -> int | None:
        """How many links from a node its scores read, where a layer averages over whole in-neighbourhoods.

        Returns:
            None where it does otherwise, or nobody knows: then scores of some nodes need the whole graph.
        """
        return None

    def predictions(
        self, state: State, round: RoundApi, inputs: Data, schema: Schema
    ) -> dict[str, torch.Tensor]:
        """What the referee marks: class scores ``[nodes, classes]`` of its inputs.

        Args:
            state: the server's.
            round: the referee's round; its verbs read the channels to the referee.
            inputs: features and links of the test graph, without an answer in it.

        Returns:
            By owner, or for everybody where one model is released.
        """
        released = self.released(state)
        channel = self.personal()
        if released is not None:
            models = {EVERYBODY: released}
        elif channel is not None:
            models = round.gather(channel)
        else:
            raise BadInput(f"{self.name} releases no model and declares no channel to the referee")
        return {owner: self.predict(model, inputs, schema) for owner, model in models.items()}

    def combines(self, schema: Schema) -> bool:
        """Whether an owner can combine the released model with a model of its own: for nodes of one graph."""
        kind = type(self)
        if schema.task != Task.CLASSES:
            return False
        asks = kind.predictions is Algorithm.predictions and kind.predict is not Algorithm.predict
        return asks and schema.kind == "node" and self.released(self.init(schema, 0)) is not None

    def own_model(self, client: ClientContext) -> State:
        """A client's personal model, where there are any."""
        raise BadInput(f"{self.name} has no model in its clients: evaluate it with the referee")

    @METRICS.answer
    def metrics(self, client: ClientContext, given: State) -> Upload:
        """How right the client's own test items are, in [0, 1] (``evaluation="in_band"``)."""
        part, whole = self._marked(client, given)["test"]
        if client.schema.task == Task.NUMBER:  # in units of the public range, so that it is within [0, 1]
            return in_band_score("mae", whole - part, whole)
        return in_band_score("auc" if client.schema.task == Task.LINKS else "accuracy", part, whole)

    @OWN_TESTS.answer
    def own_tests(self, client: ClientContext, given: State) -> Upload:
        """Right answers and their number on the client's own test and validation nodes, for the referee.

        ``loss`` is the sum of the cross entropy over the validation nodes, and their number.
        """
        return Upload(self._marked(client, given))

    @SCORES.answer
    def counted_scores(self, client: ClientContext, given: State) -> Upload | ContributionSample:
        """The client's own test and validation items, counted by what the model says of them.

        :class:`~secure_fedgraph.metrics.counting.Counting` has the cells. Under noise one item is one part,
        and all that was not trained on is counted together: nothing of a shared model is chosen by it.
        """
        graph, schema = client.graph, client.schema
        model = given or self.own_model(client)
        if not client.noised(self.SCORES):
            counted = self._cells(client, self._detached_scores(client, model))
            return Upload({name: (cells / ITEMS).float() for name, cells in counted.items()})
        cells, items = Counting(schema, FEW), client.sampled()
        if len(items) > MOST_ITEMS:  # before any is looked at: no other item enters in the place of one
            items = items[client.secret_order(len(items))[:MOST_ITEMS]].sort().values
        items = items[(graph.test_mask | graph.val_mask)[items]]
        outputs = self._each_alone(self.by_item(model, schema), graph, schema, items)
        return ContributionSample({"test": cells.parts(outputs, graph.y[items]) / ITEMS}, items)

    @OWN_SCORES.answer
    def own_counted_scores(self, client: ClientContext, given: State) -> Upload:
        """As :meth:`counted_scores` without noise, for the referee."""
        outputs = self._detached_scores(client, given or self.own_model(client))
        return Upload({name: cells.float() for name, cells in self._cells(client, outputs).items()})

    def _cells(self, client: ClientContext, outputs: torch.Tensor) -> dict[str, torch.Tensor]:
        graph, cells = client.graph, Counting(client.schema, MANY)
        parts = {"test": graph.test_mask, "validation": graph.val_mask}
        return {name: cells.total(outputs[mask], graph.y[mask]) for name, mask in parts.items()}

    @COMBINED.answer
    def combined(self, client: ClientContext, given: State) -> Upload:
        """A personal model, and right answers and their number on own test nodes, for the referee.

        ``combined`` is 1, or 0 where the released model gave no scores and so has no part in it. See
        :mod:`secure_fedgraph.models.personal`.
        """
        graph, combined = client.graph, True
        try:
            released = self.scores_to_combine(client, given)
        except Exception as error:  # a run does not end by a model of the user's own, nor show by which data
            _LOG.warning("%s: the model cannot be combined (%s)", client.name, type(error).__name__)
            released, combined = torch.zeros(len(graph.y), client.schema.classes), False
        model = personal.fit(graph, released, client.schema.classes)
        y, test = graph.y[graph.test_mask], graph.test_mask
        own = personal.experts(graph, client.schema.classes)[1]

        def counted(released: torch.Tensor | None) -> torch.Tensor:
            scores = personal.scores(model, own, released)
            return torch.tensor([float((named_classes(scores)[test] == y).sum()), float(len(y))])

        # an owner without a training node has nothing of its own
        alone = counted(None) if len(model[personal.ALONE]) else torch.zeros(2)
        scored = {"test": counted(released), "alone_test": alone, "combined": torch.tensor([float(combined)])}
        return Upload({**scored, **model})

    def by_item(self, params: State, schema: Schema) -> State:
        """The model that is scored under noise for one item: its score of an item reads no other item.

        The released model itself, unless a subclass has one that does.
        """
        return params

    def _each_alone(self, params: State, graph: Data, schema: Schema, items: torch.Tensor) -> torch.Tensor:
        """Scores of items, each in a question of its own: ``[items, outputs]``.

        Asked about together, others' number and zeros would decide how an item's score is rounded, and a
        server can make up weights that turn the rounding into the score.
        """

        def says(asked: Data) -> torch.Tensor:
            return self.predict(params, asked, schema).detach()

        def alone(item: torch.Tensor) -> torch.Tensor:
            if schema.task in OF_LINKS:
                link = pairs.one_alone(graph, int(item))
                return pairs.ranked(says, link, schema) if schema.task == Task.LINKS else says(link)
            if schema.kind == "graph":
                return says(select_graphs(graph, item[None]))
            return says(Data(x=graph.x[item[None]], edge_index=torch.zeros(2, 0, dtype=torch.long)))

        each = [alone(item) for item in items]
        return torch.cat(each) if each else torch.zeros(0, schema.classes)

    def scores_at_home(self, client: ClientContext, params: State) -> torch.Tensor:
        """Class scores of a model on the client's own graph, for its own tests."""
        return self.predict(params, client.graph, client.schema)

    def scores_to_combine(self, client: ClientContext, params: State) -> torch.Tensor:
        """What a client's own experts are combined with: class scores of a model on its own graph."""
        return self._detached_scores(client, params)

    def _detached_scores(self, client: ClientContext, params: State) -> torch.Tensor:
        """:meth:`scores_at_home` without gradients, which a module records unless it says ``no_grad``.

        Of links that are there or not these are scores among wrong ones, ``[rows, 1 + wrong]``.
        """
        schema = client.schema
        if schema.task not in OF_LINKS:
            return self.scores_at_home(client, params).detach()

        def says(asked: Data) -> torch.Tensor:
            return self.predict(params, asked, schema).detach()

        return pairs.ranked(says, client.graph, schema) if schema.task == Task.LINKS else says(client.graph)

    def _marked(self, client: ClientContext, given: State) -> dict[str, torch.Tensor]:
        scores = self._detached_scores(client, given or self.own_model(client))
        counts: dict[str, torch.Tensor] = {}
        y, schema = client.graph.y, client.schema
        for name, mask in (("test", client.graph.test_mask), ("validation", client.graph.val_mask)):
            counts[name] = torch.stack([right(scores[mask], y[mask], schema).sum(), mask.sum()]).float()
        held_out = client.graph.val_mask
        ranks = schema.task == Task.LINKS
        held = scores[held_out]
        loss = (ranking_loss(held) if ranks else loss_of(schema)(held, y[held_out])).sum()
        counts["loss"] = torch.stack([loss, held_out.sum()]).float()
        return counts

    def notes(self, state: State) -> dict[str, Any]:
        """What the server learned besides a model and a run's result keeps, as JSON; nothing by default."""
        return {}

    def made_with(self) -> dict[str, Any]:
        """What ``__init__`` was given besides settings, for another process to make the same algorithm."""
        return {}

    def public(self) -> dict[str, Any]:
        """What everybody knows about the algorithm: its name and settings."""
        return {"algorithm": self.name, "settings": self.settings.model_dump(mode="json")}


# the base's own answer, which __init_subclass__ cannot see
Algorithm.answers = {
    value.__answers__.name: name for name, value in vars(Algorithm).items() if hasattr(value, "__answers__")
}


TESTED = "tested"
ITEMS = 2**14
"""Counts of items travel over it, so that sums stay within what carriers take."""
MOST_ITEMS = 2**17
"""Nodes, graphs or links of a client among which items are counted under noise, at most."""


def in_band_score(name: str, part: torch.Tensor, whole: torch.Tensor) -> Upload:
    """A client's score on its own tests, and whether it has any: who has none counts in no mean."""
    tested = (whole > 0).float().reshape(1)
    return Upload({name: (part / whole.clamp(min=1)).reshape(1) * tested, TESTED: tested})


def _settings_of(kind: type[Algorithm], given: Mapping[str, Any]) -> Settings:
    try:
        return kind.Settings(**given)
    except ValidationError as error:
        raise BadInput(_sentence(error, f"{kind.name or kind.__name__} setting")) from None


def _sentence(error: ValidationError, what: str) -> str:
    first = error.errors()[0]
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return f"{what} {key!r} is unknown"
    if not key:  # settings that do not fit each other: the sentence names them
        return f"{what}: {first['msg']}"
    return f"{what} {key!r} = {first['input']!r}: {first['msg']}"


def noise_on_uploads(algorithm: Algorithm, unit: str) -> str:
    """The options that protect a unit by noise on what is sent, where noisy training steps cannot."""
    return f"--policy {noisy_policy(algorithm.in_use)} --unit {unit}"


def adds_up(algorithm: Algorithm, unit: str) -> bool:
    """Whether all that is shown are sums over all owners, to which a unit adds one bounded part."""
    sent = [
        one for one in algorithm.in_use if one.to != Recipient.REFEREE and one.reveal is not Reveal.NOTHING
    ]
    bounded = [one for one in sent if one.unit_contribution is not None and one.unit.value == unit]
    return bool(sent) and len(bounded) == len(sent) and all(one.reveal is Reveal.SUM for one in sent)
