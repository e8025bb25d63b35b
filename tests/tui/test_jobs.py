"""Jobs are real commands: what they print comes back, they outlive the workbench, and whatever ends them is told."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graphdbg.dumps.errors import EnvironmentLackError, UsageError
from graphdbg.dumps.process import ProcessRecord
from graphdbg.tui import job_files, jobs
from graphdbg.tui.jobs import Job, ending

FOREVER = ["ls", "never_there", "--follow"]
"""A command that waits until it is stopped, and imports no torch."""


def until(condition: Callable[[], object], what: str, limit_s: float = 20.0) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends, f"never came: {what}"
        time.sleep(0.01)


def waiting() -> Job:
    """A job that is at work."""
    job = Job(FOREVER)
    until(lambda: any("waiting for" in line for line in job.said), "the job's first sentence")
    return job


def test_what_a_command_prints_comes_back_line_by_line(work: Path) -> None:
    batches: list[list[dict[str, object]]] = []
    codes: list[int] = []
    job = Job(["ls", "myrun", "--json"], on_batch=batches.append, on_end=codes.append)
    assert job.wait(20)
    (data,) = [item for batch in batches for item in batch]
    assert [row["id"] for row in data["graphs"]] == ["0_0/joint", "0_0/forward"]  # type: ignore[attr-defined]
    until(lambda: codes, "the end")
    assert (codes, job.code, job.running, job.line) == ([0], 0, False, "graphdbg ls myrun --json")
    refused = Job(["ls", "nothing here"])
    assert refused.wait(20)
    assert refused.code == 2
    assert "neither a run" in refused.said[-1]
    again = Job.attach(refused.folder)
    assert again.wait(20)
    assert (again.code, again.said) == (2, refused.said)
    assert [(kept.line, kept.state, kept.code) for kept in job_files.recent()] == [
        ("graphdbg ls 'nothing here'", "ended", 2),
        ("graphdbg ls myrun --json", "ended", 0),
    ]


def test_a_job_goes_on_when_who_started_it_is_gone_and_another_one_stops_it(work: Path) -> None:
    start = f"import os; from graphdbg.tui.jobs import Job; print(Job({FOREVER!r}).folder, flush=True); os._exit(0)"
    started = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=True)
    folder = Path(started.stdout.strip())
    assert [kept.state for kept in job_files.recent()] == ["running"]
    job = Job.attach(folder)
    until(lambda: job.said, "what it said before")
    job.stop()
    assert job.wait(20)
    assert not job.running
    assert [kept.state for kept in job_files.recent()] == ["ended"]


def test_a_killed_job_says_by_which_signal(work: Path) -> None:
    job = waiting()
    other = Job.attach(job.folder)
    process = job_files.look(job.folder).record.process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    assert job.wait(20)
    assert other.wait(20)
    assert ending(job.code or 0) == "it was killed by SIGKILL"
    assert other.code == -signal.SIGKILL
    assert job_files.look(job.folder).state == "gone"


def test_the_command_alone_killed_is_written_down(work: Path) -> None:
    job = waiting()
    process = job_files.look(job.folder).record.process
    assert process is not None
    child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    os.kill(child, signal.SIGSEGV)
    assert job.wait(20)
    assert ending(job.code or 0) == "it was killed by SIGSEGV"
    assert job_files.look(job.folder).code == -signal.SIGSEGV


def test_no_process_of_somebody_else_is_signalled(work: Path) -> None:
    """The number of an ended job's process may be another's by now."""
    job = Job(["ls", "myrun"])
    assert job.wait(20)
    (job.folder / job_files.EXIT_FILE).unlink()
    record = job_files.look(job.folder).record
    assert record.process is not None
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    record.process = ProcessRecord(**{name: getattr(record.process, name) for name in record.process.__struct_fields__})
    record.process.pid = bystander.pid
    (job.folder / job_files.JOB_FILE).write_bytes(job_files.encode(record))
    late = Job.attach(job.folder)
    late.stop()
    late.kill()
    assert late.wait(20)
    assert bystander.poll() is None
    bystander.communicate(b"\n")
    record.process.host = "elsewhere"
    (job.folder / job_files.JOB_FILE).write_bytes(job_files.encode(record))
    with pytest.raises(UsageError, match="another host"):
        Job.attach(job.folder).stop()


def test_a_screen_that_raises_does_not_end_the_job(work: Path) -> None:
    def refuse(_: object) -> None:
        raise ValueError("no place for it")

    job = Job(["ls", "myrun", "--json"], on_batch=refuse)
    assert job.wait(20)
    assert job.code == 0
    assert any("no place for it" in line for line in job.said)


def test_the_users_wish_for_no_colours_reaches_the_command(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "NO_COLOR", "1")
    job = waiting()
    process = job_files.look(job.folder).record.process
    assert process is not None
    assert b"\0NO_COLOR=1\0" in b"\0" + Path(f"/proc/{process.pid}/environ").read_bytes()
    job.stop()
    assert job.wait(20)


def test_a_passing_job_leaves_nothing(work: Path) -> None:
    job = Job(["ls", "myrun", "--json"], passing=True)
    assert job.wait(20)
    assert not job.folder.exists()
    assert job_files.recent() == []


def test_only_old_ended_jobs_make_room(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "KEPT", 2)
    running = waiting()
    folders = [job_files.new_folder(["ls", str(number)], passing=False)[0] for number in range(4)]
    assert [folder.exists() for folder in (running.folder, *folders)] == [True, False, False, True, True]
    job_files.recent()
    assert folders[-1].exists()
    running.stop()
    assert running.wait(20)


def test_an_unwritable_state_folder_is_told_and_another_one_used(
    work: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    job = Job(["ls", "myrun"])
    assert job.wait(20)
    assert job.code == 0
    assert "temporary" in job.note
    assert "Not a directory" in job.note
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    with pytest.raises(EnvironmentLackError, match="Not a directory"):
        Job(["ls", "myrun"])


@pytest.mark.parametrize("room_bytes, text", [(100, "CannotWriteError"), (900, "cannot write stdout: File too large")])
def test_a_disk_without_room_is_told(work: Path, room_bytes: int, text: str) -> None:
    """No room for the job's own file, then none for what the command prints."""
    program = (
        "from graphdbg.tui.jobs import Job\n"
        "from graphdbg.dumps.errors import GraphdbgError\n"
        "try: job = Job(['show', 'myrun/0_0/forward', '--json'])\n"
        "except GraphdbgError as error: print(type(error).__name__)\n"
        "else: job.wait(20); print(job.code, job.said)\n"
    )

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, room_bytes))

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert text in done.stdout, done.stdout + done.stderr
