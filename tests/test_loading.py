"""What takes long to load is loaded where it is used, and only there."""

from __future__ import annotations

import subprocess
import sys

import pytest

from secure_fedgraph.loading import postponed

HEAVY = "{'torch._dynamo', 'pandas', 'dp_accounting', 'scipy.sparse', 'scipy.stats', 'networkx', 'sympy'}"
TRAINING = """
import sys
import secure_fedgraph as sfg
for optimizer in ("adam", "sgd"):
    federation = sfg.federate("synthetic-citation", clients=2, partition="random", nodes=60, features=8)
    sfg.train(sfg.FedAvg(optimizer=optimizer), federation, "plaintext", rounds=2)
split = sfg.federate("synthetic-citation", clients=3, partition="vertical", nodes=60, features=9)
sfg.train(sfg.Glasu(sampler="public", public_nodes=30, steps=1), split, "plaintext", rounds=1)
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_training_loads_no_compiler_and_no_accountant() -> None:
    assert run(f"{TRAINING}\nprint({HEAVY} & sys.modules.keys())") == "set()"


def test_the_command_to_run_loads_no_compiler_and_no_accountant() -> None:
    assert run(f"import sys, secure_fedgraph.cli.running\nprint({HEAVY} & sys.modules.keys())") == "set()"


@pytest.mark.parametrize(
    "use",
    [
        "assert torch_geometric.is_torch_instance(torch.compile(model), torch.nn.Linear)",
        "assert isinstance(torch.compile(model), torch._dynamo.OptimizedModule)",
        "import torch._dynamo as compiler; assert compiler.OptimizedModule",
        "from torch._dynamo.eval_frame import OptimizedModule",
        "torch.optim.Adam(model.parameters()).step()",
    ],
)
def test_the_compiler_is_there_for_whoever_uses_it(use: str) -> None:
    begin = "import secure_fedgraph, torch, torch_geometric, sys; model = torch.nn.Linear(1, 1)"
    loaded = "'torch._dynamo' in sys.modules"
    assert run(f"{begin}\nassert not {loaded}\n{use}\nprint({loaded})") == "True"


@pytest.mark.parametrize(
    "use",
    [
        "from torch_geometric.llm.utils.backend_utils import DataFrame; assert len(DataFrame([(1, 2)])) == 1",
        "from torch_geometric.datasets.tag_dataset import DataFrame as D; import pandas as pd\n"
        "assert isinstance(pd.DataFrame(), D) and D.from_dict({'a': [1]}).shape == (1, 1) and D | None\n"
        "class Own(D): pass\nassert issubclass(Own, pd.DataFrame) and issubclass(Own, D)",
        "import pandas; assert pandas.DataFrame",
        "import pandas.api.types as types; assert types.is_bool(True)",
        "from pandas import DataFrame; assert isinstance(DataFrame([1]), DataFrame)",
    ],
)
def test_pandas_is_there_for_whoever_uses_it(use: str) -> None:
    begin = "import secure_fedgraph, torch_geometric, sys\nassert 'pandas' not in sys.modules"
    assert run(f"{begin}\n{use}\nprint('pandas' in sys.modules)") == "True"


def test_without_pandas_torch_geometric_says_what_is_missing() -> None:
    hide = "import sys; sys.modules['pandas'] = None"
    look = "from torch_geometric.llm.utils import backend_utils; print(backend_utils.DataFrame)"
    assert run(f"{hide}\nimport secure_fedgraph\n{look}") == "None"


def test_a_postponed_module_follows_what_is_replaced_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_for = postponed("colorsys")
    assert stands_for.ONE_THIRD == 1 / 3
    monkeypatch.setattr("colorsys.ONE_THIRD", 0.5)
    assert stands_for.ONE_THIRD == 0.5


def test_a_postponed_module_that_is_missing_says_so_when_it_is_used() -> None:
    stands_for = postponed("no_such_module_anywhere")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        stands_for.anything  # noqa: B018
