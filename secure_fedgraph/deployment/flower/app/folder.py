"""The folder of the app, as ``flwr run`` takes it."""

from __future__ import annotations

import json
from pathlib import Path

from secure_fedgraph.core.errors import BadInput
from secure_fedgraph.deployment.federation_file import Approved
from secure_fedgraph.deployment.flower.app.run import DEFAULTS
from secure_fedgraph.deployment.flower.pinned import VERSION

PACKAGE = "secure_fedgraph_app"
_HERE = Path(__file__).parent
_PROJECT = """\
[project]
name = "{name}"
version = "1.0.0"
description = "Carries letters between a server of secure-fedgraph and its silos."
license = "Apache-2.0"
dependencies = ["flwr=={flower}"]

[tool.flwr.app]
publisher = "secure-fedgraph"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

# what --run-config may change
[tool.flwr.app.config]
{config}
"""


def write_app(approved: Approved, file: Path, out: Path) -> None:
    """Writes the app of a federation.

    Args:
        approved: the federation's file.
        file: where it stands on the SuperLink's machine.
        out: the app's folder.

    Raises:
        BadInput: where the folder holds something already.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} holds something already: give another --out")
    config = {**DEFAULTS, "federation": str(file.absolute())}
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in config.items())
    package = out / PACKAGE
    package.mkdir(parents=True)
    name = f"secure-fedgraph-{approved.digest[:8]}"
    (out / "pyproject.toml").write_text(
        _PROJECT.format(name=name, flower=VERSION, package=PACKAGE, config=lines), encoding="utf-8"
    )
    (package / "__init__.py").write_text("", encoding="utf-8")
    for module in ("client_app.py", "server_app.py"):
        (package / module).write_text((_HERE / module).read_text(encoding="utf-8"), encoding="utf-8")
