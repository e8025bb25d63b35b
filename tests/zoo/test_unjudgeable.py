"""Runs with something that cannot be judged: no command says of them that nothing fails, and none exits 0.

A row of RUNS is a script, what is broken in the copy of its run, and the options of the commands. What cannot be judged
is no failure either: the code is 2, 3 or 4.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from graphdbg.cli import run as command

PLAIN = """
    import torch
    torch.manual_seed(0)
    words, layer = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 2)
    with torch.no_grad():
        torch.compile(lambda x: layer(words(x)).relu())(torch.tensor([1, 2, 3]))
    """
TWO = PLAIN + "    torch.compile(lambda x: x.exp().sum(0))(torch.rand(3, 2))\n"
OPERATOR = """
    import torch
    {guard}
    @torch.library.custom_op("zoo_gone::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        {body}
    @twice.register_fake
    def _(x): return torch.empty_like(x)
    if __name__ == "__main__":
        torch.compile(lambda x: twice(x) + 1)(torch.rand(6))
    """
UNREGISTERED = OPERATOR.format(guard="", body="return x * 2")
BOTH = UNREGISTERED.rstrip() + "\n        torch.compile(lambda x: x.exp().sum(0))(torch.rand(3, 2))\n"
SUBCLASS = """
    import torch
    ragged = torch.nested.nested_tensor([torch.rand(2, 4), torch.rand(3, 4)], layout=torch.jagged)
    torch.compile(lambda x: (x * 2).sin())(ragged)
    """
FLOAT32 = """
    import torch
    library = torch.library.Library("zoo_float", "DEF")
    library.define("rounded(Tensor x) -> Tensor")
    def rounded(x):
        if x.dtype != torch.float32:
            raise NotImplementedError("float32 alone")
        return x * 3
    library.impl("rounded", rounded, "CPU")
    library.impl("rounded", lambda x: torch.empty_like(x), "Meta")
    """
NO_REFERENCE = (
    FLOAT32
    + """
    torch.compile(lambda x: torch.ops.zoo_float.rounded(x).softmax(-1).sum())(torch.rand(4, 9))
    """
)
ALL = ("triage", "replay", "check", "minify")


@dataclass(frozen=True)
class Broken:
    """One row. `modules`: files written beside the run; `commands`: those that have to judge what is broken."""

    name: str
    script: str
    damage: Callable[[Path], None] | None = None
    flags: tuple[str, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    inputs: str = "index"
    commands: tuple[str, ...] = ALL


def _graphs(run: Path) -> list[Path]:
    return [path for path in run.rglob("graph.json*") if path.is_file()]


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()


def _write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def _each(change: Callable[[str], str], only: str = "") -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        results = [path for path in _graphs(run) if only in str(path)]
        assert results
        for path in results:
            _write(path, change(_text(path)))

    return damage


def _newer(text: str) -> str:
    return json.dumps({**json.loads(text), "format": 999})


def _no_operator(text: str) -> str:
    changed = re.sub(r'"[\w.]+\.embedding(\.default)?"', '"os.system"', text)
    assert changed != text
    return changed


def _without_storages(run: Path) -> None:
    shutil.rmtree(run / "tensors")


def _cut_storages(run: Path) -> None:
    for path in (run / "tensors").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:20])


def _no_graphs(run: Path) -> None:
    for path in _graphs(run):
        path.unlink()


def _newer_run(run: Path) -> None:
    (run / "run.json").write_text(_newer((run / "run.json").read_text()))


def _first_cut(run: Path) -> None:
    _each(lambda text: text[: len(text) // 2], "/0_0/")(run)


RUNS = (
    Broken("an operator that is not registered", UNREGISTERED),
    Broken("one of two graphs with such an operator", BOTH, commands=("triage", "replay", "check")),
    Broken(
        "an operator whose import lacks it",
        UNREGISTERED,
        flags=("--import", "other"),
        modules=(("other.py", "x = 1\n"),),
    ),
    Broken(
        "an import with a syntax error", UNREGISTERED, flags=("--import", "wrong"), modules=(("wrong.py", "def (:\n"),)
    ),
    Broken(
        "an imported module that raises",
        UNREGISTERED,
        flags=("--import", "raises"),
        modules=(("raises.py", "1 / 0\n"),),
    ),
    Broken("an imported module that is not there", UNREGISTERED, flags=("--import", "nowhere_to_be_found")),
    Broken("truncated graphs", PLAIN, _each(lambda text: text[: len(text) // 2])),
    Broken("one truncated graph of two", TWO, _first_cut, commands=("triage", "replay", "check")),
    Broken("graphs that are no JSON", PLAIN, _each(lambda text: "no graph")),
    Broken("a newer format of graphs", PLAIN, _each(_newer)),
    Broken("a newer format of the run", PLAIN, _newer_run),
    Broken("graphs whose file is gone", PLAIN, _no_graphs),
    Broken("inputs whose storage is gone", PLAIN, _without_storages, inputs="first"),
    Broken("inputs whose storage is cut", PLAIN, _cut_storages, inputs="first"),
    Broken("a target that is no operator", PLAIN, _each(_no_operator)),
    Broken(
        "an operator without float64",
        NO_REFERENCE,
        flags=("--import", "float_only"),
        modules=(("float_only.py", FLOAT32),),
        commands=("triage", "replay"),
    ),
    Broken("no time", TWO, flags=("--max-time", "0.001"), commands=("triage",)),
    Broken("graphs with a subclass", SUBCLASS, commands=("triage", "replay", "check")),
)
HEALTHY = re.compile(r"[Nn]o graph (of \S+ )?fails|does not fail|^OK\b", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("row", RUNS, ids=[row.name for row in RUNS])
def test_nothing_is_said_to_be_well(
    row: Broken, recorded_script: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = recorded_script(textwrap.dedent(row.script), inputs=row.inputs)
    shutil.copytree(recorded, tmp_path / "broken")
    for name, text in row.modules:
        (tmp_path / name).write_text(textwrap.dedent(text))
    if row.damage is not None:
        row.damage(tmp_path / "broken")
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name in row.commands:
        words = [name, "broken", *row.flags, *(("--max-time", "60") if name == "minify" else ())]
        code, text = said(words)
        if code not in (2, 3, 4) or HEALTHY.search(text):
            wrong.append(f"graphdbg {' '.join(words)}: code {code}\n{text[-900:]}")
    assert not wrong, "\n".join(wrong)


def said(words: list[str]) -> tuple[int, str]:
    """Exit code, and what is printed: judgements on stdout, and errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = command(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 70
    return code, f"{out.getvalue()}\n{err.getvalue()}"
