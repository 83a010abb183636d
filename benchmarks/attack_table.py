"""Every attack with nothing against it, and with what is meant to stop it.

    python benchmarks/attack_table.py [--only mashes] [--seeds 3] [--out runs/attacks] [--json]
    python benchmarks/attack_table.py --defences [--only weights] [--seeds 3] [--out runs/attacks] [--json]

``attack_cases.toml`` says what is run. Runs are kept and not repeated, so it can be stopped at any time.
"Asked" is what an attack has to reach in the settings of its control (``list attacks --json``). Defaults are
the papers', but for a case's rounds and changes. A defence is put on top of the settings in which its attacks
succeed: "single owners" is the attack itself, "what is left" its second aim, what the defence still shows.
"""

from __future__ import annotations

import json
import math
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from written_pages import options, show

from secure_fedgraph.attacks import ATTACKS
from secure_fedgraph.audits.grid import choices, grid
from secure_fedgraph.experiment.config import load
from secure_fedgraph.experiment.schema.score_verdict import RESIDUAL, SINGLE_OWNERS

WRITTEN = tomllib.loads(Path(__file__).with_name("attack_cases.toml").read_text(encoding="utf-8"))
GUESS = "guess"
"""What an attack has to exceed where no score is named."""
SHOWN = {
    "attacks": (
        "attack",
        "adversary",
        "settings",
        "figure",
        "asked",
        "reached",
        "score",
        "trivial",
        "defaults",
    ),
    "defences": ("defence", "attack", "adversary", "aim", "figure", "score", "trivial", "leaks", "otherwise"),
}


@dataclass(frozen=True)
class Asked:
    """What an attack has to reach.

    Args:
        attack: its id.
        settings: the control's name.
        least: of the score, or of ``detail``; ``guess``: beyond every trivial guess.
        detail: a figure beside the score.
        adversary, aim: whose cell is read.
    """

    attack: str
    settings: str = choices.AS_CONFIGURED
    least: float | str = 0.999
    detail: str = ""
    adversary: str = "server"
    aim: str = SINGLE_OWNERS


@dataclass(frozen=True)
class Case:
    """Attacks that share their runs.

    Args:
        name: what ``--only`` looks for.
        config: the experiment, its policy included.
        changes: settings over it.
        asked: what the attacks have to reach where nothing stops them.
        against: attacks that a defence stops, each with the adversary that it is stopped for.
    """

    name: str
    config: Mapping[str, Any]
    changes: tuple[str, ...]
    asked: tuple[Asked, ...] = ()
    against: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Case:
        """As the file has it."""
        under = control(*written["control"]) if "control" in written else ()
        return cls(
            written["name"],
            written["run"],
            (*under, *written.get("changes", ())),
            tuple(Asked(**one) for one in written.get("asked", ())),
            tuple((attack, adversary) for attack, adversary in written.get("against", ())),
        )


def control(attack: str, number: int = 0) -> tuple[str, ...]:
    """The settings under which an attack succeeds where nothing protects."""
    settings = ATTACKS[attack].controls[number].settings
    return tuple(f"{key}={json.dumps(value)}" for key, value in settings.items())


CASES, DEFENCES = ([Case.read(one) for one in WRITTEN[kind]] for kind in ("attacks", "defences"))


def run(case: Case, seeds: int, out: Path) -> list[dict[str, Any]]:
    """The cells of a case, those of runs that a defence stopped among them."""
    names = [one.attack for one in case.asked] or [attack for attack, _ in case.against]
    kinds = list(dict.fromkeys(ATTACKS[name] for name in names))
    # an active attack's control has who plays it after the name
    controls = sorted(
        one.name
        for kind in kinds
        for one in kind.controls
        if any(
            asked.settings == one.name or asked.settings.startswith(f"{one.name}, ") for asked in case.asked
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing protects it is the point
        found = grid.audit(
            load(None, case.config, list(case.changes)),
            [case.config["policy"]],
            kinds,
            range(seeds),
            out / case.name,
            controls=list(dict.fromkeys(controls)),
            effort=60,
            workers=1,
        )
    stopped = [
        {**row, "outcome": "run", "settings": {"aim": aim}}
        for row in found.not_run
        for aim in (SINGLE_OWNERS, RESIDUAL)
    ]
    return [*found.cells, *(stopped if case.against else ())]


def _of(cells: Sequence[Mapping[str, Any]], *key: str) -> list[Mapping[str, Any]]:
    return [c for c in cells if (c["attack"], c["adversary"], c["settings"]["aim"]) == key]


def rows(case: Case, cells: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row for each score that was asked for, or for each attack and aim that a defence is against."""
    yield from (_reaches(asked, _of(cells, asked.attack, asked.adversary, asked.aim)) for asked in case.asked)
    for attack, adversary in case.against:
        for aim in (SINGLE_OWNERS, RESIDUAL):
            mine = _of(cells, attack, adversary, aim)
            scored = [c for c in mine if c["outcome"] == "score"]
            others = {f"{c['outcome']}: {c['reason']}" for c in mine if c["outcome"] != "score"}
            yield {
                "defence": case.name,
                "attack": attack,
                "adversary": adversary,
                "aim": aim,
                "figure": next((c["metric"] for c in scored), ""),
                "score": [c["score"] for c in scored],
                "trivial": [c["baseline"] for c in scored],
                "leaks": [bool(c["leaks"]) for c in scored],
                "otherwise": sorted(others),
            }


def _reaches(asked: Asked, mine: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What an attack reaches in its control, and what the configured run gives beside it."""
    here = [c for c in mine if c["settings"]["variant"] == asked.settings]
    default = [c for c in mine if c["settings"]["variant"].startswith(choices.AS_CONFIGURED)]
    got = [value for c in here if (value := _figure(c, asked)) is not None]
    return {
        "attack": asked.attack,
        "adversary": asked.adversary,
        "settings": asked.settings,
        "figure": asked.detail or next((c["metric"] for c in here if c["metric"]), ""),
        "asked": None if asked.least == GUESS else asked.least,
        "score": got,
        "interval": [(c["low"], c["high"]) for c in here if c["outcome"] == "score"],
        "trivial": [c["baseline"] for c in here if c["baseline"] is not None],
        # in band there is none of the joint model on everybody's test nodes
        "accuracy": [c["accuracy"].get("global") for c in here if c["outcome"] == "score"],
        "reached": bool(got) and len(got) == len(here) and _reached(asked, here, fmean(got)),
        "defaults": [_figure(c, asked) for c in default if c["outcome"] == "score"],
        "otherwise": sorted({c["reason"] for c in (*here, *default) if c["outcome"] != "score"}),
        "seconds": max((c["seconds"] or 0.0 for c in here), default=0.0),
    }


def _figure(cell: Mapping[str, Any], asked: Asked) -> float | None:
    if cell["outcome"] != "score":
        return None
    figure: float | None = cell["details"].get(asked.detail) if asked.detail else cell["score"]
    return figure


def _reached(asked: Asked, cells: Sequence[Mapping[str, Any]], mean: float) -> bool:
    if isinstance(asked.least, str):
        return all(cell["leaks"] for cell in cells)
    if asked.detail == "slope":  # of a square root: as little below as above
        return asked.least <= mean <= asked.least + 0.1
    return mean >= asked.least


def told(values: Sequence[float | None]) -> str:
    """A mean with its deviation over seeds."""
    numbers = [v for v in values if v is not None and not math.isnan(v)]
    if not numbers:
        return "-"
    spread = f" ± {stdev(numbers):.3f}" if len(numbers) > 1 else ""
    return f"{fmean(numbers):.3f}{spread}"


def main() -> None:
    """Runs what is asked for, and prints the table."""
    parser = options(__doc__)
    parser.add_argument("--defences", action="store_true", help="attacks against what should stop them")
    parser.add_argument("--only", default="", help="a part of a case's name")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/attacks"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    for case in (c for c in (DEFENCES if given.defences else CASES) if given.only in c.name):
        mine = list(rows(case, run(case, given.seeds, given.out)))
        (given.out / f"{case.name}.json").write_text(json.dumps(mine))
        found += mine
    show(found, given.json, SHOWN["defences" if given.defences else "attacks"])


if __name__ == "__main__":
    main()
