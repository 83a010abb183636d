"""Writes the tables of ``docs/cheat_sheet.md``: algorithm by channel by policy, who sees what.

    python benchmarks/cheat_sheet.py [--check]

Nothing is trained. Each algorithm is fitted and bound to each policy as a run does before round 1, among ten
clients; a policy of noise gets a clip and a noise multiplier of 1. The cells are read off the bound
protections. ``--check`` writes nothing, and ends with status 1 where the page has other tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from written_pages import line, options, with_part, write_or_check

from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.core.channel import Channel, Domain, Recipient, Reveal
from secure_fedgraph.core.errors import Refused
from secure_fedgraph.core.protection.bound import Bound
from secure_fedgraph.core.protection.gaussian import Gaussian
from secure_fedgraph.forms import fit, sent
from secure_fedgraph.privacy.policies import RECIPES, needs_multiplier
from secure_fedgraph.privacy.policy import PlaintextWarning

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cheat_sheet.md"
SERVER, CHANNELS = (
    "<!-- the server, by benchmarks/cheat_sheet.py -->",
    "<!-- channels, by benchmarks/cheat_sheet.py -->",
)
POLICIES = (
    "plaintext", "central_dp", "local_dp", "masked", "homomorphic", "distributed_dp", "sealed", "strictest",
)  # fmt: skip
CLIENTS = tuple(f"owner-{number}" for number in range(10))
REFUSED, ALONE, ABSENT = "refused", "nothing is sent", ""
MOST_FIRST = ("each", "each, clipped", "each, noised", "sum, values", "sum", "sum, noised", "sizes", ALONE)
"""What a server sees, most first."""
Cells = dict[tuple[str, str], dict[str, str]]
"""``(channel's name, what it declares)`` -> policy -> what is seen."""
Made = tuple[dict[str, str], Cells]
"""Policy -> what the server sees of all channels, and the channels' cells."""


def server_sees(bound: Bound) -> str:
    """What the server can read of one channel's uploads."""
    noise = [stage for stage in bound.protection.stages if isinstance(stage, Gaussian)]
    match bound.carrier.gives:
        case Domain.SEALED:
            return "sizes"
        case Domain.MASKED:
            return "sum, noised" if noise else "sum"
        case Domain.CIPHER:
            return "sum, values" if bound.channel.reveal is Reveal.VALUES else "sum"
        case _ if any(stage.by == "client" for stage in noise):
            return "each, noised"
        case _:
            return "each, clipped" if noise else "each"


def cell(bound: Bound) -> str:
    """The same, behind what a peer reads where a peer is the reader."""
    server = server_sees(bound)
    if bound.channel.to != Recipient.PEER:
        return server
    noised = ", noised" if any(isinstance(stage, Gaussian) for stage in bound.protection.stages) else ""
    only_sum = bound.channel.reveal is Reveal.SUM and "masked" in bound.protection.name
    return f"{'sum' if only_sum else 'each'}{noised}; {server}"


def of(name: str) -> Made:
    """What is seen of one algorithm under every policy."""
    worst: dict[str, str] = {}
    cells: Cells = {}
    for policy_name in POLICIES:
        amounts = dict.fromkeys(("norm", "multiplier"), 1.0) if needs_multiplier(policy_name) else {}
        policy = RECIPES[policy_name](**amounts)
        try:
            fitted = fit(ALGORITHMS[name](), policy, CLIENTS)
            bounds = policy.bind(sent(fitted), CLIENTS).bounds
        except Refused:
            worst[policy_name] = REFUSED
            continue
        star = "" if fitted.form is None else " \\*"
        seen = [server_sees(bound) for bound in bounds.values()]
        worst[policy_name] = min(seen, key=MOST_FIRST.index, default=ALONE) + star
        for bound in bounds.values():
            row = cells.setdefault((bound.channel.name, reader_and_unit(bound.channel)), {})
            row[policy_name] = cell(bound)
    for row in cells.values():
        for policy_name in POLICIES:
            row.setdefault(policy_name, REFUSED if worst[policy_name] == REFUSED else ABSENT)
    return worst, cells


def reader_and_unit(channel: Channel) -> str:
    """What the algorithm asks for: who reads, what is needed, and whose data one row is."""
    needs = {
        Reveal.SUM: "sum",
        Reveal.EACH: "each",
        Reveal.VALUES: "values",
    }
    article = "an" if channel.unit[0] in "aeiou" else "a"
    return f"{channel.to}, {needs[channel.reveal]}, of {article} {channel.unit}"


def alike(names: list[str]) -> str:
    """Names that share a row."""
    return ", ".join(f"`{name}`" for name in names)


def tables() -> tuple[list[str], list[str]]:
    """The table of what the server sees, and that of the channels."""
    found = {name: of(name) for name, kind in ALGORITHMS.items() if not kind.pools}
    heads = [f"`{name}`" for name in POLICIES]
    server = [line("algorithm", *heads), line(*["---"] * (1 + len(heads)))]
    for names in _groups(found, lambda made: repr(made[0])):
        server.append(line(alike(names), *(found[names[0]][0][policy] for policy in POLICIES)))
    alike_rows: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for names in _groups(
        found, lambda made: repr([(key, sorted(row.items())) for key, row in made[1].items()])
    ):
        for (channel, declared), row in found[names[0]][1].items():
            needs, _, unit = declared.rpartition(", ")
            cells = (needs, *(row[policy] for policy in POLICIES))
            about = f"`{channel}` ({unit.rpartition(' ')[2]}"
            alike_rows.setdefault(cells, {}).setdefault(about, []).extend(names)
    channels = [line("declared", *heads, "channels"), line(*["---"] * (2 + len(heads)))]
    for cells, told in alike_rows.items():
        who = "; ".join(f"{about}: {alike(names)})" for about, names in told.items())
        channels.append(line(*cells, who))
    return server, channels


def _groups(found: dict[str, Made], rows: Callable[[Made], str]) -> Iterable[list[str]]:
    """The algorithms that have the same rows, together."""
    groups: dict[str, list[str]] = {}
    for name, made in found.items():
        groups.setdefault(rows(made), []).append(name)
    return groups.values()


def page() -> str:
    """The page as the code makes it."""
    server, channels = tables()
    text = with_part(PAGE.read_text(encoding="utf-8"), SERVER, server)
    return with_part(text, CHANNELS, channels)


if __name__ == "__main__":
    asked = options(__doc__, rows=False, page=True)
    warnings.simplefilter("ignore", PlaintextWarning)
    write_or_check(PAGE, page(), asked.parse_args().check)
