"""Pages that the site has beside the Markdown files in ``docs/`` (a hook of MkDocs).

A page may link to a file of the repository outside ``docs/``. The site has such files too, under
``repository/``: Markdown as it is, Python as a page with the code, anything else to download. A tutorial
(``tutorials/NAME.py``, a notebook in percent format) becomes the page ``tutorials/NAME.md``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?P<before>\]\()(?P<path>[^)\s#:]+)(?P<rest>(?:#[^)\s]*)?\))")
ROLE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):<code>~?(?P<name>[^<]*)</code>")
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")


def on_files(files: Files, config: Any) -> Files:
    """Adds the tutorials and all files of the repository that a page links to."""
    for source in sorted((ROOT / "docs" / "tutorials").glob("*.py")):
        text = notebook_page(source.read_text(encoding="utf-8"), source.name)
        files.append(File.generated(config, f"tutorials/{source.stem}.md", content=text))
    waiting = [(file.src_uri, file.content_string) for file in files if file.is_documentation_page()]
    while waiting:
        page, text = waiting.pop()
        for target in sorted(outside(page, text)):
            name = site_path(target)
            if files.get_file_from_path(name) is None:
                added = as_page(target)
                files.append(File.generated(config, name, content=added))
                if target.endswith(".md"):
                    waiting.append((name, added))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files outside ``docs/`` lead to their pages; a table after a comment gets its blank line."""
    return relinked(
        page.file.src_uri, re.sub(r"^(<!--.*-->)\n(?=\S)", r"\1\n\n", markdown, flags=re.MULTILINE)
    )


def on_page_content(html: str, **_: Any) -> str:
    """Sphinx roles of docstrings become code."""
    return ROLE.sub(lambda role: f"<code>{role['name'].rpartition('.')[2]}</code>", html)


def in_repository(page: str, link: str) -> str:
    """Where a link of a page leads, as a path in the repository."""
    here = page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), link))


def outside(page: str, text: str) -> set[str]:
    """The files of the repository outside ``docs/`` that a page links to."""
    targets = {in_repository(page, link["path"]) for link in LINK.finditer(text)}
    return {one for one in targets if not one.startswith(("docs/", "..")) and (ROOT / one).is_file()}


def site_path(target: str) -> str:
    """The source path, in ``docs/``, of a file of the repository."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return (
        f"repository/{target}.md" if target.endswith(".py") or "." not in target else f"repository/{target}"
    )


def as_page(target: str) -> str:
    """What the site shows of a file outside ``docs/``."""
    text = (ROOT / target).read_text(encoding="utf-8")
    if target.endswith(".py"):
        return f"# {target}\n\n```python\n{text}```\n"
    return text if "." in target else f"# {target}\n\n```text\n{text}```\n"


def relinked(page: str, text: str) -> str:
    """A page's text with links that work on the site."""

    def lead(link: re.Match[str]) -> str:
        target = in_repository(page, link["path"])
        if not (ROOT / target).exists():
            return link[0]
        to = posixpath.relpath(site_path(target), posixpath.dirname(page) or ".")
        if re.fullmatch(r"docs/tutorials/\w+\.py", target):
            to = to.removesuffix(".py") + ".md"
        return f"{link['before']}{to}{link['rest']}"

    return LINK.sub(lead, text)


def notebook_page(text: str, name: str) -> str:
    """A notebook in percent format as Markdown: text as text, code as blocks."""
    parts = []
    for cell in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        mark, _, body = cell.partition("\n")
        body = body.strip("\n")
        if mark.strip() == "[markdown]":
            parts.append("\n".join(line.removeprefix("#").removeprefix(" ") for line in body.splitlines()))
        elif body:
            parts.append(f"```python\n{body}\n```")
    parts.append(
        f'---\n\nThis page is a notebook: <a href="{name}" download>{name}</a> (a script with cells).'
    )
    return "\n\n".join(parts) + "\n"
