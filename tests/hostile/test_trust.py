"""A run is trusted by the id that its recorder left in it and in the state folder; trust by id opens settings alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphdbg.cli import run
from graphdbg.dumps import trust
from graphdbg.dumps.schema import FORMAT, RunRecord
from graphdbg.dumps.writer import RunWriter
from graphdbg.toolkit.isolation import client

SCRIPT = """
    import torch

    def f(x):
        return x.sin() + 1

    print(torch.compile(f)(torch.ones(8)).sum())
    """
GRAPH = ("pid7", "graphs", "0_0", "forward")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "graphdbg" / trust.PLACE


def made(path: Path) -> Path:
    """A run that the user recorded, with a graph's folder."""
    RunWriter.create(path, RunRecord(format=FORMAT, command=["train.py"]), ours=True)
    path.joinpath(*GRAPH).mkdir(parents=True)
    return path


def test_a_run_and_its_graphs_are_ours_wherever_the_folder_is_moved(state: Path, tmp_path: Path) -> None:
    mine = made(tmp_path / "mine")
    assert trust.trusted(mine) and trust.trusted(mine.joinpath(*GRAPH))
    mine.rename(tmp_path / "moved")
    (tmp_path / "link").symlink_to(tmp_path / "moved")
    assert not trust.trusted(mine)
    assert trust.trusted(tmp_path / "moved") and trust.trusted(tmp_path / "link" / Path(*GRAPH))
    assert len([*state.iterdir()]) == 1 and state.stat().st_mode & 0o77 == 0


def copied(mine: Path, other: Path) -> Path:
    shutil.copytree(mine, other)
    return other


def put_back(mine: Path, other: Path) -> Path:
    """The same folder with what came back from elsewhere: its inode is as it was, its mark another file."""
    shutil.copytree(mine, other)
    for entry in [*mine.iterdir()]:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for entry in other.iterdir():
        entry.rename(mine / entry.name)
    return mine


def case_beside(mine: Path, other: Path) -> Path:
    """A case that was unpacked in a run of one's own."""
    (mine / "case").mkdir()
    return mine / "case"


def run_inside(mine: Path, other: Path) -> Path:
    inner = mine / "pid7" / "graphs" / "theirs"
    inner.mkdir()
    (inner / "run.json").write_text("{}")
    return inner


def mark_alone(mine: Path, other: Path) -> Path:
    other.mkdir()
    os.link(mine / trust.MARK, other / trust.MARK)
    return other


def open_to_all(mine: Path, other: Path) -> Path:
    mine.chmod(0o777)
    return mine


def linked_mark(mine: Path, other: Path) -> Path:
    (mine / trust.MARK).rename(other)
    (mine / trust.MARK).symlink_to(other)
    return mine


@pytest.mark.parametrize(
    "way",
    [copied, put_back, case_beside, run_inside, mark_alone, open_to_all, linked_mark],
    ids=lambda way: way.__name__,
)
def test_what_only_looks_like_ours_is_not(state: Path, tmp_path: Path, way: Callable[[Path, Path], Path]) -> None:
    mine = made(tmp_path / "mine")
    assert trust.trusted(mine)
    assert not trust.trusted(way(mine, tmp_path / "other"))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away")
@pytest.mark.parametrize("what", ["run", "mark", "state", "entry"])
def test_what_another_user_owns_is_not(state: Path, tmp_path: Path, what: str) -> None:
    mine = made(tmp_path / "mine")
    [entry] = state.iterdir()
    os.chown({"run": mine, "mark": mine / trust.MARK, "state": state, "entry": entry}[what], 65534, -1)
    assert not trust.trusted(mine)


def test_without_a_state_folder_a_run_is_recorded_and_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, where in enumerate(("/proc/nowhere", str(tmp_path / "file"))):
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_STATE_HOME", where)
        mine = made(tmp_path / f"run{number}")
        assert (mine / "run.json").exists() and not (mine / trust.MARK).exists()
        assert not trust.trusted(mine)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/proc/nobody")
    assert not trust.trusted(made(tmp_path / "homeless"))


def test_ids_whose_folder_is_gone_are_forgotten(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_MOST", 10)
    for number in range(9):
        shutil.rmtree(made(tmp_path / f"gone{number}"))
    kept = [made(tmp_path / f"kept{number}") for number in range(3)]
    assert len([*state.iterdir()]) <= 4
    assert all(map(trust.trusted, kept))
    more = [made(tmp_path / f"more{number}") for number in range(20)]
    assert len([*state.iterdir()]) <= 10
    assert trust.trusted(more[-1]) and not trust.trusted(kept[0])


def test_many_processes_that_record_into_one_run_leave_one_id(state: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from graphdbg.dumps.schema import FORMAT, RunRecord;"
        "from graphdbg.dumps.writer import RunWriter; sys.stdin.read();"
        "RunWriter.create(Path(sys.argv[1]), RunRecord(format=FORMAT, command=[], job='j'), join=True, ours=True)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "run")]
    ranks = [subprocess.Popen(words, stdin=subprocess.PIPE) for _ in range(4)]
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.close()
    assert [rank.wait() for rank in ranks] == [0] * 4
    assert len([*state.iterdir()]) == 1 and trust.trusted(tmp_path / "run")


def test_a_question_is_trusted_where_all_that_it_reads_is(state: Path, tmp_path: Path) -> None:
    mine = made(tmp_path / "mine").joinpath(*GRAPH)
    theirs = copied(tmp_path / "mine", tmp_path / "theirs").joinpath(*GRAPH)
    ours = {"path": str(mine), "seed": 0}
    assert client.trusted(ours) and not client.trusted({"path": str(theirs)})
    assert not client.trusted(ours | {"work": str(theirs)}) and not client.trusted(ours | {"before": str(theirs)})
    assert not client.trusted({}) and client.trusted({"seed": 0}) is None
    assert client.trusted({"path": str(theirs), "imports": [client.TRUST]})


def test_settings_of_ones_own_run_are_in_force_and_those_of_a_copy_or_a_pack_are_not(
    recorded_script: Callable[..., Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine"
    shutil.copytree(recorded_script(SCRIPT), mine)
    (mine / trust.MARK).unlink()
    trust.bind(mine)
    (script := tmp_path / "cxx.sh").write_text(f"#!/bin/sh\ntouch {tmp_path}/RAN\nexit 1\n")
    script.chmod(0o700)
    [graph] = mine.glob("*/graphs/0_0/inference/graph.json")
    document = json.loads(graph.read_bytes())
    document.setdefault("config", {}).setdefault("inductor", {})["cpp.cxx"] = {"tuple": [None, str(script)]}
    graph.write_text(json.dumps(document))
    shutil.copytree(mine, tmp_path / "copy")
    subprocess.run([sys.executable, "-m", "graphdbg", "pack", "mine", "-o", "run.zip"], check=False)
    for other in ("copy", "run.zip"):
        with pytest.raises(SystemExit, match=r"^0$"):
            run(["replay", f"{other}/0_0/inference"])
        assert "judged without inductor.cpp.cxx" in capfd.readouterr().out
        assert not (tmp_path / "RAN").exists()
    with pytest.raises(SystemExit):
        run(["replay", "mine/0_0/inference"])
    assert "judged without" not in capfd.readouterr().out
    assert (tmp_path / "RAN").exists()


def test_the_case_of_a_minification_is_trusted_where_its_graph_was(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    (out / "case").mkdir(parents=True)
    (out / "theirs").mkdir()
    assert not trust.trusted(out / "case")
    trust.bind(out)
    assert trust.trusted(out / "case") and trust.trusted(out / ".work" / "values") and not trust.trusted(out / "theirs")
    copied(out, tmp_path / "copy")
    assert not trust.trusted(tmp_path / "copy" / "case")
