"""Runs one command that must not outlive the process that asked for it, not even after kill -9: `python guard.py FD TMP CMD`.

Started by `guarded` and by nobody else, as a file of its own without site packages, so that it costs 20 ms. It adopts whatever
the command leaves behind and ends with the command's own end. It kills all of that when the command ends, at SIGTERM, and when
the other end of the pipe FD is closed, which the kernel does when the asking process dies: then it also removes that process's
folders in TMP. Must import nothing of ours and nothing slow.

>>> process = subprocess.Popen(guarded(["sleep", "1000"], fd, "/tmp"), pass_fds=[fd], start_new_session=True)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence

_PR_SET_CHILD_SUBREAPER = 36
_EVERY_S = 0.5


def guarded(command: Sequence[str], fd: int, tmp: str) -> list[str]:
    """The command line that runs `command` under a guard; `fd`: the reading end of a pipe whose writing end the caller keeps."""
    return [sys.executable, "-I", "-S", __file__, str(fd), tmp, *command]


def main() -> int:
    """The whole life; returns the command's exit code, or dies of the signal that it died of."""
    asked, tmp, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.set_inheritable(asked, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        _become(command)
    signal.signal(signal.SIGTERM, lambda *_: _leave(pid))
    status = None
    while status is None:
        ready, _, _ = select.select([asked, wake], [], [], _EVERY_S)
        if asked in ready:
            _end(pid)
            os.environ["TMPDIR"] = tmp
            os.execv(sys.executable, [sys.executable, "-W", "ignore", "-m", "graphdbg.toolkit.isolation.folders"])
        status = _collect(pid)
        if wake in ready:
            os.read(wake, 4096)
    _end(pid)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _become(command: Sequence[str]) -> None:
    """What the fork does: a group of its own, then the command."""
    try:
        signal.set_wakeup_fd(-1)
        os.setpgid(0, 0)
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(126 if isinstance(error, PermissionError) else 127)


def _collect(pid: int) -> int | None:
    """Collects whatever has ended; the status of `pid` when it is among that."""
    with contextlib.suppress(ChildProcessError):
        while True:
            found, status = os.waitpid(-1, os.WNOHANG)
            if found == pid:
                return status
            if found == 0:
                break
    return None


def _children() -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208  pathlib takes longer to import than all of this
            with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
                found += [int(word) for word in file.read().split()]
    return found


def _end(group: int) -> None:
    """Kills the group and every descendant, one generation at a time, and collects them."""
    for _ in range(200):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


def _leave(group: int) -> None:
    _end(group)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
