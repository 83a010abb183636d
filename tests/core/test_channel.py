"""Channels and domains."""

from __future__ import annotations

import pytest

from secure_fedgraph.core.channel import Channel, Domain, Reveal
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.core.guarantee import Unit


def test_defaults_are_one_client_to_the_server():
    channel = Channel("update", Reveal.SUM)
    assert (channel.unit, channel.to) == (Unit.CLIENT, "server")


@pytest.mark.parametrize(
    "name", ["", "Update", "1st", "a b", "a/b", "carrier/keys", "a\n", "a" * 65, "ä", "_a", "a-b"]
)
def test_names(name):
    with pytest.raises(BadInput, match="use lower-case letters, digits and underscores"):
        Channel(name, Reveal.SUM)


def test_readers():
    with pytest.raises(BadInput, match="'client'"):
        Channel("a", Reveal.SUM, to="client")


@pytest.mark.parametrize("unit", ["node", Unit.LABEL, Unit.FEATURE])
def test_a_row_is_of_a_unit_that_rows_describe(unit):
    with pytest.raises(BadInput, match=r"Unit\.EDGE$"):
        Channel("a", Reveal.EACH, unit)


UNFIT = {
    "exact": ("no", "give True or False"),
    "links": ("no", "give True or False"),
    "trained": (1, "give True or False"),
    "alike": (None, "give True or False"),
    "why": (None, "give text"),
    "min_clients": (0, "give a whole number from 1"),
    "largest": (float("nan"), "give a finite number from 0"),
    "unit_contribution": (3, "give a UnitContribution"),
    "to": (3, "give text"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_field_of_another_type_or_out_of_range(name):
    value, due = UNFIT[name]
    with pytest.raises(BadInput, match=rf"^channel 'a': {name} (is|=) .*: {due}"):
        Channel("a", Reveal.SUM, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("min_clients", "2"), ("min_clients", 1.5), ("largest", "8"), ("largest", -1.0), ("largest", True)],
)
def test_a_number_of_another_type_or_below_its_range(name, value):
    with pytest.raises(BadInput, match=f"^channel 'a': {name} "):
        Channel("a", Reveal.SUM, **{name: value})


def test_what_can_be_read_without_a_key():
    assert [d for d in Domain if d.readable] == [Domain.REAL, Domain.RING]


def test_an_answer_is_marked_with_its_channel():
    channel = Channel("update", Reveal.SUM)

    @channel.answer
    def update() -> None: ...

    assert update.__answers__ is channel


@pytest.mark.parametrize("half", ["answer", "read"])
def test_only_a_function_is_marked(half):
    with pytest.raises(BadInput, match=r"^channel 'a': its method is an int"):
        getattr(Channel("a", Reveal.SUM), half)(3)
