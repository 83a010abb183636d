"""The model card beside an exported model: what it learned from, who read what, and what it is not for."""

from __future__ import annotations

from secure_fedgraph.experiment.schema import AuditResult, RunResult

NOT_FOR = (
    "Decisions about single people or nodes without a person who checks them: the scores above are averages.",
    "Data of another kind, other features or another order of features than the data above.",
    "Any claim of privacy beyond the table above: a unit whose epsilon is `inf` has no bound, and what the "
    "section on exact values names is covered by no epsilon.",
)


def card(run: RunResult, audit: AuditResult | None, form: str, file: str) -> str:
    """The card as Markdown.

    Args:
        run: the run's result.
        audit: of the same folder, where there is one.
        form: what was exported: ``state_dict`` or ``torchscript``.
        file: the name of the exported file.
    """
    config = {key: _cell(value) for key, value in run.config.items()}
    scores = run.accuracy.named()
    lines = [
        f"# Model card: {config['algorithm']} on {config['data']}",
        "",
        f"`{_cell(file)}` is a {form}, written by `secure-fedgraph export`.",
        f"SHA-256 of the run's final state: `{_cell(run.weights)}`.",
        "",
        "## Data",
        "",
        f"{config['data']}, {config['clients']} owners, partition {config['partition']}.",
        f"Source: {_cell(run.data.source)}. Digest: `{_cell(run.data.digest)}`.",
        "",
        "## Training",
        "",
        f"Algorithm {config['algorithm']}, policy {config['policy']}, {len(run.rounds)} rounds, "
        f"seed {_cell(run.seed)}.",
        *([] if run.federated else ["Not federated: this baseline pools all data."]),
        *([f"Form taken under the policy: {_cell(run.form_why)}."] if run.form_why else []),
        "",
        "## Scores",
        "",
        *_table(("score", "last round"), [(key, f"{value:.4f}") for key, value in scores.items()]),
        "",
        f"Scored by: {_cell(run.evaluation.note)}.",
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
                (row.name, str(row.reveal), row.policy, str(row.messages), str(row.epsilon or ""))
                for row in run.channels
            ],
        ),
        *_excess(run),
        "",
        "## Exact values that no epsilon covers",
        "",
        *[f"- {_cell(one)}" for one in run.released_exactly],
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


def _excess(run: RunResult) -> list[str]:
    return [
        f"\n`{_cell(row.name)}` shows more than it declares: {_cell('; '.join(row.excess))}."
        for row in run.channels
        if row.excess
    ]


def _audit(audit: AuditResult | None) -> list[str]:
    if audit is None:
        return ["No audit lies beside this run: what an adversary learns from it was not measured."]
    broken = [f"- Broken claim: {_cell(one)}" for one in audit.broken]
    return [_cell(audit.verdict), *(["", *broken] if broken else [])]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    if not rows:
        return ["None: nothing left a client."]
    made = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return made + [f"| {' | '.join(map(_cell, row))} |" for row in rows]


def _cell(value: object) -> str:
    """A value in a line of Markdown: it ends no cell, begins no line and no tag.

    >>> _cell("a|b\\n# <b>")
    'a\\\\|b # &lt;b>'
    """
    text = " ".join(str(value).split())
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
