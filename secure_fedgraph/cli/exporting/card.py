"""The model card beside an exported model: what it learned from, who read what, and what it is not for."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader, StrictUndefined

from secure_fedgraph.core.text import printable
from secure_fedgraph.experiment.schema import AuditResult, RunResult
from secure_fedgraph.graph.tables.schema import TableSchema, schema_text

LONGEST = 500
"""Characters of a value that a card shows."""


def card(
    run: RunResult,
    audit: AuditResult | None,
    file: str,
    unchecked: str = "",
    tables: TableSchema | None = None,
) -> str:
    """The card as Markdown, by the template ``card.md.j2``.

    Args:
        run: the run's result.
        audit: of the same folder, where there is one.
        file: the name of the exported file.
        unchecked: what was compared with nothing, and why.
        tables: what the columns of tables mean that the model learned from.
    """
    markdown = Environment(  # no HTML: words are escaped as Markdown, one by one
        loader=PackageLoader("secure_fedgraph.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    markdown.filters |= {"words": _text, "code": _code, "line": lambda line: printable(line, LONGEST)}
    scores = run.accuracy.named().items()
    return markdown.get_template("card.md.j2").render(
        run=run,
        audit=audit,
        file=file,
        unchecked=unchecked,
        tables=tables,
        schema=[] if tables is None else schema_text(tables).splitlines(),
        scores=[(name, f"{value:.4f}") for name, value in scores if value is not None],
        claims=[
            (
                *(unit, one.epsilon, one.delta, one.against, one.relation),
                ", ".join(f"{reader}: {value}" for reader, value in one.readers.items()),
            )
            for unit, one in run.privacy.items()
        ],
        channels=[
            (one.name, one.reveal, one.policy, one.messages, "" if one.epsilon is None else one.epsilon)
            for one in run.channels
        ],
    )


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
