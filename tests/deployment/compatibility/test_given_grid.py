"""Over a grid that Flower hands out, a node is a silo once it signed with that silo's key, and not before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bank_folders import Banks, by_name, in_one_process, made

from secure_fedgraph.core import wire
from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.flower.app.folder import PACKAGE, write_app
from secure_fedgraph.deployment.flower.app.run import DEFAULTS, PACE, run_over
from secure_fedgraph.deployment.flower.fleet import letter_in, record_of
from secure_fedgraph.deployment.flower.given_grid import GivenGrid
from secure_fedgraph.deployment.flower.pinned import VERSION, check_flower
from secure_fedgraph.deployment.greeting import greeted
from secure_fedgraph.deployment.letters import DONE, HELLO, KINDS, Letter
from secure_fedgraph.deployment.resident import Resident
from secure_fedgraph.deployment.serving import Serving, serve
from secure_fedgraph.deployment.silo_folder import SiloFolder
from secure_fedgraph.deployment.silos import Silos

pytest.importorskip("flwr", exc_type=ImportError)

Node = Callable[[Letter, int], Letter | None]
"""What stands behind a node: a letter and the node's id in, an answer out; None for Flower's own error."""


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity that Flower gives to a ServerApp's process."""
    check_flower()
    from flwr.supercore.task_identity import TaskIdentity

    for key in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, key, 1)


@pytest.fixture
def banks(tmp_path: Path) -> Banks:
    return made(tmp_path, 3)


class FakeGrid:
    """A grid whose nodes answer at once, as SuperNodes with the app do."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self.nodes = dict(nodes)
        self.pushed: list[tuple[int, str]] = []
        self._replies: dict[str, Any] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Any]) -> Iterator[str]:
        for message in messages:
            node, letter = message.metadata.dst_node_id, letter_in(message, KINDS)
            ticket = f"ticket {len(self.pushed)}"
            self.pushed.append((node, letter.kind))
            answer = self.nodes[node](letter, node)
            self._replies[ticket] = SimpleNamespace(
                metadata=SimpleNamespace(reply_to_message_id=ticket),
                content=answer and record_of(answer),
                has_error=lambda answer=answer: answer is None,
                has_content=lambda answer=answer: answer is not None,
            )
            yield ticket

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        return [self._replies.pop(one) for one in message_ids if one in self._replies]


def behind(resident: Resident) -> Node:
    """A node with the app and a silo's process."""
    return lambda letter, node: (
        resident.hello(letter, node) if letter.kind == HELLO else resident.answer(letter)
    )


def greet(post: GivenGrid, banks: Banks) -> Silos:
    silos = Silos(post, banks.approved, pace=PACE)
    silos._greet(banks.names, 2.0)
    return silos


def post_over(grid: FakeGrid, banks: Banks, said: list[str] | None = None) -> GivenGrid:
    return GivenGrid(grid, banks.approved, 60, (said if said is not None else []).append)


def test_every_node_is_found_by_what_it_signs(banks: Banks) -> None:
    residents = by_name(banks)
    grid = FakeGrid(
        {number: behind(residents[name]) for number, name in zip((30, 10, 20), banks.names, strict=True)}
    )
    post = post_over(grid, banks)
    assert greet(post, banks).here == banks.names
    assert [post.node_of(name) for name in banks.names] == [30, 10, 20]
    assert sorted(grid.pushed) == [(10, HELLO), (20, HELLO), (30, HELLO)]  # one greeting a node finds all
    assert greet(post, banks).here == banks.names and len(grid.pushed) == 6


def claiming(banks: Banks, name: str, identity_of: str) -> Node:
    """A node that answers greetings with another's name, under the key of some silo."""
    identity = SiloFolder(banks.root / identity_of).keys().identity
    return lambda letter, node: greeted(letter, node, banks.approved, identity, "ab", name, {})


def test_a_node_that_claims_anothers_name_is_refused(banks: Banks) -> None:
    residents, said = by_name(banks), []
    nodes = {20: behind(residents["bank-b"]), 30: behind(residents["bank-c"])}
    grid = FakeGrid({10: claiming(banks, "bank-a", "bank-b"), **nodes})
    post = post_over(grid, banks, said)
    assert greet(post, banks).here == ("bank-b", "bank-c")
    with pytest.raises(KeyError):
        post.node_of("bank-a")
    assert len(said) == 1 and said[0].startswith("node 10 is ignored: ")
    assert post.send({"bank-a": Letter("ask", b"secret")}) == {"bank-a": ""}
    assert (10, "ask") not in grid.pushed


@pytest.mark.parametrize("liar", [5, 95])
def test_of_two_that_claim_a_silo_the_verified_one_counts(banks: Banks, liar: int) -> None:
    residents = by_name(banks)
    honest = {10 * (n + 1): behind(residents[name]) for n, name in enumerate(banks.names)}
    post = post_over(FakeGrid({**honest, liar: claiming(banks, "bank-a", "bank-c")}), banks)
    assert greet(post, banks).here == banks.names and post.node_of("bank-a") == 10


def test_an_answer_that_another_node_passes_on_proves_nothing(banks: Banks) -> None:
    # a node hands the greeting to the silo under the silo's own number, and its answer to the server
    residents = by_name(banks)

    def passing(letter: Letter, node: int) -> Letter | None:
        return behind(residents["bank-a"])(letter, 10)

    post = post_over(FakeGrid({66: passing}), banks)
    assert greet(post, banks).here == ()


def test_an_answer_to_an_earlier_greeting_proves_nothing(banks: Banks) -> None:
    resident, kept = banks.resident("bank-a"), []

    def replaying(letter: Letter, node: int) -> Letter:
        kept.append(resident.hello(letter, node))
        return kept[0]

    grid = FakeGrid({10: replaying})
    post = post_over(grid, banks)
    assert greet(post, banks).here == ("bank-a",)
    assert greet(post, banks).here == ()
    with pytest.raises(KeyError):
        post.node_of("bank-a")  # forgotten, and looked for again by the next greeting


@pytest.mark.parametrize(
    "answer",
    [
        None,
        Letter(DONE, b""),
        Letter(DONE, b"garbage"),
        Letter(DONE, wire.encode({"name": "bank-a"})),
        Letter(DONE, wire.encode({"name": "bank-z", "session": "ab", "signature": "00" * 64})),
        Letter(DONE, wire.encode({"name": "bank-a", "session": "ab", "signature": "no hex"})),
        Letter(DONE, wire.encode({"name": "bank-a", "session": "ab", "signature": "00" * 64})),
        Letter("failed", b"garbage"),
        Letter("ask", b""),
    ],
)
def test_a_node_that_fails_or_answers_nonsense_is_ignored(banks: Banks, answer: Letter | None) -> None:
    residents = by_name(banks)
    grid = FakeGrid({5: lambda letter, node: answer, 10: behind(residents["bank-a"])})
    assert greet(post_over(grid, banks), banks).here == ("bank-a",)


def test_a_silo_may_move_to_another_node(banks: Banks) -> None:
    residents = by_name(banks)
    grid = FakeGrid({10: behind(residents["bank-a"])})
    post = post_over(grid, banks)
    assert greet(post, banks).here == ("bank-a",)
    grid.nodes = {11: behind(residents["bank-a"])}
    assert post.send({"bank-a": Letter("ask", b"")}) == {"bank-a": ""}
    assert greet(post, banks).here == ("bank-a",) and post.node_of("bank-a") == 11


def test_nodes_may_swap_their_silos(banks: Banks) -> None:
    residents = by_name(banks)
    a, b = behind(residents["bank-a"]), behind(residents["bank-b"])
    grid = FakeGrid({10: a, 20: b})
    post = post_over(grid, banks)
    assert greet(post, banks).here == ("bank-a", "bank-b")
    grid.nodes = {10: b, 20: a}
    greet(post, banks)
    assert greet(post, banks).here == ("bank-a", "bank-b")
    assert (post.node_of("bank-a"), post.node_of("bank-b")) == (20, 10)


def test_a_silo_of_another_file_is_ignored_and_its_reason_said(banks: Banks, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other, said = made(tmp_path / "other", 2), []
    post = post_over(FakeGrid({10: behind(other.resident("bank-a"))}), banks, said)
    assert greet(post, banks).here == ()
    assert (
        len(said) == 1 and "give every silo and the server the same file" in said[0] and "\n" not in said[0]
    )


def test_a_whole_run_trains_the_weights_of_one_process(banks: Banks, tmp_path: Path) -> None:
    residents = by_name(banks)
    grid = FakeGrid({10 * (n + 1): behind(residents[name]) for n, name in enumerate(banks.names)})
    how = Serving(wait=5, grace=0, patience=30, pace=PACE)
    result = serve(banks.approved, post_over(grid, banks), tmp_path / "out", "typed", how)
    assert result["weights"] == in_one_process(banks)


class TestTheApp:
    def test_its_folder_has_both_ends_and_the_run_s_keys(self, banks: Banks, tmp_path: Path) -> None:
        import tomllib

        write_app(banks.approved, banks.file, tmp_path / "app")
        project = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
        app = project["tool"]["flwr"]["app"]
        assert app["config"] == {**DEFAULTS, "federation": str(banks.file)}
        assert project["project"]["dependencies"] == [f"flwr=={VERSION}"]
        for reference in app["components"].values():
            package, module = reference.removesuffix(":app").split(".")
            assert package == PACKAGE and (tmp_path / "app" / package / f"{module}.py").is_file()
        with pytest.raises(BadInput, match="holds something already"):
            write_app(banks.approved, banks.file, tmp_path / "app")

    def test_the_silos_end_imports_flower_socket_and_struct_alone(self, banks: Banks, tmp_path: Path) -> None:
        import ast

        write_app(banks.approved, banks.file, tmp_path / "app")
        tree = ast.parse((tmp_path / "app" / PACKAGE / "client_app.py").read_text())
        found = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        found |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert found == {"socket", "struct", "flwr.app", "flwr.clientapp"}
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not called & {"eval", "exec", "compile", "open", "__import__", "getattr"}

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ({}, "federation = '': give a path"),
            ({"federation": "/nowhere/federation.toml", "out": ""}, "out = '': give a path"),
            ({"federation": "federation.toml", "out": "/x"}, "'federation.toml': give an absolute path"),
            ({"federation": "/f", "out": "/x", "wait": "long"}, "wait = 'long': give a number"),
            ({"federation": "/f", "out": "/x", "patience": -1}, "patience = -1: give a number"),
            ({"federation": "/f", "out": "/x", "start-with": True}, "start-with = True: give a number"),
        ],
    )
    def test_what_the_run_s_configuration_lacks_is_said_in_a_line(
        self, config: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(BadInput) as refused:
            run_over(FakeGrid({}), config)
        assert words in str(refused.value) and "\n" not in str(refused.value)

    def test_another_release_of_flower_is_refused_in_a_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metadata, "version", lambda name: "1.42.0")
        with pytest.raises(
            BadInput, match=f"flwr 1.42.0 is installed, .* works with flwr {VERSION}"
        ) as refused:
            run_over(FakeGrid({}), {})
        assert "\n" not in str(refused.value)
