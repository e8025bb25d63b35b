"""The pages of docs/errors, one for each code, made of error_pages.txt and of the classes themselves.

    python -m tests.house.error_pages     # writes the pages

>>> meaning(families()["GD06"])
'Nothing of that name is there: no run, graph, case folder or package.'
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from graphdbg.cli import DEFECT_EXIT, INTERRUPTED_EXIT
from graphdbg.dumps.errors import DEFECT, INTERRUPTED, GraphdbgError

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "errors"
TEXTS = Path(__file__).with_suffix(".txt")
HOMES = (
    "dumps.errors",
    "dumps.browse.filter",
    "dumps.program.text",
    "minifier.steering",
    "minifier.demo",
    "minifier.search.problem",
    "toolkit.compilers.lazy_tracing",
    "toolkit.compilers.ts_compile",
    "toolkit.drawing.picture",
    "toolkit.launching.asking",
)
"""Modules that define errors."""
NO_CLASS = {
    INTERRUPTED: ("The command is interrupted.", INTERRUPTED_EXIT),
    DEFECT: ("An error that is graphdbg's own mistake.", DEFECT_EXIT),
}
HEAD = """# Errors

An error ends with a code in brackets. Look it up here, or open the page of that name:

```console
$ graphdbg import nosuch.py   # exits with 2
graphdbg: cannot import nosuch.py: there is no such file [GD17]
```

A code stands for what you have to do, not for one sentence. The exit code of the command is in the last column.

| code | what it means | exits with |
|---|---|---|"""


def classes() -> list[type[GraphdbgError]]:
    """All classes of errors."""
    for home in HOMES:
        import_module(f"graphdbg.{home}")
    known = [GraphdbgError]
    for item in known:
        known += item.__subclasses__()
    return list(dict.fromkeys(known))


def families() -> dict[str, type[GraphdbgError]]:
    """The class that brings each code, in the order of codes. Raises ValueError for a code that two classes bring."""
    known: dict[str, type[GraphdbgError]] = {}
    for kind in classes():
        if code := vars(kind).get("code"):
            if code in known:
                raise ValueError(f"{known[code].__name__} and {kind.__name__} both have the code {code}")
            known[code] = kind
    return dict(sorted(known.items()))


def meaning(family: type[GraphdbgError]) -> str:
    """The first sentence of a class."""
    text = " ".join((family.__doc__ or "").split())
    return text.partition(". ")[0].partition("; `")[0].rstrip(".") + "."


def meanings() -> dict[str, tuple[str, int]]:
    """What each code means, and what the command exits with."""
    known = {code: (meaning(family), family.exit_code) for code, family in families().items()}
    return known | NO_CLASS


def texts() -> dict[str, list[str]]:
    """The lines about each code, the title first."""
    parts = TEXTS.read_text(encoding="utf-8").split("\n== ")[1:]
    return {part[:4]: part[5:].rstrip("\n").split("\n") for part in parts}


def page(code: str) -> str:
    """The text of the page of one code."""
    title, *lines = texts()[code]
    sentence, exits = meanings()[code]
    text: dict[str, list[str]] = {"-": [], ">": [], "|": []}
    prose, fence, shown = "\n".join(lines).partition("```")
    for line in prose.splitlines():
        if line:
            text[line[0]].append(line[2:])
    family = families().get(code)
    raised = f" From Python it is a `{family.__name__}` of `graphdbg.dumps.errors`." if family else ""
    if family is not None and family.__module__ != "graphdbg.dumps.errors":
        raised = f" From Python it is a `{family.__name__}`, a `GraphdbgError`."
    parts = [
        f"# {code}: {title}",
        sentence,
        "\n".join(["```text", *text["|"], "```"]),
        " ".join(text[">"]),
        "## Usual causes",
        "\n".join(f"* {line}" for line in text["-"]),
        *(["## How it looks", (fence + shown).replace("```\n```", "```\n\n```")] if shown else []),
        f"The command exits with {exits}.{raised} [All codes](index.md) · [words](../glossary.md)",
    ]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[Path, str]:
    """What docs/errors has to hold."""
    rows = [f"| [{code}]({code}.md) | {sentence} | {exits} |" for code, (sentence, exits) in sorted(meanings().items())]
    files = {FOLDER / f"{code}.md": page(code) for code in meanings()}
    return files | {FOLDER / "index.md": "\n".join([HEAD, *rows]) + "\n"}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        path.unlink()
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
