"""Whatever stdout, stderr, the locale, a folder or a path are: a sentence and a code of the table, never a traceback
and 70."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from graphdbg import cli
from graphdbg.dumps.output import emit

from ..dumps.graphs import chain, new_run

ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ODD = "naïve ∂ 😀"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exits")
    _, process = new_run(folder / "run")
    process.save_graph(chain("0_0/forward"))
    record = chain("0_0/backward")
    record.graph.nodes[1].meta = {"note": ODD}
    record.strings = [f'  File "/home/me/{ODD}.py", line 1, in {ODD}\n    x = "{ODD}"\n']
    process.save_graph(record)
    process.close()
    return folder


def asked(place: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A shell line with `G` for the command."""
    whole = f'G() {{ {sys.executable} -m graphdbg "$@"; }}; {line}'
    words, known = ["bash", "-c", whole], os.environ | environment
    return subprocess.run(words, cwd=place, env=known, capture_output=True, encoding="utf-8", timeout=120, check=False)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("G --help > /dev/full", 3, "No space left on device"),
        ("G ls run --json > /dev/full", 3, "cannot write stdout: No space left on device"),
        ("G ls run >&-", 3, "cannot write stdout: it is closed"),
        ("G --version >&-", 3, "it is closed"),
        ("G ls run 2>&-", 0, ""),
        ("G ls nowhere 2>/dev/full", 2, ""),
        pytest.param("G ls --help > /dev/full", 3, "No space left on device", marks=SLOW),
        pytest.param("G ls nowhere 2>&-", 2, "", marks=SLOW),
        pytest.param("G ls --nonsense 2>&-", 2, "", marks=SLOW),
        pytest.param("G ls --nonsense 2>/dev/full", 2, "", marks=SLOW),
        pytest.param("G ls run <&- >&- 2>&-", 3, "", marks=SLOW),
        pytest.param("G diff run/0_0/forward run/0_0/backward >&-", 3, "it is closed", marks=SLOW),
        pytest.param("G show run/0_0/forward > /dev/full", 3, "No space left", marks=SLOW),
        pytest.param("ulimit -f 0; G pack run -o x.zip", 3, "Set TMPDIR", marks=SLOW),
        pytest.param("ulimit -f 1; G pack run -o x.zip", 3, "File too large", marks=SLOW),
        pytest.param("G dump -o d >&- 2>&- -- true", 0, "", marks=SLOW),
    ],
)
def test_streams_that_take_nothing(place: Path, line: str, code: int, said: str) -> None:
    done = asked(place, line)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_ascii_terminal_gets_escapes(place: Path) -> None:
    done = asked(place, "G show run/0_0/backward", **ASCII)
    assert (done.returncode, done.stdout.isascii()) == (0, True)
    assert r"na\xefve" in done.stdout
    assert "Traceback" not in done.stderr


def test_json_for_a_stream_without_all_letters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace"))
    emit({"a": ODD}, as_json=True)
    assert json.loads(raw.getvalue()) == {"a": ODD, "next": []}


LONG = "/".join(["a" * 250] * 20)


FOLDERS = {"a file": "run/run.json", "read-only": "/proc", "a long name": "a" * 300, "a deep path": LONG}


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize(
    "words",
    [
        ["pack", "run", "-o", "AT/x.zip"],
        ["draw", "run/0_0/forward", "-o", "AT/x.dot"],
        ["dump", "-o", "AT/run", "--", "true"],
        ["ls", "AT/run"],
        ["show", "AT/run/0_0/forward"],
        ["replay", "AT/run"],
        ["steer", "AT/x", "pause"],
        ["minify", "--resume", "-o", "AT/x"],
        ["report", "AT/x", "-o", "AT/y"],
        ["report", "run/0_0/forward", "-o", "AT/y"],
    ],
    ids=lambda words: words[0],
)
def test_folders_that_cannot_be_written_or_read(
    place: Path, folder: str, words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert cli.run([word.replace("AT", FOLDERS[folder]) for word in words]) in (2, 3)
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert said.strip()


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "Free some space"), (errno.EACCES, "Choose another folder"), (errno.EMFILE, "ulimit -n")],
)
def test_what_a_system_refuses_is_a_sentence(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def callback() -> None:
        raise OSError(number, os.strerror(number), "/somewhere/x")

    monkeypatch.setattr(cli.Commands, "get_command", lambda self, ctx, name: click.Command("doctor", callback=callback))
    assert cli.run(["doctor"]) == 3
    printed = capsys.readouterr().err
    assert printed.startswith(f"graphdbg: cannot use /somewhere/x: {os.strerror(number)}. ")
    assert said in printed


def test_an_error_of_our_own_stays_a_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def callback() -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/somewhere/x")

    monkeypatch.setattr(cli.Commands, "get_command", lambda self, ctx, name: click.Command("doctor", callback=callback))
    assert cli.run(["doctor"]) == cli.DEFECT_EXIT
