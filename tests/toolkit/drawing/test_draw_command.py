"""`graphdbg draw` as a user calls it: formats, options, refusals, renderers that are missing, crash or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps.graph_folder import write_graph_folder
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.store import Run
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.drawing import dot, nodes, picture
from graphdbg.toolkit.drawing.source import of_record

from ...dumps.graphs import chain
from ...dumps.layered import layered
from .svg_boxes import read

HEADS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF", "dot": b"digraph"}


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A case folder of a chain of sines, in the current folder as `case`."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "case"
    write_graph_folder(folder, chain(nodes=8))
    return folder


def bare_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = "") -> None:
    """A PATH that holds nothing but a `dot` that runs a script; not even that without one."""
    folder.mkdir()
    if script:
        (folder / "dot").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "dot").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize("suffix", HEADS)
def test_each_format_is_written_without_dot_on_path(
    case: Path, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare_path(tmp_path / "bin", monkeypatch)
    assert command(["draw", "case", "-o", f"x.{suffix}"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"x.{suffix}\n"
    assert "8 nodes" in printed.err
    assert Path(f"x.{suffix}").read_bytes().startswith(HEADS[suffix])


def test_json_says_what_was_drawn(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["draw", "case", "-o", "x.svg", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    seconds = said.pop("seconds")
    assert 0 < seconds < 60
    assert said.pop("renderer") in ("dot", "pygraphviz")
    assert said.pop("next") == ["graphdbg show case"]
    assert said == {"path": "x.svg", "view": "nodes", "nodes": 8, "boxes": 8, "edges": 7, "clusters": 0, "notes": []}
    content = read(Path("x.svg").read_text())
    assert content.boxes["n1"].texts[0].text == "sin_0"
    assert [shape.texts[0].text for shape in content.labels.values()] == ["f32[2, s0]"] * 7


def test_without_a_name_the_picture_gets_a_free_one(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["draw", "case"]) == 0
    assert command(["draw", "case"]) == 0
    assert capsys.readouterr().out.split() == ["graphdbg-0_0-forward.svg", "graphdbg-0_0-forward-1.svg"]


def test_only_the_neighbourhood_is_drawn(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["draw", "case", "--around", "sin_2", "--hops", "1", "-o", "x.svg", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["view"], said["nodes"]) == ("around", 3)
    boxes = read(Path("x.svg").read_text()).boxes.values()
    assert sorted(box.texts[0].text for box in boxes) == ["sin_1", "sin_2", "sin_3"]


REFUSED = {
    ("--around", "sin_99", "-o", "x.svg"): (2, "no node 'sin_99'"),
    ("--hops", "3", "-o", "x.svg"): (2, "--around NODE"),
    ("--around", "x", "--by-module", "-o", "x.svg"): (2, "Leave one out"),
    ("-o", "x.bmp"): (2, "End the name in one of .svg, .png, .pdf, .dot"),
    ("-o", "plain"): (2, "it has no suffix"),
    ("-o", "there.svg"): (2, "exists already"),
    ("-o", "no/such/folder/x.svg"): (3, "cannot write no/such/folder/x.svg"),
    ("--with-backward", "-o", "x.svg"): (2, "which holds one graph"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_drawn_is_said_in_a_sentence(
    case: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("there.svg").write_text("mine")
    code, sentence = REFUSED[words]
    assert command(["draw", "case", *words]) == code
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.out == ""
    assert Path("there.svg").read_text() == "mine"
    assert sorted(path.name for path in Path().iterdir()) == ["case", "there.svg"]


def test_a_graph_without_a_backward_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["train.py"])).process()
    for graph_id in ("0_0/forward", "1_0/inference"):
        process.save_graph(chain(graph_id))
    process.close()
    for graph_id, sentence in (("0_0/forward", "holds no 0_0/backward"), ("1_0/inference", "its stage is inference")):
        assert command(["draw", f"{tmp_path}/run/{graph_id}", "--with-backward", "-o", f"{tmp_path}/x.svg"]) == 2
        assert sentence in capsys.readouterr().err


def test_a_crashing_dot_is_told_and_the_next_renderer_is_asked(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare_path(tmp_path / "bin", monkeypatch, "kill -SEGV $$")
    assert command(["draw", "case", "-o", "x.svg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["renderer"] == "pygraphviz"
    monkeypatch.setattr(picture.importlib.util, "find_spec", lambda name: None)
    assert command(["draw", "case", "-o", "y.svg"]) == 3
    assert "dot was killed by SIGSEGV" in capsys.readouterr().err
    assert not Path("y.svg").exists()


def test_a_dot_on_path_is_used(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare_path(tmp_path / "bin", monkeypatch, 'echo "<svg>$*</svg>"')
    assert command(["draw", "case", "-o", "x.svg", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["renderer"] == "dot"
    assert Path("x.svg").read_text() == "<svg>-Tsvg</svg>\n"


def test_a_hanging_renderer_is_stopped(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare_path(tmp_path / "bin", monkeypatch, "exec /bin/sleep 100")
    started = time.monotonic()
    assert command(["draw", "case", "-o", "x.svg", "--limit", "0.5"]) == 3
    assert time.monotonic() - started < 20
    assert "needs more than 0.5 s" in capsys.readouterr().err


def test_the_layout_itself_is_stopped_by_the_limit() -> None:
    """Graphviz in the child, on a graph that it needs much longer for."""
    text = dot.source(nodes.whole(of_record(layered(3_000))))
    started = time.monotonic()
    with pytest.raises(picture.LayoutTimeoutError, match="needs more than"):
        picture.rendered(text, "svg", limit_s=1.0)
    assert time.monotonic() - started < 20


def test_no_renderer_at_all_is_said_with_what_to_install(
    case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare_path(tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(picture.importlib.util, "find_spec", lambda name: None)
    assert command(["draw", "case", "-o", "x.svg"]) == 3
    assert "pip install pygraphviz" in capsys.readouterr().err
    assert command(["draw", "case", "-o", "x.dot"]) == 0


def test_a_graph_of_10000_nodes_is_drawn_by_module(large_run: Path, tmp_path: Path) -> None:
    """In a process of its own, without `dot` on PATH; torch is not imported. How long it takes is for the benchmark to
    say."""
    program = (
        "import sys; from graphdbg.cli import run; code = run(sys.argv[1:]); assert 'torch' not in "
        "sys.modules; sys.exit(code)"
    )
    (tmp_path / "bin").mkdir()
    words = [sys.executable, "-c", program, "draw", f"{large_run}/0_0/forward", "-o", "x.svg", "--json"]
    environment: dict[str, Any] = {**os.environ, "PATH": str(tmp_path / "bin")}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "too large to be drawn node by node" in done.stderr
    said = json.loads(done.stdout)
    assert (said["view"], said["renderer"]) == ("by-module", "pygraphviz")
    assert said["nodes"] > 10_000
    assert said["boxes"] <= 150
    assert (tmp_path / "x.svg").stat().st_size < 2e6


def test_a_picture_too_large_for_png_says_that_it_was_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph_folder(tmp_path / "long", chain(nodes=299))
    write_graph_folder(tmp_path / "short", chain(nodes=9))
    for name in ("long", "short"):
        assert command(["draw", name, "-o", f"{name}.png"]) == 0
        assert ("made smaller" in capsys.readouterr().err) is (name == "long")


def test_forward_and_backward_of_a_run_are_drawn_in_one_picture(
    real_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["draw", f"{real_run.path}/0_0/forward", "--with-backward", "-o", "x.svg", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "used by the backward graph" in said["notes"][0]
    frames = read(Path("x.svg").read_text()).frames.values()
    assert {"forward", "backward"} <= {frame.texts[0].text for frame in frames}
