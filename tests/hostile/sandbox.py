"""Where one damaged dump is read: a folder beside which nothing may be touched, a fork that is watched, a lack of
something.

>>> box = Sandbox(place, corpus["run"], Random("1:17"), lack="disk")
>>> box.watched(lambda said: read_all(box, "run", said))
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from . import mutations

Told = dict[str, Any]
LIMIT_S = 20
"""Of one command: seconds of computing, or by the clock without any computing. On a busy machine the clock alone says
little."""
MEMORY_BYTES = 1 << 30
SECRET = "what nobody may read"
LACKS = ("disk", "file size", "descriptors", "stdout")
STARTS = {
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
    "os.fork",
    "pty.spawn",
    "ctypes.dlopen",
    "socket.connect",
}
WRITES = {
    "os.mkdir": 2,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.chmod": 2,
    "os.chown": 3,
}
"""Events -> which of their arguments is the folder that paths are relative to, or above 2 not one."""
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Sandbox:
    """A folder with one damaged dump, and beside it what may not be touched."""

    def __init__(self, place: Path, source: Path, random: Random | None, lack: str = "") -> None:
        self.place, self.outside, self.lack, self.killed = place, place / "outside", lack, False
        self.room = random.choice((0, 1, 4, 16, 64)) if random else 64
        self.packed = random.choice(("", "", "O3.zip", "O4.html")) if random else "O3.zip"
        self.outside.mkdir(parents=True)
        (self.outside / "secret").write_text(SECRET)
        mutations.OUTSIDE = self.outside
        self.dump = place / "work" / source.name
        self.dump.parent.mkdir()
        shutil.copytree(source, self.dump, symlinks=True) if source.is_dir() else shutil.copyfile(source, self.dump)
        self.own = place / "tmp"
        self.own.mkdir()
        self.done = mutations.damage(self.dump, random) if random else []
        self.bytes = sum(path.lstat().st_size for path in (self.dump, *self.dump.rglob("*")))

    def wrong(self) -> list[Told]:
        """What became of the outside, what was written of it, and what temporary folders were left by who was not
        killed."""
        results = [f"outside/{path.name}" for path in self.outside.iterdir() if path.name != "secret"]
        if (self.outside / "secret").read_text() != SECRET:
            results.append("outside/secret")
        left = [path.name for path in self.own.iterdir() if path.name.startswith("graphdbg-") and not self.killed]
        return [
            *(wrong("outside", name) for name in results),
            *(wrong("left", name.rpartition("-")[0]) for name in left[:1]),
        ]

    def watched(self, work: Callable[[Callable[[Told], object]], Told]) -> Told:
        """What the work told, in a fork, and how that ended."""
        said, saying = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(said)
            self._in_fork(work, saying)
        os.close(saying)
        messages: Told = {"stage": "damaged", "codes": {}, "wrong": [], "now": ""}
        with open(said, "rb", closefd=True) as lines:  # noqa: PTH123 - a descriptor
            ended, data = _until_end(child, lines.fileno())
        for line in data.split(b"\n")[:-1]:  # the last one may be cut
            messages |= json.loads(line)
        usage = os.wait4(child, 0)
        number = os.WTERMSIG(usage[1]) if os.WIFSIGNALED(usage[1]) else 0
        self.killed = bool(ended or number)
        ended = ended or ("slow" if number == signal.SIGPROF else f"signal {number}" if number else "")
        if ended:
            messages["wrong"].append(wrong(ended, messages["now"]))
        took = (usage[2].ru_maxrss << 10) - messages.get("before", 1 << 60)
        if took > MEMORY_BYTES + self.bytes:
            messages["wrong"].append(wrong("memory", f"{took >> 20} MiB"))
        return messages

    def _in_fork(self, work: Callable[[Callable[[Told], object]], Told], saying: int) -> None:
        try:
            os.setpgid(0, 0)
            os.chdir(self.place / "work")
            os.environ |= {"HOME": str(self.own), "TMPDIR": str(self.own), "XDG_CACHE_HOME": f"{self.own}/cache"}
            tempfile.tempdir = str(self.own)
            sys.dont_write_bytecode = True

            def say(item: Told) -> None:
                os.write(saying, json.dumps(item).encode() + b"\n")

            say({"before": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()})
            started = watch(self.place)
            self._without()
            reported = work(say)
            from graphdbg.dumps import temporary

            temporary.remove_mine()
            reported["wrong"] += [wrong("started", item) for item in started]
            say(reported)
        except BaseException:  # noqa: BLE001 - told to the parent, and no further: this is a fork
            os.write(saying, json.dumps({"wrong": [wrong("fuzzer", text=traceback.format_exc())]}).encode() + b"\n")
        finally:
            sys.stdout.flush()
            os._exit(0)

    def _without(self) -> None:
        """From now on something is lacking."""
        most = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1 + self.room % 10
        if self.lack == "descriptors":
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        elif self.lack == "file size":
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.room << 10, self.room << 10))
        elif self.lack == "disk":
            free = shutil.disk_usage(self.place).free - (self.room << 10)
            (self.place / "filler").write_bytes(bytes(max(0, min(free, 1 << 28))))

    @contextlib.contextmanager
    def stdout(self, into: Any) -> Iterator[None]:
        """Where the commands print: `into`, or a stdout that takes nothing."""
        if self.lack != "stdout":
            with contextlib.redirect_stdout(into):
                yield
            return
        if self.room % 3 == 0:
            writing = os.open("/dev/full", os.O_WRONLY)
        else:
            reading, writing = os.pipe()
            if self.room % 3 == 1:
                os.close(reading)
            else:
                os.set_blocking(writing, False)
                with contextlib.suppress(BlockingIOError):
                    while os.write(writing, bytes(4096)):
                        pass
        kept = sys.stdout
        sys.stdout = open(writing, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - never closed, which would write once more
        try:
            yield
        finally:
            sys.stdout = kept


def wrong(kind: str, what: str = "", text: str = "") -> Told:
    """One thing that may not be."""
    return {"kind": kind, "what": what, "text": text[-3000:]}


def watch(place: Path) -> list[str]:
    """From now on names what is started, connected to, or written outside the place."""
    results: list[str] = []
    inside = os.path.realpath(place) + os.sep

    def elsewhere(path: Any, *, follow: bool) -> bool:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return False
        text = os.fsdecode(path)
        text = os.path.realpath(text) if follow else os.path.join(os.path.realpath(os.path.dirname(text)), "")  # noqa: PTH118, PTH120
        return not text.startswith((inside, "/dev/null", "/dev/full"))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(args[2], int) and args[2] & _TO_WRITE and elsewhere(args[0], follow=True):
                results.append(f"open {args[0]!r:.120} to write")
        elif event in STARTS:
            results.append(f"{event} {args[:1]!r:.120}")
        elif event in WRITES:
            where = args[WRITES[event]] if WRITES[event] < len(args) else -1
            if where in (None, -1) and any(
                elsewhere(argument, follow=False) for argument in args[event in ("os.symlink", "os.link") : 2]
            ):
                results.append(f"{event} {args[:2]!r:.120}")

    sys.addaudithook(hook)
    return results


def _until_end(child: int, said: int) -> tuple[str, bytes]:
    """All that a fork says until it ends; where it only waits, or leaves something behind that does, it is killed."""
    data, spent, since = b"", -1.0, time.monotonic()
    poll = select.poll()
    poll.register(said)
    while True:
        if poll.poll(1000):
            piece = os.read(said, 1 << 16)
            if not piece:
                return "", data
            data, since = data + piece, time.monotonic()
            continue
        now = _cpu_s(child)
        if now != spent:
            spent, since = now, time.monotonic()
        elif time.monotonic() - since > LIMIT_S:
            os.killpg(child, signal.SIGKILL)
            return "hang", data


def _cpu_s(pid: int) -> float:
    """The time that a process computed."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


@contextlib.contextmanager
def small_disk(mebibytes: int = 48) -> Iterator[Path | None]:
    """A file system of that size, None where this user may mount none."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = Path(tempfile.mkdtemp(prefix="hostile-disk-"))
    there = libc.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, f"size={mebibytes}m".encode()) == 0
    try:
        yield place if there else None
    finally:
        if there:
            libc.umount2(str(place).encode(), 2)
        place.rmdir()
