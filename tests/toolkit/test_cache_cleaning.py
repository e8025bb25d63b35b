"""`graphdbg doctor --clean`: what goes, what stays, and that nothing else is touched."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graphdbg.dumps.why import times
from graphdbg.toolkit.commands.doctor import doctor
from graphdbg.toolkit.isolation import cache, processes
from graphdbg.toolkit.isolation.server import Server, ServerSettings
from graphdbg.toolkit.replaying import replay

SEED = "2.13.0+cpu-07d06fcc2bb8ae95"
OLD = "2.11.0+cpu-1111111111111111"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with two seeds, a note for each, and one that was never finished."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    seeds = cache.home() / "seed"
    for number, name in enumerate((SEED, OLD)):
        (seeds / name / "files" / "ab").mkdir(parents=True)
        (seeds / name / "files" / "ab" / "header.gch").write_bytes(b"x" * 2048)
        (seeds / name / "complete").touch()
        (seeds / f"note-{number}").write_text(name)
    (seeds / ".making-x").mkdir()
    os.utime(seeds / ".making-x", (0, 0))
    return cache.home()


def run(*args: str) -> Result:
    return CliRunner().invoke(doctor, args)


def test_clean_lists_and_removes(home: Path) -> None:
    done = run("--clean")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "removed      0 B  seed/.making-x  toolchain probes that were never finished",
        f"removed  2.0 KiB  seed/{OLD}  toolchain probes for torch 2.11.0+cpu",
        f"removed  2.0 KiB  seed/{SEED}  toolchain probes for torch 2.13.0+cpu",
        "removed     27 B  seed/note-0  a note: which probes a torch and a compiler use",
        "removed     27 B  seed/note-1  a note: which probes a torch and a compiler use",
    ]
    assert done.stderr == f"{home}: 4.1 KiB removed\n"
    assert not home.exists()


def test_what_judging_keeps_is_said_to_be_ours(home: Path) -> None:
    for file in (replay.FILE, times.FILE):
        (home / file).write_text("{}")
    printed = run("--clean", "--dry-run").stdout
    assert "judged.json  outcomes that the next command need not ask for again" in printed
    assert "steady.json  how long a graph takes to run, compiled and eager" in printed


def test_a_dry_run_removes_nothing(home: Path) -> None:
    before = sorted(home.rglob("*"))
    done = run("--clean", "--dry-run")
    assert done.stdout.startswith("would be removed      0 B  seed/.making-x")
    assert sorted(home.rglob("*")) == before
    document = json.loads(run("--clean", "--dry-run", "--json").stdout)
    assert document["folder"] == str(home)
    assert document["bytes"] == 2 * 2048 + 2 * 27
    assert document["entries"][1] == {
        "name": f"seed/{OLD}",
        "bytes": 2048,
        "what": "toolchain probes for torch 2.11.0+cpu",
        "removed": False,
    }


def test_dry_run_alone_is_a_usage_error(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graphdbg", "doctor", "--dry-run"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "graphdbg doctor --clean --dry-run" in done.stderr


def test_what_a_living_process_uses_stays(home: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from graphdbg.toolkit.isolation import cache
held = cache.hold(Path({str(home / "seed" / SEED)!r}))
print(held is not None, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "True\n"
        expected = {
            f"seed/{SEED}": {"kept": "a living process uses it"},
            "seed/note-0": {"kept": f"seed/{SEED} is kept"},
            f"seed/{OLD}": {"removed": True},
            "seed/note-1": {"removed": True},
            "seed/.making-x": {"removed": True},
        }
        entries = json.loads(run("--clean", "--json").stdout)["entries"]
        assert {
            entry["name"]: {k: v for k, v in entry.items() if k in ("removed", "kept")} for entry in entries
        } == expected
        assert (home / "seed" / SEED / "files" / "ab" / "header.gch").exists()
        user.kill()
    assert run("--clean").exit_code == 0
    assert not home.exists()


def test_a_seed_that_is_being_made_stays(home: Path) -> None:
    making = home / "seed" / ".making-x"
    held = processes.hold(making)
    assert "kept         0 B  seed/.making-x  toolchain probes that are being made" in run("--clean").stdout
    os.close(held)
    assert [entry["name"] for entry in json.loads(run("--clean", "--json").stdout)["entries"]] == ["seed/.making-x"]
    making.mkdir(parents=True)  # another server, this moment: it has not come to its lock yet
    assert "kept" in run("--clean").stdout


def test_a_seed_is_planted_whole_or_not_at_all(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "private"
    target.mkdir()
    assert cache.plant(target, home / "seed" / SEED)
    assert run("--clean").exit_code == 0
    assert (target / "ab" / "header.gch").read_bytes() == b"x" * 2048
    assert cache.hold(home / "seed" / SEED) is None
    assert not cache.plant(target, home / "seed" / SEED)


def test_links_are_not_followed(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "kept").write_bytes(b"x" * 5000)
    (home / "link").symlink_to(outside)
    (home / "seed" / SEED / "files" / "link").symlink_to(outside)
    (home / "seed" / "note-2").symlink_to(outside / "deep" / "kept")
    done = run("--clean")
    assert f"link  a link to {outside}" in done.stdout
    assert (outside / "deep" / "kept").exists()
    assert not home.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]


def test_a_cache_folder_that_is_a_link_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.home().symlink_to(tmp_path / "precious")
    done = run("--clean")
    assert "it is a link" in str(done.exception)
    assert (tmp_path / "precious" / "file").exists()


def test_a_cache_folder_that_is_not_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    done = run("--clean")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{cache.home()}: nothing lies there\n")
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert "cannot look into" in str(run("--clean").exception)


def test_what_the_system_refuses_is_said_with_3(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "rename", refuse)
    done = run("--clean")
    assert done.exit_code == 3
    assert (
        f"seed/{SEED}  toolchain probes for torch 2.13.0+cpu; it cannot be removed: Operation not permitted"
        in done.stdout
    )
    assert "seed/note-0  a note: which probes a torch and a compiler use; " in done.stdout


def test_a_server_lives_on_where_its_seed_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = Server(ours)
        server.settings = ServerSettings(str(tmp_path), str(tmp_path), 0)
        server._keep_seed(Path(os.devnull) / "seed" / SEED)
        assert "could not be kept" in server.notes[0]
