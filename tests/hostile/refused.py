"""Becomes a Python whose processes are refused namespaces, as ordinary programs are where only `bwrap` may have them: a
filter of system calls refuses `unshare`, and bwrap makes its own by `clone`.

    python -m tests.hostile.refused -m pytest tests/hostile/test_wall.py
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

UNSHARE, SECCOMP = {"x86_64": (272, 317), "aarch64": (97, 277)}[platform.machine()]


def refuse() -> None:
    """From now on, for this process and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    tests = [(0x20, 0, 0, 0), (0x15, 0, 1, UNSHARE), (0x06, 0, 0, 0x50000 | 1), (0x06, 0, 0, 0x7FFF0000)]
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *test) for test in tests))
    program = struct.pack("HxxxxxxP", len(tests), ctypes.addressof(packed))
    if os.geteuid() != 0:
        libc.prctl(38, 1, 0, 0, 0)
    if libc.syscall(SECCOMP, 1, 0, program):
        raise OSError(ctypes.get_errno(), "seccomp")


if __name__ == "__main__":
    refuse()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
