"""What a child tries that has been taken over: it reaches for files, the network, services and processes of who started
it.

Tasks of the tests of the wall; a payload names what there is to reach.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphdbg.toolkit.isolation import child

Payload = dict[str, Any]


def attempts(payload: Payload) -> Payload:
    """What of all that could be done, and what there was to see."""
    outside, own = Path(payload["outside"]), Path(payload["own"])
    victim = int(payload["victim"])

    def move() -> None:
        (own / "a").mkdir()
        (own / "file").write_text("x")
        (own / "file").rename(own / "a" / "file")
        (own / "touched").touch()
        (own / "touched").touch()
        shutil.copy2(own / "touched", own / "copied")
        (own / "copied").unlink()

    def reach(family: int, kind: int, address: Any) -> None:
        with socket.socket(family, kind) as item:
            item.settimeout(5)
            item.connect(address)
            item.send(b"x")

    def changed(file: Path) -> None:
        began = file.stat()
        changes: list[Callable[[], object]] = [
            lambda: file.chmod(0o777),
            lambda: os.utime(file, (1, 1)),
            lambda: os.setxattr(file, "user.x", b"x"),
            lambda: os.chown(file, os.getuid(), os.getgid()),
        ]
        with file.open() as opened:
            for item in (
                *changes,
                lambda: os.fchmod(opened.fileno(), 0o777),
                lambda: os.utime(opened.fileno(), (2, 2)),
            ):
                with contextlib.suppress(OSError):
                    item()
        if file.stat() == began:
            raise PermissionError("nothing changed")

    def meet() -> None:
        with socket.create_server(("127.0.0.1", 0)) as place:
            reach(socket.AF_INET, socket.SOCK_STREAM, place.getsockname())

    tried: dict[str, Callable[[], object]] = {
        "inside": move,
        "temporary": lambda: tempfile.TemporaryFile().close(),
        "null": lambda: Path("/dev/null").write_text("x"),
        "new": lambda: (outside / "new").write_text("x"),
        "over": lambda: (outside / "file").write_text("over"),
        "links": lambda: os.link(outside / "file", own / "linked"),
        "away": lambda: (outside / "gone").unlink(),
        "modes": lambda: changed(outside / "file"),
        "shorter": lambda: os.truncate(outside / "long", 1),
        "meet": meet,
        "tcp": lambda: reach(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", payload["tcp"])),
        "udp": lambda: reach(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", payload["udp"])),
        "service": lambda: reach(socket.AF_UNIX, socket.SOCK_STREAM, payload["service"]),
        "packets": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).close(),
        "signal": lambda: os.kill(victim, 0),
        "trace": lambda: Path(f"/proc/{victim}/mem").open("r+b").close(),
        "read": lambda: (outside / "file").read_text(),
    }
    done: list[str] = []
    for name, item in tried.items():
        with contextlib.suppress(OSError):
            item()
            done.append(name)
    return {"done": done, **seen(payload)}


def seen(payload: Payload) -> Payload:
    """What tells where a child is."""
    status = Path("/proc/self/status").read_text()
    return {
        "server": os.getppid(),
        "alone": "NoNewPrivs:\t1" in status,
        "home": os.environ.get("HOME", ""),
        "variables": "".join(sorted(os.environ)) + Path("/proc/self/environ").read_text(),
    }


def instead_of_a_reply(payload: Payload) -> None:
    """Leaves FIFOs where the server looks for files, and ends."""
    for folder in (Path(os.environ["TMPDIR"]).parent / "queries").iterdir():
        (folder / "mark").unlink()
        os.mkfifo(folder / "mark")
        os.mkfifo(folder / "reply")
    os._exit(0)


def wait(payload: Payload) -> None:
    """Says that it is there, and stays."""
    child.report("here")
    time.sleep(300)
