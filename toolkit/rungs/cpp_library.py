"""The C++ standard library of what is built ahead of time: it must be the shared one, which torch uses.

Some compilers (wrappers with -static-libstdc++, copies of GCC whose folder has libstdc++.a and no libstdc++.so) put a
libstdc++ into each library. Beside torch's shared one it crashes while it is loaded: it has locales of its own, but the
dynamic linker shares the ids of their parts, so std::regex, with which torch's runtime reads the device's name, calls a
wrong part. Must not change what other compilers build.

For example:

    with shared_standard_library() as notes:
        build()
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...dumps.errors import CannotCompileError, ToolchainError
from .. import torch_private as t

SHARED = "libstdc++.so.6"
CRASHES = "such a library crashes in torch's loader, which uses the shared one"
_PROBE = 'extern "C" void *_ZNSt6locale7classicEv(); extern "C" void *probe() { return _ZNSt6locale7classicEv(); }\n'
_EXPORTED = b"_ZNSt6locale7classicEv"
"""std::locale::classic(): whoever defines it for others has locales of its own."""
_DYNAMIC, _DYNSYM, _NEEDED = 6, 11, 1
"""Numbers of the ELF format: two types of sections, and the tag of a library that is needed."""


@contextlib.contextmanager
def shared_standard_library() -> Iterator[list[str]]:
    """Within it torch links the shared libstdc++, whatever the compiler does by itself; gives what is to be told about
    it.

    Raises EnvironmentLackError where the compiler cannot.
    """
    settings = t.inductor_config.aot_inductor
    if sys.platform != "linux" or settings.package_cpp_only or settings.cross_target_platform:
        yield []
        return
    compiler = t.get_cpp_compiler()
    if not _links_its_own(compiler):
        yield []
        return
    if _links_its_own(compiler, f"-l:{SHARED}") is not False:
        raise ToolchainError(
            "no library can be built ahead of time",
            f"{compiler} links libstdc++ statically and does not find {SHARED}; {CRASHES}",
            "set CXX to a compiler that links the shared one, for instance CXX=/usr/bin/g++",
        )
    with t.inductor_config.patch({"aot_inductor.custom_op_libs": [*(settings.custom_op_libs or ()), f":{SHARED}"]}):
        yield [f"linked to the shared {SHARED}: {compiler} would have linked it statically, and {CRASHES}"]


def refuse_its_own(package: str | Path) -> None:
    """Raises UsageError for a package with a library that would crash while it is loaded."""
    if sys.platform != "linux" or not zipfile.is_zipfile(package):
        return
    with zipfile.ZipFile(package) as archive, Path(package).open("rb") as file:
        for member in archive.infolist():
            if member.filename.endswith(".so") and member.compress_type == zipfile.ZIP_STORED:
                file.seek(member.header_offset + 26)
                name, extra = struct.unpack("<HH", file.read(4))
                if holds_its_own(file, member.header_offset + 30 + name + extra):
                    raise CannotCompileError(
                        f"cannot load {package}",
                        f"its library was linked to libstdc++ statically, and {CRASHES}",
                        "build it again with compile_ahead_of_time, which links the shared one, or with another "
                        "compiler, for instance CXX=/usr/bin/g++",
                    )


def holds_its_own(file: BinaryIO, start: int = 0) -> bool:
    """Whether a 64-bit ELF library that begins at `start` defines libstdc++'s locales for others, and needs no
    libstdc++."""

    def read(offset: int, size: int) -> bytes:
        file.seek(start + offset)
        return file.read(size)

    head = read(0, 64)
    if head[:5] != b"\x7fELF\x02" or head[5] != 1:
        return False
    (offset,), (size, count) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<HH", head, 58)
    sections = []
    for index in range(count):
        entry = read(offset + index * size, 64)
        sections.append((*struct.unpack_from("<4xI16xQQI", entry),))
    needed, defined = [], False
    for kind, place, length, link in sections:
        if kind not in (_DYNAMIC, _DYNSYM):
            continue
        names, data = read(sections[link][1], sections[link][2]), read(place, length)
        if kind == _DYNAMIC:
            needed += [_name(names, at) for tag, at in struct.iter_unpack("<QQ", data) if tag == _NEEDED]
        else:
            symbols = struct.iter_unpack("<IBBHQQ", data)
            defined = any(place and _name(names, at) == _EXPORTED for at, _, _, place, _, _ in symbols)
    return defined and not any(name.startswith(b"libstdc++.so") for name in needed)


def _name(names: bytes, at: int) -> bytes:
    return names[at : names.index(b"\0", at)]


@functools.cache
def _links_its_own(compiler: str, *more: str) -> bool | None:
    """Whether what this compiler links holds a libstdc++ of its own; None where it links nothing."""
    with tempfile.TemporaryDirectory(prefix="graphdbg-cxx-") as folder:
        source, library = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text(_PROBE, encoding="utf-8")
        command = [*shlex.split(compiler), "-shared", "-fPIC", str(source), "-o", str(library), *more]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=os.environ, check=False)
        except OSError:
            return None
        if done.returncode != 0:
            return None
        with library.open("rb") as file:
            return holds_its_own(file)
