"""Answers that pause where work is done together: their order, their errors, and what is done alone."""

from __future__ import annotations

import pytest

from secure_fedgraph.core.errors import Refused
from secure_fedgraph.protocol.meeting import Ended, Work, answered, do

NAMES = "abcde"


class Record:
    """What happened, in order."""

    def __init__(self, fails: str = "", together_fails: bool = False, kinds: dict[str, str] | None = None):
        self.seen: list[str] = []
        self.fails, self.together_fails, self.kinds = fails, together_fails, kinds or {}

    def call(self, name: str, works: int = 1):
        def answer() -> bytes:
            self.seen.append(f"begin {name}")
            if self.fails == f"begin {name}":
                raise Refused(name)
            try:
                for _ in range(works):
                    do(Work(self.kinds.get(name, ""), lambda: self.alone(name), self.together, name))
            except Ended:
                self.seen.append(f"ended {name}")
                raise
            self.seen.append(f"end {name}")
            return name.encode()

        return answer

    def alone(self, name: str) -> None:
        self.seen.append(f"alone {name}")
        if self.fails == f"alone {name}":
            raise ValueError(name)

    def together(self, names: list[str]) -> None:
        if self.together_fails:
            raise RuntimeError
        self.seen.append(f"together {''.join(names)}")

    def calls(self, names: str = NAMES, works: int = 1):
        return {name: self.call(name, works) for name in names}


def test_work_of_one_kind_is_done_once_between_all_beginnings_and_all_ends():
    record = Record()
    assert dict(answered(record.calls())) == {name: name.encode() for name in NAMES}
    begun, ended = ([f"{what} {name}" for name in NAMES] for what in ("begin", "end"))
    assert record.seen == [*begun, "together abcde", *ended]


def test_few_of_a_kind_and_what_no_exchange_asked_for_is_done_alone():
    record = Record(kinds={"a": "x", "e": "x"})
    list(answered(record.calls()))
    record.call("z")()
    assert [one for one in record.seen if "alone" in one] == [f"alone {name}" for name in "aebcdz"]


def test_further_work_of_an_answer_is_done_by_itself():
    record = Record()
    list(answered(record.calls(works=2)))
    assert record.seen[-4:] == ["alone d", "end d", "alone e", "end e"]


def test_where_work_together_fails_each_does_its_own_and_only_whose_fails_fails():
    record = Record(together_fails=True, fails="alone c")
    found = dict(answered(record.calls(), (Exception,)))
    assert isinstance(found.pop("c"), ValueError) and len(found) == 4
    assert "end c" not in record.seen and record.seen.count("alone c") == 1


@pytest.mark.parametrize("fails", ["begin c", "alone c"])
def test_an_error_that_nobody_tolerates_ends_those_after_it_and_none_before(fails):
    record, came = Record(fails=fails, together_fails=True), []
    with pytest.raises((Refused, ValueError)):
        came += (name for name, _ in answered(record.calls()))
    assert came == ["a", "b"] and {"end a", "end b"} <= set(record.seen)
    assert not {"end c", "end d", "end e"} & set(record.seen)
    assert ("begin d" in record.seen) == (fails == "alone c") == ("ended d" in record.seen)


def test_a_tolerated_error_takes_one_place():
    record = Record(fails="begin b")
    found = dict(answered(record.calls(), (Exception,)))
    assert list(found) == list(NAMES) and isinstance(found["b"], Refused)
    assert "together acde" in record.seen
