"""The wall holds what it says: what a child that was taken over could still do is what `Wall.open` tells, part by
part."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from graphdbg.toolkit.isolation import ForkServer, cache, heartbeat
from graphdbg.toolkit.isolation.wall import PARTS, Wall, begin

from .test_text_in_code import WAYS
from .test_trust import GRAPH, made

ALWAYS = {"inside", "temporary", "null", "read", "packets"}
WHAT = {
    "write your files": {"new", "over", "links", "away", "shorter"},
    "change the modes and times of your files": {"modes"},
    "cut your files short": {"shorter"},
    "reach the network": {"tcp", "udp"},
    "reach the network other than by TCP": {"udp"},
    "talk to services of this machine (D-Bus, Docker)": {"service"},
    "signal your processes": {"signal"},
    "trace your processes": {"trace"},
}
"""What of that each sentence on what is open means."""

pytestmark = [pytest.mark.own_server, pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has one")]


Reach = tuple[dict[str, Any], socket.socket]


@pytest.fixture
def reach(tmp_path: Path) -> Iterator[Reach]:
    """What there is to reach outside: files, listening sockets, this process; and the socket that hears of UDP."""
    outside, own = tmp_path / "outside", tmp_path / "own"
    own.mkdir()
    outside.mkdir()
    for name in ("file", "gone", "long"):
        (outside / name).write_text("as it was")
    with ExitStack() as stack:
        tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        service = socket.socket(socket.AF_UNIX)
        for item, place in ((tcp, ("127.0.0.1", 0)), (udp, ("127.0.0.1", 0)), (service, str(tmp_path / "service"))):
            stack.enter_context(item)
            item.bind(place)
        tcp.listen()
        service.listen()
        yield (
            {
                "outside": str(outside),
                "own": str(own),
                "work": str(own),
                "victim": os.getpid(),
                "tcp": tcp.getsockname()[1],
                "udp": udp.getsockname()[1],
                "service": str(tmp_path / "service"),
            },
            udp,
        )


@pytest.mark.parametrize(
    "parts",
    [
        PARTS,
        ("namespaces", "landlock", "filter"),
        ("namespaces", "mounts", "filter"),
        ("namespaces", "mounts", "landlock"),
        ("landlock", "filter"),
        ("landlock",),
        ("filter",),
        ("namespaces",),
        (),
    ],
    ids=lambda parts: "+".join(parts) or "none",
)
def test_what_a_child_can_do_is_what_is_said_to_be_open(
    parts: tuple[str, ...], reach: Reach, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    messages: list[str] = []
    with heartbeat.beating(messages.append), ForkServer(warm="nothing", wall=parts) as server:
        answer = server.submit("tests.hostile.walled:attempts", reach[0]).answer()
        assert server._process is not None
        is_open, root = server._process.open, server._process.root
        assert ("a filter of calls" in server.wall()[0]) == ("filter" in parts)
    assert answer.status == "done", answer
    done = set(answer.value["done"]) - {"meet", "udp"}  # in a network of its own it is sent, and nobody hears it
    reach[1].setblocking(False)
    with suppress(BlockingIOError):
        done |= {"udp"} if reach[1].recv(1) else set()
    expected = ALWAYS.union(*(WHAT[item] for item in is_open))
    assert done - expected == set()
    assert expected - done <= {"trace"}  # root loses the right to it, and others are held off by Yama
    assert answer.value["home"] == str(root / "home")
    assert "MY_TOKEN" not in answer.value["variables"]
    assert bool(messages) == bool(is_open) and all(what in messages[0] for what in is_open)
    left = sorted(path.name for path in Path(reach[0]["outside"]).iterdir())
    assert "write your files" in is_open or left == ["file", "gone", "long"]


def test_all_is_closed_where_the_kernel_has_everything(tmp_path: Path) -> None:
    assert Wall(network=True, mounts=True, landlock=7, filter=True).open == []
    assert Wall().open and "write your files" in Wall().open
    assert Wall(landlock=3).open == [
        "change the modes and times of your files",
        "reach the network",
        "talk to services of this machine (D-Bus, Docker)",
        "signal your processes",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("parts", [PARTS, ("landlock", "filter")], ids="+".join)
def test_an_ordinary_user_has_it_too(parts: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        for folder in ("root", "outside"):
            (place / folder).mkdir()
            os.chown(place / folder, 65534, 65534)
        pid = os.fork()
        if pid == 0:
            code = 9
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                os.chdir("/")
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as if it had begun as that user
                (place / "outside" / "mine").touch()
                wall = begin(parts, place / "root")
                wall.enter(wall.prepared([place / "root"]), place / "root")
                (place / "root" / "written").touch()
                code = 1
                try:
                    (place / "outside" / "new").touch()
                except OSError:
                    with socket.socket() as item:
                        item.settimeout(5)
                        code = 2 if item.connect_ex(("192.0.2.1", 9)) == 11 else 0
            except PermissionError:
                code = 0 if code == 1 else 8  # not even a socket
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_is_trusted_has_no_wall_and_no_server_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    mine = made(tmp_path / "mine")
    shutil.copytree(mine, tmp_path / "theirs")

    def ask(run: str) -> dict[str, Any]:
        payload = {"path": str(tmp_path / run / Path(*GRAPH))} if run else {}
        return server.submit("tests.hostile.walled:seen", payload).answer().value

    with ForkServer(warm="nothing") as server:
        theirs, nothing = ask("theirs"), ask("")
        assert theirs["server"] in (
            server.pid,
            1,
        )  # 1: through bwrap; what is about no run at all goes where a server is
        ours, again, later = ask("mine"), ask("theirs"), ask("")
    assert theirs["alone"] and nothing["alone"] and again["alone"]
    assert theirs["server"] == nothing["server"] == again["server"] != ours["server"] == later["server"]
    assert not ours["alone"] and ours["home"] == os.environ["HOME"] and "MY_TOKEN" in ours["variables"]
    assert "MY_TOKEN" not in theirs["variables"]


def test_a_handed_file_is_written_by_who_was_told_of_it(tmp_path: Path) -> None:
    with ForkServer(warm="nothing") as server:
        kept, other = server.scratch_file(".pt"), server.scratch_file(".pt")
        payload = {
            "path": str(tmp_path),
            "keep": str(kept),
            "outside": str(other.parent),
            "own": str(kept.parent),
            "victim": 1,
            "tcp": 9,
            "udp": 9,
            "service": "/nowhere",
        }
        done = server.submit("tests.hostile.walled:attempts", payload).answer().value["done"]
        assert "inside" in done and "new" not in done
    assert not kept.parent.exists()


def test_the_seed_of_the_cache_is_not_written_through_a_private_cache(tmp_path: Path) -> None:
    (files := tmp_path / "seed" / "files" / "ab").mkdir(parents=True)
    (files / "probe.so").write_text("as it was")
    (tmp_path / "seed" / cache.MADE).touch()
    assert cache.plant(tmp_path / "private", tmp_path / "seed", safely=True)
    planted = tmp_path / "private" / "ab" / "probe.so"
    assert planted.read_text() == "as it was" and planted.is_symlink() and (files / "probe.so").stat().st_nlink == 1
    cache.keep(tmp_path / "private", tmp_path / "kept", safely=True)
    assert (tmp_path / "kept" / "files" / "ab" / "probe.so").stat().st_nlink == 1


def test_a_reply_that_is_no_file_ends_the_query(tmp_path: Path) -> None:
    with ForkServer(warm="nothing", wall=PARTS) as server:
        answer = server.submit("tests.hostile.walled:instead_of_a_reply", {}).answer(60)
    assert answer.status in ("exception", "lost")


REFUSED = Path(__file__).with_name("refused.py")
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap (bubblewrap) is not installed")


@pytest.fixture
def no_namespaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are refused namespaces of their own."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{REFUSED}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@needs_bwrap
def test_where_only_bwrap_may_have_namespaces_it_starts_the_server(no_namespaces: None, reach: Reach) -> None:
    with ForkServer(warm="nothing", wall=PARTS) as server:
        built_of, is_open = server.wall()
        assert "namespaces by bwrap" in built_of and not {"reach the network", "signal your processes"} & {*is_open}
        answer = server.submit("tests.hostile.walled:attempts", reach[0]).answer()
        assert answer.value["server"] == 1 and {*answer.value["done"]} >= {*ALWAYS, "meet"}
        assert server._process is not None and server.pid is not None
        root = server._process.root
        waiting = server.submit("tests.hostile.walled:wait", {}, 60)
        next(iter(waiting))
        os.kill(server.pid, signal.SIGTERM)
        assert waiting.answer(20).status == "lost"
        ends = time.monotonic() + 10
        while root.exists() and time.monotonic() < ends:
            time.sleep(0.02)
        assert not root.exists()


@pytest.mark.parametrize("how", ["fails", "others may write it", "in this folder", "by a relative path", "not there"])
def test_a_bwrap_that_does_not_work_or_is_not_roots_is_not_used(
    how: str, no_namespaces: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    stub, ran = tmp_path / "bin" / "bwrap", tmp_path / "ran"
    if how != "not there":
        stub.write_text(f"#!/bin/sh\ntouch {ran}\nexit 1\n")
        stub.chmod(0o777 if how == "others may write it" else 0o755)
    monkeypatch.chdir(stub.parent if how == "in this folder" else tmp_path)
    kept = [folder for folder in os.get_exec_path() if not Path(folder, "bwrap").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(["bin" if how == "by a relative path" else str(stub.parent), *kept]))
    with ForkServer(warm="nothing", wall=PARTS) as server:
        built_of, _ = server.wall()
        assert not any("namespaces" in item for item in built_of)
        assert server.submit("builtins:dict", {"alive": True}).answer(20).value == {"alive": True}
    assert ran.exists() == (how == "fails" and os.geteuid() == 0)


@needs_bwrap
@pytest.mark.slow
def test_the_breakouts_are_held_through_bwrap() -> None:
    held = (
        f"{Path(__file__).with_name('test_text_in_code.py')}::test_a_payload_runs_only_without_the_escape_and_the_wall"
    )
    asked = [__file__, *(f"{held}[{name}-by the wall]" for name in WAYS)]
    words = [sys.executable, str(REFUSED), "-m", "pytest", "-q", "-n", "0", "-m", "", "-k", "not through_bwrap", *asked]
    run = subprocess.run(
        words, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=1800, check=False
    )
    assert run.returncode == 0 and "skipped" not in run.stdout, run.stdout[-6000:]
