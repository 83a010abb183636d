"""Prints ``docs/api.md``: one entry for each public name, which the site fills from its docstring.

python docs/api.py > docs/api.md
"""

from __future__ import annotations

import secure_fedgraph as sfg

PARTS = {
    "Train, audit, compare": ("federate", "train", "audit", "compare", "Experiment"),
    "What a run gives": ("Run", "Federation", "Schema", "Transcript", "View"),
    "Budgets and drop-outs": ("Budget", "Dropouts", "EarlyStopWarning", "DataWarning", "FormWarning"),
    "Write an algorithm": (
        *("Algorithm", "Settings", "Channel", "Reveal", "Unit", "Upload", "ClientContext", "RoundApi"),
    ),
}


def page() -> str:
    """The page's text."""
    homes = sfg._HOMES
    named = {name for names in PARTS.values() for name in names}
    parts = {**PARTS, "Algorithms": tuple(sorted(set(homes) - named))}
    lines = [
        "# The Python API",
        "",
        "Every public name of `import secure_fedgraph as sfg`. The site fills each entry from the docstring;",
        "in the sources they stand beside the code. `python docs/api.py` writes this page.",
    ]
    for title, names in parts.items():
        lines += ["", f"## {title}"]
        lines += [f"\n::: {target(name)}" for name in names]
    lines += ["", "## Policies", "\n::: secure_fedgraph.privacy.policy.Policy"]
    lines += [f"\n::: {recipe}" for recipe in recipes()]
    lines += ["", "## Errors", "\n::: secure_fedgraph.errors"]
    return "\n".join(lines) + "\n"


def target(name: str) -> str:
    """Where a public name is made, as the site looks it up."""
    made = getattr(sfg, name)
    return f"{made.__module__}.{made.__qualname__}"


def recipes() -> list[str]:
    """The policies' recipes."""
    made = (getattr(sfg.policies, name) for name in sfg.policies.__all__ if name != "Policy")
    return [f"{one.__module__}.{one.__qualname__}" for one in made]


if __name__ == "__main__":
    print(page(), end="")
