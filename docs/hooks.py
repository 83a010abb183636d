"""The site's hooks: what pages link to outside of ``docs/`` becomes a page too.

``mkdocs.yml`` names this module. A link to a module, an example or the README leads to a page under
``files/``, which shows the file as it is.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?P<before>!?\[[^\]]*\]\()(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")
FENCE = re.compile(r"^(```+|~~~+)")
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".sh": "bash", ".json": "json", "": "make"}
OUTSIDE = "files/"


def on_files(files: Files, config: Any) -> Files:
    """Adds a page for each file outside of ``docs/`` that a page links to, and for what these link to."""
    waiting = list(files.documentation_pages())
    texts = [(file.src_uri, Path(str(file.abs_src_path)).read_text(encoding="utf-8")) for file in waiting]
    while texts:
        source, text = texts.pop()
        for path in outside(source, text):
            uri = page_of(path)
            if files.get_file_from_path(uri) is not None:
                continue
            content = shown(path)
            files.append(File.generated(config, uri, content=content))
            texts.append((uri, content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Leads links out of ``docs/`` to the pages of those files."""
    return rewritten(page.file.src_uri, markdown)


def rewritten(source: str, markdown: str) -> str:
    """A page's text with its links as the site has them."""

    def lead(found: re.Match[str]) -> str:
        path = resolved(source, found["target"])
        if path is None:
            return found[0]
        uri = path.removeprefix("docs/") if path.startswith("docs/") else page_of(path)
        target = posixpath.relpath(uri, posixpath.dirname(source) or ".")
        return f"{found['before']}{target}{found['anchor'] or ''}{found['after']}"

    return "".join(part if fenced else LINK.sub(lead, part) for part, fenced in parts(markdown))


def parts(markdown: str) -> list[tuple[str, bool]]:
    """A page's text in order: what stands in fences, where brackets are no links, and what does not."""
    found: list[tuple[str, bool]] = []
    text, fence = "", ""
    for line in markdown.splitlines(keepends=True):
        opening = FENCE.match(line)
        if not fence and opening:
            found.append((text, False))
            text, fence = line, opening[1]
        elif fence and line.startswith(fence):
            found.append((text + line, True))
            text, fence = "", ""
        else:
            text += line
    return [*found, (text, bool(fence))]


def outside(source: str, text: str) -> set[str]:
    """The files outside of ``docs/`` that a page links to, by their paths in the repository."""
    found = (resolved(source, link["target"]) for link in LINK.finditer(text))
    return {path for path in found if path is not None and not path.startswith("docs/")}


def resolved(source: str, target: str) -> str | None:
    """A link's file by its path in the repository; None where it leads to another site or nowhere."""
    if re.match(r"[a-z]+:", target) or target.startswith("/"):
        return None
    of_a_file = source.startswith(OUTSIDE)
    where = source.removeprefix(OUTSIDE).removesuffix(".md") if of_a_file else f"docs/{source}"
    path = posixpath.normpath(posixpath.join(posixpath.dirname(where), target))
    if path.startswith("..") or not (ROOT / path).exists():
        return None
    return path


def page_of(path: str) -> str:
    """The page under which a file is shown."""
    return f"{OUTSIDE}{path}.md"


def shown(path: str) -> str:
    """A file as a page: Markdown as it is, code in a fence, a folder as its list."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(one.name for one in file.iterdir() if one.suffix in (".py", ".md", ".json"))
        return f"# {path}/\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f"# {path}\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{text}````\n"
