"""Only regular files that lie in a dump are opened, whatever stands in their place; temporary folders go with their
owners."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphdbg.cli import run as command
from graphdbg.dumps import opening, temporary
from graphdbg.dumps.errors import UnreadableError, UsageError
from graphdbg.dumps.lines import Tail
from graphdbg.dumps.store import is_script, load_graph, open_run
from graphdbg.dumps.tensors import TensorStore
from graphdbg.minifier.log import Life, read
from graphdbg.minifier.steering import Order, append

from ..dumps.graphs import chain, new_run, stored_chain

SECRET = "not for anybody"
FILES = (
    "run.json",
    "PROCESS/process.json",
    "PROCESS/journal.jsonl",
    "PROCESS/sources.jsonl",
    "PROCESS/exit.json",
    "PROCESS/graphs/0_0/forward/graph.json",
    "PROCESS/graphs/0_0/forward/graph.py",
    "PROCESS/graphs/0_0/forward/inputs.json",
    "PROCESS/graphs/0_0/forward/table.msgpack",
    "PROCESS/graphs/0_0/forward/code/output_code.py",
    "PROCESS/held/0_0/forward",
    "tensors/HASH",
)
LOOKING = (
    ["ls", "RUN"],
    ["ls", "RUN", "--why"],
    ["ls", "RUN", "--time"],
    ["ls", "RUN", "--stages", "--json"],
    ["show", "RUN/0_0/forward"],
    ["show", "RUN/0_0/forward", "--code"],
    ["show", "RUN/0_0/forward", "--json"],
    ["diff", "RUN/0_0/forward", "RUN/0_0/backward"],
    ["pack", "RUN", "-o", "OUT.zip"],
    ["draw", "RUN/0_0/forward", "-o", "OUT.dot"],
)


def recorded(folder: Path) -> tuple[Path, dict[str, Path]]:
    """A run of two graphs, and where each of FILES lies in it."""
    run = folder / "run"
    _, process = new_run(run)
    record, tensors = stored_chain()
    process.save_graph(record, tensors=tensors)
    process.save_graph(chain("0_0/backward"))
    process.journal.event("captured", graph="0_0/forward", nodes=5)
    process.close()
    name = next(iter(tensors.storages))
    places = {file: run / file.replace("PROCESS", process.path.name).replace("HASH", name) for file in FILES}
    for path in places.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    return run, places


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fails where a block blocks."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as item:
        here = Path.cwd()
        os.chdir(path.parent)  # such names are short
        try:
            item.bind(path.name)
        finally:
            os.chdir(here)


def zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def elsewhere(path: Path) -> None:
    path.symlink_to(os.environ["HOSTILE_SECRET"])


KINDS = {"a FIFO": fifo, "a socket": bound, "a device": zeros, "a link out of the run": elsewhere}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_of_the_run_is_not_opened(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    monkeypatch.setenv("HOSTILE_SECRET", str(secret))
    for number, file in enumerate(FILES):
        run, places = recorded(tmp_path / str(number))
        places[file].unlink(missing_ok=True)
        KINDS[kind](places[file])
        for words in LOOKING:
            asked = [
                word.replace("RUN", str(run)).replace("OUT", str(tmp_path / f"{number}/out-{words[0]}"))
                for word in words
            ]
            with within(20):
                assert command(asked) in (0, 1, 2), (file, words)
            said = capsys.readouterr()
            assert SECRET not in said.out + said.err, (file, words)
        packed = tmp_path / f"{number}/out-pack.zip"
        assert not packed.exists() or SECRET.encode() not in packed.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_each_reader_says_what_it_is(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE_SECRET", str(tmp_path / "secret"))
    (tmp_path / "secret").write_text(SECRET)
    path = tmp_path / "run" / ("0" * 40)
    path.parent.mkdir()
    KINDS[kind](path)
    why = kind if kind != "a link out of the run" else "a link points outside"
    with within(10):
        with pytest.raises(OSError, match=why):
            opening.read(path)
        with pytest.raises(UnreadableError, match=why):
            TensorStore(path.parent).get(path.name)
        with pytest.raises(OSError, match=why):
            Tail(path).read()
        KINDS[kind](path.with_name("events.jsonl"))
        with pytest.raises(OSError, match=why):
            read(path.parent)
        if kind != "a link out of the run":
            assert not is_script(str(path))


def test_a_folder_that_is_a_link_out_of_the_run_is_not_followed(tmp_path: Path) -> None:
    run, places = recorded(tmp_path)
    other, _ = recorded(tmp_path / "other")
    process = places["PROCESS/process.json"].parent
    (process / "graphs").rename(tmp_path / "graphs")
    (process / "graphs").symlink_to(tmp_path / "graphs")
    with pytest.raises(UnreadableError, match="a link points outside"):
        _ = open_run(run).graph("0_0/forward").record
    assert open_run(other).graph("0_0/forward").record.stage == "forward"


def test_links_inside_a_run_and_to_a_run_are_followed(tmp_path: Path) -> None:
    run, places = recorded(tmp_path)
    journal = places["PROCESS/journal.jsonl"]
    journal.rename(journal.with_name("moved"))
    journal.symlink_to("moved")
    (tmp_path / "link").symlink_to(run)
    assert load_graph(tmp_path / "link/0_0/forward").record.stage == "forward"
    assert open_run(tmp_path / "link").rows[0].status == "captured"


@pytest.mark.parametrize("name", ["events.jsonl", "lock", "steering.jsonl"])
def test_nothing_is_written_through_a_link_in_the_folder_of_a_minification(tmp_path: Path, name: str) -> None:
    victim, out = tmp_path / "victim", tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to(victim)
    with pytest.raises(UsageError, match="is a link or not a regular file"):
        Life(out, resume=True)
    with pytest.raises(UsageError, match="is a link or not a regular file"):
        append(out, Order.new("pause"))
    assert not victim.exists()


def test_a_fifo_in_the_place_of_a_run_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.zip")
    with within(10):
        for name in ("pipe", "pipe.zip", "pipe.zip/0_0/forward"):
            with pytest.raises(UsageError, match="neither a run"):
                load_graph(tmp_path / name)


# Temporary folders

OWNER = """
import os, signal, sys, time
from pathlib import Path
from graphdbg.dumps import temporary
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs tests may ignore it
if sys.argv[1] == "handled":
    temporary.go_on_signals()
folder = temporary.make("graphdbg-zip-")
(folder / "x").mkdir()
(folder / "x/large").write_bytes(bytes(1000))
print(folder, flush=True)
time.sleep(60)
"""


@contextmanager
def owner(tmp_path: Path, how: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, how], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_takes_temporary_folders_along(tmp_path: Path, number: signal.Signals) -> None:
    with owner(tmp_path, "handled") as (process, folder):
        assert (folder / "x/large").exists()
        process.send_signal(number)
        assert process.wait(20) == -number
        assert not folder.exists()


def test_what_a_dead_process_left_goes_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with owner(tmp_path, "") as (process, folder):
        assert temporary.remove_left_over() == []
        process.kill()
        process.wait()
        (tmp_path / "graphdbg-zip-of-somebody").mkdir()
        assert temporary.remove_left_over() == [folder]
        assert not folder.exists()
        assert (tmp_path / "graphdbg-zip-of-somebody").exists()


def test_a_command_that_opens_a_pack_leaves_nothing(tmp_path: Path) -> None:
    run, _ = recorded(tmp_path / "made")
    assert command(["pack", str(run), "-o", str(tmp_path / "a.zip")]) in (0, 1)
    place = tmp_path / "tmp"
    place.mkdir()
    environment = os.environ | {"TMPDIR": str(place)}
    words = [sys.executable, "-m", "graphdbg", "ls", "--stages", tmp_path / "a.zip"]
    done = subprocess.run(words, env=environment, check=True, capture_output=True)
    assert b"0_0/forward" in done.stdout
    assert list(place.iterdir()) == []


def test_too_few_descriptors_leave_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for spare in range(4):
        child = os.fork()
        if child == 0:
            try:
                most = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1
                while os.open(os.devnull, os.O_RDONLY) < most:  # takes what is free below
                    pass
                resource.setrlimit(resource.RLIMIT_NOFILE, (most + 1 + spare, most + 1 + spare))
                with temporary.folder("graphdbg-zip-") as folder:
                    (folder / "a/b/c").mkdir(parents=True)
                    (folder / "a/link").symlink_to(folder)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert list(tmp_path.iterdir()) == [], spare


def test_a_fork_does_not_remove_what_its_parent_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary.folder("graphdbg-zip-") as folder:
        child = os.fork()
        if child == 0:
            temporary.remove_mine()
            os._exit(0)
        os.waitpid(child, 0)
        assert folder.is_dir()
    assert not folder.exists()
