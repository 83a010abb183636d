"""Prints ``docs/who_sees_what.md``: what each reader sees of each channel, by algorithm and policy.

python docs/who_sees_what.py > docs/who_sees_what.md
"""

from __future__ import annotations

import warnings

from secure_fedgraph import policies
from secure_fedgraph.algorithm import Algorithm
from secure_fedgraph.algorithms import ALGORITHMS
from secure_fedgraph.errors import SecureFedGraphError
from secure_fedgraph.forms import fit, sent
from secure_fedgraph.privacy.bound import Bound
from secure_fedgraph.privacy.policy import Policy
from secure_fedgraph.protocol.channel import Reveal

CLIENTS = tuple("abcdef")
NOISE = {"norm": 1.0, "multiplier": 1.0}
POLICIES: dict[str, Policy] = {
    "plaintext": policies.plaintext(),
    "masked": policies.masked(),
    "homomorphic": policies.homomorphic(),
    "strictest": policies.strictest(),
    "local_dp": policies.local_dp(**NOISE),
    "distributed_dp": policies.distributed_dp(**NOISE),
    "central_dp": policies.central_dp(**NOISE),
}
HEAD = """# Who sees what

What a reader sees of each channel under each policy, as the code binds it: `python docs/who_sees_what.py`
writes this page, and a test holds it to the code. Settings are the defaults; a policy may take [another
form](policies.md#forms) of an algorithm, which is then named.

- **each**: every owner's upload by itself; **sum**: only the sum over the owners that took part;
- **noised**: with noise in it, so that an epsilon may be finite ([units and readers](guarantees.md)); *by the
  server*: added by the server, which saw what was before it;
- **sealed**: no one but the owner that is meant reads it, not even the server that carries it;
- **refused**: no protection of this policy binds to it, so the run does not start; *`--allow-plaintext`*: it
  starts only with that flag.

What a sum shows beyond its purpose is on [the page of sharp edges](sharp_edges.md), and in each result
(`excess`).
"""


def page() -> str:
    """The page's text."""
    lines = [HEAD]
    for name, kind in sorted(ALGORITHMS.items()):
        if not kind.pools and (table := rows(kind())):
            lines += [f"## {name}", "", *table, ""]
    return "\n".join(lines).rstrip() + "\n"


def rows(algorithm: Algorithm) -> list[str]:
    """A table with a line for each policy and a column for each channel; nothing where nothing is sent."""
    cells: dict[str, dict[str, str]] = {}
    forms: dict[str, str] = {}
    for name, policy in POLICIES.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = fit(algorithm, policy, CLIENTS, allow_plaintext=True)
                bound = policy.bind(sent(fitted), CLIENTS)
        except SecureFedGraphError:
            continue
        cells[name] = {}
        forms[name] = "" if fitted.form is None else f"`{fitted.form}`"
        for channel, one in bound.bounds.items():
            reader = "the server" if one.channel.to == "server" else "other owners"
            open_only = name == "strictest" and one.unprotected
            flag = " (`--allow-plaintext`)" if open_only else ""
            cells[name][f"`{channel}`, read by {reader}"] = cell(one) + flag
    channels = list(dict.fromkeys(channel for mine in cells.values() for channel in mine))
    if not channels:
        return []
    heads = ["policy", *channels, *(["form"] if any(forms.values()) else [])]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name in POLICIES:
        mine = cells.get(name)
        told = ["refused" if mine is None else mine.get(channel, "not sent") for channel in channels]
        form = [forms.get(name, "")] if any(forms.values()) else []
        lines.append("| " + " | ".join([f"`{name}`", *told, *form]) + " |")
    return lines


def cell(bound: Bound) -> str:
    """What the reader sees, in a few words."""
    noises = [noise for stage in bound.stages if (noise := stage.noise())]
    each = bound.channel.reveal is Reveal.EACH or bound.carrier.gives.readable
    what = "kept at home" if bound.channel.kept else "each" if each else "sum"
    if bound.channel.to == "peer" and bound.carrier.gives.value in ("sealed", "masked", "cipher"):
        what += ", sealed"
    if noises:
        by_server = all("server" not in [reader.value for reader in noise.against] for noise in noises)
        what += ", noised by the server" if by_server else ", noised"
    return what


if __name__ == "__main__":
    print(page(), end="")
