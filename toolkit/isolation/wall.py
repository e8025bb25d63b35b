"""The wall that a child goes behind before it reads a run recorded by a stranger: it can write only into its own
folders, and reach no network.

Every mechanism that the kernel allows is used. A server has namespaces of its own (network, mounts, shared memory), in
which a child sees everything else read-only. Where ordinary programs may not create these but `bwrap` may, the server
is started through it, with a network, processes and shared memory of its own; mounts then stay as they are, since bwrap
sets them up once, and each query writes elsewhere. Landlock restricts writes by path, and keeps the child from other
processes; a filter of system calls allows sockets only in the server's own network, and no changes of modes where
mounts stay. Rights of root beyond reading are dropped. Devices stay accessible. `Wall.open` lists what is not closed;
reading is not closed. The wall is built before the first thread, and depends on no environment variable but PATH, for a
file of root's: a mechanism is left out by an argument.

For example:

    wall = begin(PARTS, root)                 # in the server, before it imports torch
    places = wall.prepared([root])            # in the server, before it forks
    wall.enter(places, home=root / "home")    # in the child
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

PARTS = ("namespaces", "mounts", "landlock", "filter")
"""The mechanisms; each is used where the kernel has it."""

_NEWNS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x08000000, 0x10000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE, _NOSUID, _NODEV = 0x1000, 0x4000, 1 << 18, 2, 4
_MOUNT_SETATTR, _RULESET, _RULE, _RESTRICT, _IO_URING = 442, 444, 445, 446, 425
_NO_NEW_PRIVS, _NETLINK = 38, 16
_ARCHITECTURES = {
    "x86_64": (0xC000003E, 41, 317, 280, (*range(90, 95), 132, *range(188, 191), *range(197, 200), 235, 260, 261, 268)),
    "aarch64": (0xC00000B7, 198, 277, 88, (5, 6, 7, 14, 15, 16, 52, 53, 54, 55)),
}
"""Machine -> the kernel's number of the architecture, the numbers of the system calls `socket`, `seccomp` and
`utimensat`, and those of other calls that change modes, owners, times and attributes of files; _NEWER calls have the
same number everywhere."""
_NEWER = (452, 463, 466, 469)

_WRITE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_CHANGES = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))
"""Landlock rights to remove folders and files, and to make folders, files, sockets, FIFOs and links."""
_DEVICES_MADE = 1 << 6 | 1 << 11
_REFER_FROM, _TRUNCATE_FROM, _TCP_FROM, _SCOPES_FROM = 2, 3, 4, 6
"""Versions of Landlock from which on each right exists."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "kfd", "nvidia*", "nvidia-caps/*", "dri/*")
_SHARED = Path("/dev/shm")

_BWRAP = (
    "--die-with-parent --as-pid-1 --unshare-net --unshare-ipc --unshare-pid --dev-bind / / --proc /proc --tmpfs "
    "/dev/shm"
)
_IGNORING_MODES = 1 << 1
"""The capability that root keeps: to ignore file modes, so that it may read what its users may."""


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


class WritableFolders(NamedTuple):
    """The folders in which a child may write, and a descriptor of a mount namespace in which all else is read-only (-1:
    none)."""

    folders: tuple[Path, ...]
    mounts: int = -1


_trees: dict[tuple[Path, ...], int] = {}
"""Writable folders -> descriptor of the mount namespace that this process made for them."""


@dataclass(frozen=True)
class Wall:
    """The mechanisms that work here. `network`: the server has its own; `bwrap`: it has so through bwrap, which also
    hides other processes; `mounts`: each child gets its own mount namespace; `landlock`: the version, 0 for none;
    `filter`: system calls are filtered."""

    network: bool = False
    bwrap: bool = False
    mounts: bool = False
    landlock: int = 0
    filter: bool = False

    @property
    def open(self) -> list[str]:
        """What hostile code in a child can still do besides reading, in a few words each."""
        possible = {
            "write your files": not (self.mounts or self.landlock),
            "change the modes and times of your files": not (self.mounts or self.filter),
            "cut your files short": 0 < self.landlock < _TRUNCATE_FROM and not self.mounts,
            "reach the network": not (self.network or self.filter or self.landlock >= _TCP_FROM),
            "reach the network other than by TCP": not (self.network or self.filter) and self.landlock >= _TCP_FROM,
            "talk to services of this machine (D-Bus, Docker)": not self.filter,
            "signal your processes": self.landlock < _SCOPES_FROM and not self.bwrap,
            "trace your processes": not (self.landlock or self.bwrap),
        }
        return [what for what, is_open in possible.items() if is_open]

    @property
    def built_of(self) -> list[str]:
        """The names of the mechanisms that work here."""
        names = "namespaces by bwrap" if self.bwrap else "namespaces"
        mechanisms = {names: self.network, f"Landlock {self.landlock}": self.landlock, "a filter of calls": self.filter}
        return [name for name, holds in mechanisms.items() if holds]

    def prepared(self, writable: Iterable[Path]) -> WritableFolders:
        """Prepares writing below these existing folders for a child. Raises OSError."""
        folders = tuple(dict.fromkeys(Path(os.path.realpath(folder)) for folder in writable))
        if not self.mounts:
            return WritableFolders(folders)
        if folders not in _trees:
            if len(_trees) > 50:
                os.close(_trees.pop(next(iter(_trees))))
            _trees[folders] = _tree(folders, proc=bool(self.landlock) or os.geteuid() != 0)
        return WritableFolders(folders, _trees[folders])

    def enter(self, places: WritableFolders, home: Path) -> None:
        """Puts this process, which must be single-threaded, behind the wall irrevocably. Raises OSError where that
        fails.

        `home`: becomes its HOME, in one of the places.
        """
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            del os.environ[name]
        os.environ["HOME"] = str(home)
        if sys.platform != "linux":
            return
        libc = _libc()
        if places.mounts >= 0:
            here = os.getcwd()  # noqa: PTH109  the same path in the other mounts
            _checked(libc.setns(places.mounts, _NEWNS), "setns")
            os.chdir(here)
        for handle in _trees.values():
            os.close(handle)
        _checked(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        if self.landlock:
            _landlock(libc, places.folders, self.landlock, tcp=not self.network, shared=self.mounts or self.bwrap)
        _drop_rights(libc)
        if self.filter:
            _filter(libc, (socket.AF_INET, socket.AF_INET6, _NETLINK) if self.network else (), files=not self.mounts)


def _mounts_here(parts: Collection[str]) -> bool | None:
    """Whether this process may create namespaces with mounts (True) or without (False); None where the kernel refuses
    both."""
    wanted = [mounts for mounts in ("mounts" in parts, False) if "namespaces" in parts]
    return next((mounts for mounts in wanted if _succeeds(partial(_own_namespaces, mounts=mounts))), None)


def bubblewrap(parts: Collection[str]) -> list[str]:
    """The command through which a server starts its successor, in namespaces that it may not create itself; empty where
    no bwrap works, or none is needed. Only a bwrap that root alone can write, outside the current folder, is used,
    after a trial."""
    if sys.platform != "linux" or "namespaces" not in parts or _mounts_here(parts) is not None:
        return []
    lost = [name for name in ("LD_LIBRARY_PATH", "TMPDIR") if name in os.environ]  # unset in a setuid program
    words = [*_BWRAP.split(), *(word for name in lost for word in ("--setenv", name, os.environ[name])), "--"]
    for path in (Path(folder, "bwrap") for folder in os.get_exec_path()):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            about = path.stat()
            safe = about.st_uid == 0 and stat.S_ISREG(about.st_mode) and not about.st_mode & 0o022
            if safe and path.is_absolute() and Path.cwd() not in (path.parent, path.resolve().parent):
                subprocess.run([path, *words, path, "--version"], check=True, capture_output=True, timeout=10)
                return [str(path), *words]
    return []


def begin(parts: Collection[str], scratch: Path, *, bwrap: bool = False) -> Wall:
    """Builds a server's wall: its namespaces first; then children try in `scratch` which combination of mechanisms
    works. `bwrap`: the server was started through `bubblewrap`, which made the namespaces."""
    if sys.platform != "linux":
        return Wall()
    mounts = False if bwrap else _mounts_here(parts)
    if (network := mounts is not None) and not bwrap:  # tried in a child before: a partial success cannot be undone
        _own_namespaces(mounts=mounts)
    known = platform.machine() in _ARCHITECTURES and struct.calcsize("P") == 8
    wall = Wall(network, bwrap, bool(mounts), version() if "landlock" in parts else 0, "filter" in parts and known)
    fewer: list[dict[str, Any]] = [{"mounts": False}, {"landlock": 0}, {"filter": False}]
    less = [{**change, **more} for change in fewer for more in fewer]  # without one mechanism, then without two
    tried = [wall, *(replace(wall, **change) for change in sorted(less, key=len))]
    return next((candidate for candidate in dict.fromkeys(tried) if _holds(candidate, scratch)), Wall(network, bwrap))


def version() -> int:
    """The usable Landlock version of this kernel; 0 where there is none."""
    abi = _libc().syscall(_RULESET, None, 0, 1) if sys.platform == "linux" else 0
    return abi if abi >= _REFER_FROM else 0  # older versions do not allow moving files between folders


def _holds(wall: Wall, scratch: Path) -> bool:
    """Whether a child can go behind this wall and then write inside it but not outside."""
    inside = scratch / "tmp"
    inside.mkdir(exist_ok=True)
    try:
        places = wall.prepared([inside])
    except OSError:
        return False

    def attempt() -> None:
        wall.enter(places, inside)
        (inside / "wall").touch()
        (inside / "wall").unlink()
        if wall.mounts or wall.landlock:
            with contextlib.suppress(OSError):
                (scratch / "wall").touch()
                raise AssertionError("it was written outside")

    return _succeeds(attempt)


def _succeeds(attempt: Callable[[], object]) -> bool:
    """Whether a forked child can run `attempt` without an error."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            attempt()
            code = 0
        except (OSError, AssertionError):
            pass
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def _own_namespaces(*, mounts: bool) -> None:
    """Gives this process a network namespace of its own, shared with its children. Raises OSError where the kernel
    refuses."""
    libc, flags = _libc(), _NEWNET | _NEWIPC | (_NEWNS if mounts else 0)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(flags) < 0:
        _checked(libc.unshare(flags | _NEWUSER), "unshare")
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with contextlib.suppress(OSError), socket.socket() as any_socket:  # loopback: ranks of one graph meet there
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))
    if mounts:
        _checked(libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None), "mount")
        if _SHARED.is_dir():
            _checked(libc.mount(b"tmpfs", bytes(_SHARED), b"tmpfs", _NOSUID | _NODEV, b"mode=1777"), "mount")


def _tree(places: Iterable[Path], *, proc: bool) -> int:
    """A descriptor of a mount namespace, made by a child, in which only `places` and shared memory are writable.
    `proc`: /proc, too, where CUDA names its threads; root may not write there without Landlock."""
    (ready, signalled), (wait, go_on) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _see_read_only(_libc(), [bytes(place) for place in places], [b"/proc"] if proc else [])
            os.write(signalled, b"x")
            os.close(go_on)
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(signalled)
    try:
        if not os.read(ready, 1):
            raise OSError(errno.EPERM, "mounts cannot be made here")
        return os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for handle in (ready, wait, go_on):
            os.close(handle)
        os.waitpid(pid, 0)


def _see_read_only(libc: Any, places: Iterable[bytes], left: Iterable[bytes]) -> None:
    _checked(libc.unshare(_NEWNS), "unshare")
    _checked(libc.mount(None, b"/", None, _RECURSIVE | _PRIVATE, None), "mount")
    for name in places:
        _checked(libc.mount(name, name, None, _BIND | _RECURSIVE, None), "mount")
    _set_read_only(libc, b"/", True)
    for name in [*places, *left, *([bytes(_SHARED)] if _SHARED.is_dir() else [])]:
        _set_read_only(libc, name, False)


def _set_read_only(libc: Any, name: bytes, on: bool) -> None:
    attributes = struct.pack("QQQQ", int(on), int(not on), 0, 0)
    _checked(libc.syscall(_MOUNT_SETATTR, -100, name, 0x8000, attributes, len(attributes)), "mount_setattr")


def _landlock(libc: Any, places: Iterable[Path], abi: int, *, tcp: bool, shared: bool) -> None:
    """Restricts this process and its children to write below `places` and to devices only, and to leave other processes
    alone."""
    one_file = _WRITE | (_TRUNCATE if abi >= _TRUNCATE_FROM else 0)
    below = one_file | _CHANGES | _REFER
    rights = [below | _DEVICES_MADE, 3 if tcp and abi >= _TCP_FROM else 0, 3 if abi >= _SCOPES_FROM else 0]
    ruleset = struct.pack("Q" * len(rights), *rights)[: 8 if abi < _TCP_FROM else 16 if abi < _SCOPES_FROM else 24]
    rules = _checked(libc.syscall(_RULESET, ruleset, len(ruleset), 0), "landlock")
    devices = [path for name in _DEVICES for path in Path("/dev").glob(name) if path.is_char_device()]
    on_gpu = any(not path.name.endswith(("null", "zero", "full", "random")) for path in devices)
    folders = [*places, *([_SHARED] if _SHARED.is_dir() and (shared or on_gpu) else [])]
    threads = Path("/proc/self/task")
    for path, right in [*((place, below) for place in folders), *((place, one_file) for place in (*devices, threads))]:
        handle = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
        _checked(libc.syscall(_RULE, rules, 1, struct.pack("=Qi", right, handle), 0), "landlock")
        os.close(handle)
    _checked(libc.syscall(_RESTRICT, rules, 0), "landlock")
    os.close(rules)


def _drop_rights(libc: Any) -> None:
    """Drops the capabilities of root, or of a user namespace's owner."""
    kept = _IGNORING_MODES if os.geteuid() == 0 else 0
    header, now = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    _checked(libc.capget(header, now), "capget")
    effective, permitted = (word & kept for word in struct.unpack_from("II", now.raw))
    _checked(libc.capset(header, struct.pack("IIIIII", effective, permitted, 0, 0, 0, 0)), "capset")


def _filter(libc: Any, families: Collection[int], *, files: bool) -> None:
    """Allows sockets of these families only, and refuses calls that could create others in another way. One kind stays
    allowed: local SOCK_SEQPACKET, with which CUDA starts and which services do not offer. `files`: calls that would
    change modes or times of files do nothing; an error would break copies that programs make in their own folders.
    Setting a time to "now" is refused: a program that touches a file then creates it."""
    architecture, make_socket, seccomp, set_times, changes = _ARCHITECTURES[platform.machine()]
    changes += _NEWER
    load, equal, above, mask, give = 0x20, 0x15, 0x35, 0x54, 0x06
    allowed, refused = 0x7FFF0000, 0x50000 | errno.EACCES
    unchanged = [
        *((equal, len(changes) + 3 - at, 0, call) for at, call in enumerate(changes)),
        (equal, 0, 4, set_times),
        (load, 0, 0, 32),
        (equal, 0, 1, 0),
        (give, 0, 0, refused),
        (give, 0, 0, 0x50000),
    ]
    tests = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (give, 0, 0, refused),
        (load, 0, 0, 0),
        (above, 0, 1, 0x40000000),
        (give, 0, 0, refused),
        (equal, 0, 1, _IO_URING),
        (give, 0, 0, refused),
        *(unchanged if files else ()),
        (equal, 1, 0, make_socket),
        (give, 0, 0, allowed),
        (load, 0, 0, 16),
        *((equal, len(families) - at + 4, 0, family) for at, family in enumerate(families)),
        (equal, 0, 3, socket.AF_UNIX),
        (load, 0, 0, 24),
        (mask, 0, 0, 0xF),
        (equal, 1, 0, socket.SOCK_SEQPACKET),
        (give, 0, 0, refused),
        (give, 0, 0, allowed),
    ]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *test) for test in tests))
    program = struct.pack("HxxxxxxP", len(tests), ctypes.addressof(packed))
    _checked(libc.syscall(seccomp, 1, 4, program), "seccomp")  # 4: no mitigation that slows loads down
