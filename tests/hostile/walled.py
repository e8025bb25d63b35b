"""What a child tries that has been taken over: it reaches for files, the network, services and processes of who started it.

Tasks of the tests of the wall; a payload names what there is to reach.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Payload = dict[str, Any]


def attempts(payload: Payload) -> Payload:
    """What of all that could be done, and what there was to see."""
    outside, own = Path(payload["outside"]), Path(payload["own"])
    victim = int(payload["victim"])

    def move() -> None:
        (own / "a").mkdir()
        (own / "file").write_text("x")
        (own / "file").rename(own / "a" / "file")

    def reach(family: int, kind: int, address: Any) -> None:
        with socket.socket(family, kind) as one:
            one.settimeout(5)
            one.connect(address)
            one.send(b"x")

    tried: dict[str, Callable[[], object]] = {
        "inside": move,
        "temporary": lambda: tempfile.TemporaryFile().close(),
        "null": lambda: Path("/dev/null").write_text("x"),
        "new": lambda: (outside / "new").write_text("x"),
        "over": lambda: (outside / "file").write_text("over"),
        "links": lambda: os.link(outside / "file", own / "linked"),
        "away": lambda: (outside / "gone").unlink(),
        "modes": lambda: (outside / "file").chmod(0o777),
        "shorter": lambda: os.truncate(outside / "long", 1),
        "tcp": lambda: reach(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", payload["tcp"])),
        "udp": lambda: reach(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", payload["udp"])),
        "service": lambda: reach(socket.AF_UNIX, socket.SOCK_STREAM, payload["service"]),
        "packets": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).close(),
        "signal": lambda: os.kill(victim, 0),
        "trace": lambda: Path(f"/proc/{victim}/mem").open("r+b").close(),
        "read": lambda: (outside / "file").read_text(),
    }  # fmt: skip
    done: list[str] = []
    for name, one in tried.items():
        with contextlib.suppress(OSError):
            one()
            done.append(name)
    return {"done": done, **seen(payload)}


def seen(payload: Payload) -> Payload:
    """What tells where a child is."""
    status = Path("/proc/self/status").read_text()
    return {
        "server": os.getppid(), "filtered": "Seccomp:\t2" in status, "home": os.environ.get("HOME", ""),
        "variables": "".join(sorted(os.environ)) + Path("/proc/self/environ").read_text(),
    }  # fmt: skip


def instead_of_a_reply(payload: Payload) -> None:
    """Leaves FIFOs where the server looks for files, and ends."""
    for folder in (Path(os.environ["TMPDIR"]).parent / "queries").iterdir():
        (folder / "mark").unlink()
        os.mkfifo(folder / "mark")
        os.mkfifo(folder / "reply")
    os._exit(0)
