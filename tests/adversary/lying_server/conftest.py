"""Every attack of a server that lies runs twice: on clients in this process, and on silos, by letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ways import as_silos

REACHES = {"lying_server", "session"}
"""What makes a server in front of clients; other tests know no way."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if REACHES & vars(metafunc.module).keys():
        metafunc.parametrize("way", ["in_process", "silos"], indirect=True)


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    if getattr(request, "param", "in_process") == "silos":
        with as_silos():
            yield
    else:
        yield
