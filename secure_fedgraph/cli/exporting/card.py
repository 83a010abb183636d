"""The model card beside an exported model: what it learned from, who read what, and what it is not for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from secure_fedgraph.core.text import printable
from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.graph.tables.schema import TableSchema, schema_text

LONGEST = 500
"""Characters of a value that a card shows."""
MOST_NAMES = 50
"""Features or classes that a card names."""
MOST_LINES = 400
"""Of a schema that a card shows."""

NOT_FOR = (
    "Decisions about single people or nodes without a person who checks them: the scores above are averages.",
    "Data of another kind, other features or another order of features than the data above.",
    "Any claim of privacy beyond the table above: a unit whose epsilon is `inf` has no bound, and what the "
    "section on exact values names is covered by no epsilon.",
)


def card(
    run: RunResult,
    audit: AuditResult | None,
    form: str,
    file: str,
    unchecked: Sequence[str] = (),
    tables: TableSchema | None = None,
) -> str:
    """The card as Markdown.

    Args:
        run: the run's result.
        audit: of the same folder, where there is one.
        form: what was exported: ``state_dict``, ``torchscript`` or ``onnx``.
        file: the name of the exported file.
        unchecked: what was compared with nothing, each with the reason.
        tables: what the columns of tables mean that the model learned from.
    """
    config = {
        key: _text(run.config.get(key)) for key in ("algorithm", "data", "clients", "partition", "policy")
    }
    scores = {key: value for key, value in run.accuracy.named().items() if value is not None}
    lines = [
        f"# Model card: {config['algorithm']} on {config['data']}",
        "",
        f"{_code(file)} is a {form}, written by `secure-fedgraph export`.",
        f"SHA-256 of the run's final state: {_code(run.weights)}.",
        *[f"Not checked: {_text(one)}." for one in unchecked],
        "",
        "## Data",
        "",
        f"{config['data']}, {config['clients']} owners, partition {config['partition']}.",
        f"Source: {_text(run.data.source)}. Digest: {_code(run.data.digest)}.",
        *_columns("Features, in order", run.data.feature_names, run.data.features),
        *_columns("Outputs, in order", run.data.class_names, run.data.classes),
        "",
        *_preprocessing(tables),
        "## Training",
        "",
        f"Algorithm {config['algorithm']}, policy {config['policy']}, {len(run.rounds)} rounds, "
        f"seed {_text(run.seed)}.",
        *([] if run.federated else ["Not federated: this baseline pools all data."]),
        *([f"Form taken under the policy: {_text(run.form_why)}."] if run.form_why else []),
        "",
        "## Scores",
        "",
        *_table(("score", "last round"), [(key, f"{value:.4f}") for key, value in scores.items()]),
        "",
        f"Scored by: {_text(run.evaluation.note)}.",
        "",
        "## Privacy",
        "",
        *_table(
            ("unit", "epsilon", "delta", "against", "relation", "by reader"),
            [
                (
                    str(unit), str(one.epsilon), str(one.delta), str(one.against), str(one.relation),
                    ", ".join(f"{reader}: {value}" for reader, value in one.readers.items()),
                )
                for unit, one in run.privacy.items()
            ],
        ),
        "",
        "`inf` means that nothing bounds it.",
        "",
        "## Who read what",
        "",
        *_table(
            ("channel", "the reader learns", "policy", "messages", "epsilon"),
            [
                (
                    row.name, str(row.reveal), row.policy, str(row.messages),
                    "" if row.epsilon is None else str(row.epsilon),
                )
                for row in run.channels
            ],
        ),
        *_excess(run),
        "",
        "## Exact values that no epsilon covers",
        "",
        *[f"- {_text(one)}" for one in run.released_exactly],
        "",
        "## Audit",
        "",
        *_audit(audit),
        "",
        "## What it is not for",
        "",
        *[f"- {one}" for one in NOT_FOR],
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _columns(title: str, names: list[str], count: int | None) -> list[str]:
    """What a model takes or gives, by name where the data name it, else how many there are."""
    if not names or (count is not None and len(names) != count):
        return [] if count is None else [f"{title}: {count}, without names."]
    shown = ", ".join(f"{place} {_code(name)}" for place, name in enumerate(names[:MOST_NAMES]))
    more = f" and {len(names) - MOST_NAMES} more, in result.json" if len(names) > MOST_NAMES else ""
    return [f"{title}: {shown}{more}."]


def _preprocessing(tables: TableSchema | None) -> list[str]:
    """The schema as a block of code: every line is indented, so none ends it."""
    if tables is None:
        return []
    lines = schema_text(tables).splitlines()
    more = [f"# and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
    block = [f"    {printable(line, LONGEST)}" for line in [*lines[:MOST_LINES], *more]]
    said = f"Tables become features by this schema, of digest {_code(tables.digest)}:"
    return ["## Tables", "", said, "", *block, ""]


def _excess(run: RunResult) -> list[str]:
    return [
        f"\n{_code(row.name)} shows more than it declares: {_text('; '.join(row.excess))}."
        for row in run.channels
        if row.excess
    ]


def _audit(audit: AuditResult | None) -> list[str]:
    if audit is None:
        return ["No audit of this run lies beside it: what an adversary learns from it was not measured."]
    broken = [f"- Broken claim: {_text(one)}" for one in audit.broken]
    return [f"Verdict: {_text(audit.verdict)}", *(["", *broken] if broken else [])]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return ["None: nothing left a client."]
    made = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return made + [f"| {' | '.join(map(_text, row))} |" for row in rows]


def _text(value: object) -> str:
    """A value as words in a line of Markdown: no markup, no link, no cell's end and no control character.

    >>> _text("a|b\\n# <b>[x](http://y)")
    'a\\\\|b \\\\# &lt;b&gt;\\\\[x\\\\](http:&#47;&#47;y)'
    """
    plain = printable(" ".join(str(value).split()), LONGEST)
    marked = re.sub(r"([\\`*_\[\]#!|])", r"\\\1", plain.replace("&", "&amp;"))
    return marked.replace("<", "&lt;").replace(">", "&gt;").replace("//", "&#47;&#47;")


def _code(value: object) -> str:
    """A value as code: no backtick ends it.

    >>> _code("a`b")
    "`a'b`"
    """
    return f"`{printable(' '.join(str(value).split()), LONGEST).replace('`', chr(39))}`"
