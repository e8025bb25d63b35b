"""Writing a run and opening it again: nothing is overwritten, several processes share a folder, the rest is lazy."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from graphdbg.dumps.atomic import free_path, new_folder, write_file
from graphdbg.dumps.errors import EnvironmentLackError, RefusedError, UnreadableError, UsageError
from graphdbg.dumps.graph_folder import JOURNAL_FILE, write_graph_folder
from graphdbg.dumps.journal import read
from graphdbg.dumps.schema import FORMAT, InputRecord, InputsRecord, RunRecord
from graphdbg.dumps.store import Run, SavedGraph, load_graph, open_run, resolve, resolve_graph
from graphdbg.dumps.worst import FILE, keep
from graphdbg.dumps.writer import RunWriter

from .graphs import chain, new_run, stored_chain

RECORD = RunRecord(format=FORMAT, command=["train.py"])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    record, tensors = stored_chain(process.unique_id("0/0", "forward"))
    path = process.save_graph(record, tensors)
    assert path == tmp_path / "run" / process.name / "graphs/0_0/forward"
    saved = open_run(tmp_path / "run").graph("0_0/forward")
    assert saved.record == record
    assert bytes(saved.tensors.get(record.graph.attrs["w"].storage)) == bytes(range(16))
    assert (saved.id, saved.stage, saved.status, saved.error, saved.seconds) == (
        "0_0/forward",
        "forward",
        "captured",
        None,
        None,
    )
    assert saved.inputs_record is None
    assert saved.code_files() == []


def test_saving_what_was_loaded_gives_the_same_bytes(tmp_path: Path) -> None:
    write_graph_folder(tmp_path / "one", chain())
    write_graph_folder(tmp_path / "two", load_graph(tmp_path / "one").record)
    for name in ("graph.json", "graph.py", "table.msgpack"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_inputs_code_and_amendments(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    record = chain(process.unique_id("0/0", "forward"))
    process.save_graph(record)
    process.save_inputs(record.id, InputsRecord(format=FORMAT, inputs=[InputRecord("x", "user")]))
    process.save_code(record.id, {"output_code.py": "x = 1\n", "triton_poi_0.py": "y = 2\n"})
    record.compile_kwargs = {"is_backward": False}
    process.amend(record)
    saved = open_run(tmp_path / "run").graph("0_0/forward")
    assert saved.record.compile_kwargs == {"is_backward": False}
    assert saved.inputs_record is not None
    assert saved.inputs_record.inputs[0].role == "user"
    assert [path.name for path in saved.code_files()] == ["output_code.py", "triton_poi_0.py"]
    with pytest.raises(UnreadableError, match="only letters"):
        process.save_code(record.id, {"../../evil.py": ""})
    with pytest.raises(UsageError, match="save the graph first"):
        process.save_code("5_0/forward", {"a.py": ""})


def test_a_program_is_written_late_and_told_before(tmp_path: Path) -> None:
    run, process = new_run(tmp_path / "run")
    record = chain(process.unique_id("0/0", "forward"))
    path = process.save_graph(record) / "graph.py"
    early = open_run(run.path).graph("0_0/forward").program()
    assert early.startswith('"""Graph 0_0/forward') and not path.exists()
    process.write_programs()
    process.close()
    assert open_run(run.path).graph("0_0/forward").program() == early == path.read_text()
    process.amend(record)
    assert not path.exists(), "it is another graph now"
    run.unite(programs=False)
    assert not path.exists()
    run.unite()
    assert path.read_text() == early


def test_a_graph_without_a_program_is_noted(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    record = chain(process.unique_id("0/0", "forward"))
    record.graph.nodes[-2].target = "opaque:a function"
    process.save_graph(record)
    process.write_programs()
    notes = [event for event in read(process.path / JOURNAL_FILE).events if event.kind == "note"]
    assert [event.graph for event in notes] == ["0_0/forward"]
    assert "no graph.py: " in notes[0].fields["message"]
    with pytest.raises(RefusedError):
        open_run(tmp_path / "run").graph("0_0/forward").program()


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run", RECORD)
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(UsageError, match="never overwritten"):
        RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["other.py"]))
    joined = RunWriter.create(tmp_path / "run", RunRecord(format=FORMAT, command=["other.py"]), join=True)
    assert joined.record == RECORD
    assert (tmp_path / "run/run.json").read_bytes() == before
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").touch()
    with pytest.raises(UsageError, match="not empty"):
        RunWriter.create(tmp_path / "code", RECORD, join=True)
    with pytest.raises(UsageError, match="it is a file"):
        RunWriter.create(tmp_path / "code/train.py", RECORD)


def test_a_graph_is_never_overwritten(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain())
    with pytest.raises(UsageError, match="exists already"):
        process.save_graph(chain(nodes=9))
    assert process.unique_id("0/0", "forward") == "0_0/forward.1", "an id that was saved is taken"


def test_ids_count_from_the_second_graph_of_a_stage(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    text = [process.unique_id("0/0", "forward") for _ in range(3)] + [process.unique_id("0/0_1", "forward")]
    assert text == ["0_0/forward", "0_0/forward.1", "0_0/forward.2", "0_0_a1/forward"]
    assert [process.unique_id(None, "inference") for _ in range(2)] == ["x0_0/inference", "x1_0/inference"]
    shared = process.fresh_compile()
    assert [process.unique_id(shared, stage) for stage in ("joint", "forward")] == ["x2_0/joint", "x2_0/forward"]


def test_threads_get_different_ids_and_save_at_once(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")

    def save() -> None:
        for _ in range(5):
            record, tensors = stored_chain(process.unique_id("0/0", "forward"))
            process.save_graph(record, tensors)

    threads = [threading.Thread(target=save) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    graphs = open_run(tmp_path / "run").graphs()
    assert len({graph.id for graph in graphs}) == 20
    assert all(graph.record.id == graph.local_id for graph in graphs)


def test_processes_share_a_run_and_its_tensors(tmp_path: Path) -> None:
    for rank in (1, 0):
        process = RunWriter.create(tmp_path / "run", RECORD, join=True).process(rank=rank)
        record, tensors = stored_chain(process.unique_id("0/0", "forward"))
        process.save_graph(record, tensors)
        process.close()
    run = open_run(tmp_path / "run")
    assert [graph.id for graph in run.graphs()] == ["0:0_0/forward", "1:0_0/forward"]
    assert run.graph("1:0_0").process == f"rank1_pid{os.getpid()}"
    assert len(list((tmp_path / "run/tensors").iterdir())) == 1
    with pytest.raises(UsageError, match="could be 0:0_0/forward, 1:0_0/forward"):
        run.graph("0_0/forward")
    assert [process.liveness for process in run.processes] == ["ended", "ended"]


def test_a_process_id_used_again_gets_a_folder_of_its_own(tmp_path: Path) -> None:
    run, process = new_run(tmp_path / "run")
    assert run.process().name == f"{process.name}_2"


def test_unfinished_work_is_invisible(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain())
    with pytest.raises(RuntimeError), new_folder(process.graph_path("1_0/forward")) as folder:
        (folder / "graph.json").write_text("{")
        raise RuntimeError
    left = process.graph_path("0_0/forward").parent / ".tmp-999-abc-0"
    left.mkdir()
    assert [graph.id for graph in open_run(tmp_path / "run").graphs()] == ["0_0/forward"]
    assert not any(path.name.startswith(".tmp-") for path in (process.path / "graphs/1_0").iterdir())


def test_a_graph_saved_but_not_yet_journaled_is_listed(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    process.save_graph(chain())
    (process.path / "journal.jsonl").unlink()
    [row] = open_run(tmp_path / "run").rows
    assert (row.id, row.nodes, row.status) == ("0_0/forward", 5, "captured")


def test_a_graph_that_was_skipped_is_listed_but_not_opened(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    process.journal.event("skipped", graph="0_0/joint", reason="a script object in the arguments")
    run = open_run(tmp_path / "run")
    assert [(row.id, row.status, row.error) for row in run.rows] == [
        ("0_0/joint", "skipped", "a script object in the arguments")
    ]
    assert run.graphs() == []
    with pytest.raises(UnreadableError, match="was not saved: a script object"):
        run.graph("0_0/joint")


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentLackError, match="No space left"):
        write_file(tmp_path / "file", b"x")
    assert not (tmp_path / "file").exists()


def test_what_the_disk_refuses_later_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    _, process = new_run(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken)
        process.save_graph(chain())
        process.close()
    run = open_run(tmp_path / "run")
    assert [graph.id for graph in run.graphs()] == ["0_0/forward"]  # the system has it
    [reported] = [
        line for line in (process.path / "journal.jsonl").read_text().splitlines() if "not on the disk" in line
    ]
    assert "Input/output error" in reported


def test_files_are_synced_when_the_process_closes_and_those_gone_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    _, process = new_run(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", noted)
    process.save_graph(chain())
    process.save_graph(chain("0_0/joint"))
    process.remove_graph("0_0/joint")
    process.close()
    assert "graph.json" in synced
    assert "not on the disk" not in (process.path / "journal.jsonl").read_text()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a run of two graphs, a case, and a minifier's output."""
    _, process = new_run(tmp_path / "run")
    for stage in ("forward", "joint"):
        process.save_graph(chain(f"0_0/{stage}"))
    write_graph_folder(tmp_path / "case1", chain("x0_0/inference"))
    write_graph_folder(tmp_path / "small/case", chain("0_0/forward"))
    return tmp_path


def test_texts_that_name_something(work: Path) -> None:
    run = resolve("run", work)
    assert isinstance(run, Run)
    folder = run.processes[0].path.relative_to(work)
    for text in (
        "run/0_0/forward",
        "run/0_0/f",
        f"run/{folder.name}:0_0/forward",
        f"{folder}/graphs/0_0/forward",
        str(work / "run/0_0/fo"),
    ):
        result = resolve(text, work)
        assert isinstance(result, SavedGraph)
        assert (result.id, result.status) == ("0_0/forward", "captured")
    case = resolve("case1", work)
    assert isinstance(case, SavedGraph)
    assert (case.id, case.status, case.run, case.process) == ("x0_0/inference", "saved", None, None)
    assert case.tensors_dir == work / "case1/tensors"
    assert resolve_graph("small", work).path == work / "small/case"
    assert load_graph(work / "run/0_0/joint").stage == "joint"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nowhere", "The runs here are run"),
        ("", "is not a name"),
        ("a\0b", "is not a name"),
        ("x" * 5000, "cannot be opened"),
        ("run/9_9/forward", "it holds 0_0/forward, 0_0/joint"),
        ("run/0_0", "could be"),
        ("run/../../etc", "neither"),
        ("run/0_0/../../etc", "neither"),
        ("small/other", "no such folder"),
    ],
)
def test_texts_that_name_nothing(work: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        resolve(text, work)


def test_a_file_is_said_to_be_one(work: Path) -> None:
    (work / "empty").touch()
    with pytest.raises(UsageError, match="it is a file, not a folder"):
        resolve("empty", work)


def test_a_run_where_one_graph_is_wanted(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(work / "cache"))
    before = sorted(path for path in (work / "run").rglob("*"))
    assert resolve_graph("run", work).id == "0_0/forward"
    assert "taking 0_0/forward: no graph of the run is known to fail" in capsys.readouterr().err
    run = open_run(work / "run")
    keep(run, {"0_0/joint": (4, "cannot tell", ""), "0_0/forward": (0, "ok", "")})
    assert resolve_graph("run", work).id == "0_0/joint"
    keep(run, {"0_0/forward": (1, "fails: wrong numbers", "")})
    assert resolve_graph("run", work).id == "0_0/forward"
    assert "taking 0_0/forward: its last verdict is fails: wrong numbers" in capsys.readouterr().err
    assert sorted(path for path in (work / "run").rglob("*")) == before  # nothing is written into a run
    (work / "cache/graphdbg" / FILE).write_text("torn")
    assert resolve_graph("run", work).id == "0_0/forward"
    with pytest.raises(UsageError, match="the command needs one graph"):
        load_graph(work / "run")
    with pytest.raises(UsageError, match=r"it has no run\.json"):
        open_run(work)


def test_a_backward_has_the_number_of_its_forward(tmp_path: Path) -> None:
    _, process = new_run(tmp_path / "run")
    forwards = [process.unique_id("0/0", "forward") for _ in range(3)]
    assert forwards == ["0_0/forward", "0_0/forward.1", "0_0/forward.2"]
    backwards = [process.unique_id("0/0", "backward", like=forward) for forward in reversed(forwards)]
    assert backwards == ["0_0/backward.2", "0_0/backward.1", "0_0/backward"]
    assert (
        process.unique_id("0/0", "backward", like="0_0/forward.1") == "0_0/backward.3"
    )  # taken: the next that is free


def test_the_first_name_that_is_free(tmp_path: Path) -> None:
    stem = str(tmp_path / "case")
    assert free_path(stem, ".svg").name == "case.svg" and free_path(stem, bare=False).name == "case-1"
    for name in ("case.svg", "case", "case-2"):
        (tmp_path / name).touch()
    assert free_path(stem, ".svg").name == "case-1.svg" and free_path(stem, first=2).name == "case-3"


def test_what_a_minified_program_left_is_told_from_a_graph(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "repro.py").touch()
    (tmp_path / "small" / "calls.jsonl").touch()
    with pytest.raises(UsageError, match=r"holds the repro of a program.*Run: python .*small/repro\.py"):
        resolve(str(tmp_path / "small"))
