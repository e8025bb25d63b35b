"""What the site has that no file of docs/ holds: its first page is README, CONTRIBUTING and the like are pages, and the
sample is the run of the tour, packed as one page for a browser."""

from __future__ import annotations

import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
BESIDE = {"CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md", "CHANGELOG.md": "changes.md"}
"""Files of the root that are pages -> the page."""


def page_of(name: str) -> str:
    """The text of a file of the root with its links as they are from the site's first page.

    >>> "](start.md)" in page_of("README.md")
    True
    """
    text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    for there, here in BESIDE.items():
        text = text.replace(f"]({there})", f"]({here})")
    return text


def sample() -> str:
    """The run of the tour as `graphdbg pack -o page.html` writes it; imports no torch."""
    from graphdbg.dumps.commands.pack import pack
    from graphdbg.tui.screens.tour import RECORDED, RUN

    with tempfile.TemporaryDirectory(prefix="sample-") as folder, zipfile.ZipFile(RECORDED) as archive:
        archive.extractall(folder)
        page = Path(folder) / "page.html"
        pack.main([str(Path(folder) / RUN), "-o", str(page)], standalone_mode=False)
        return page.read_text(encoding="utf-8")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Adds the pages that are made here."""
    for name, page in {"README.md": "index.md", **BESIDE}.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, page, content=page_of(name)))
    files.append(File.generated(config, "sample-run.html", content=sample()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leaves out what is for the tests alone."""
    return re.sub(r"(?m)^(\$ .*?)\s+# exits with \d+$", r"\1", re.sub(r"<!-- not run: .*? -->\n", "", markdown))
