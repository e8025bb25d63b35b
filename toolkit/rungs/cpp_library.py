"""Makes ahead-of-time builds link the shared C++ standard library, which torch uses.

Some compilers (wrappers with -static-libstdc++, copies of GCC whose folder has libstdc++.a and no libstdc++.so) put a
libstdc++ into each library. Loaded beside torch's shared one, it crashes: it has its own locales, but the dynamic
linker shares the ids of locale facets, so std::regex, with which torch's runtime parses the device's name, calls the
wrong facet. Must not change what other compilers build.

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
from collections.abc import Iterator
from pathlib import Path

from ...dumps.errors import ToolchainError
from .. import torch_private as t

SHARED = "libstdc++.so.6"
CRASHES = "such a library crashes in torch's loader, which uses the shared one"
_PROBE = 'extern "C" void *_ZNSt6locale7classicEv(); extern "C" void *probe() { return _ZNSt6locale7classicEv(); }\n'
_EXPORTED = b"_ZNSt6locale7classicEv"
"""std::locale::classic(): a library that exports it has locales of its own."""
_DYNAMIC, _DYNSYM, _NEEDED = 6, 11, 1
"""ELF constants: two section types, and the tag of a needed library."""


@contextlib.contextmanager
def shared_standard_library() -> Iterator[list[str]]:
    """Within the block torch links the shared libstdc++, whatever the compiler's default is; yields notes about it.

    Raises EnvironmentLackError where the compiler cannot.
    """
    settings = t.inductor_config.aot_inductor
    elsewhere = sys.platform != "linux" or settings.package_cpp_only or settings.cross_target_platform
    if elsewhere or not _links_its_own(compiler := t.get_cpp_compiler()):
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


def holds_its_own(library: bytes) -> bool:
    """Whether a 64-bit ELF library exports libstdc++'s locales and does not need the shared libstdc++."""
    if library[:5] != b"\x7fELF\x02" or library[5] != 1:
        return False
    (offset,), (size, count) = struct.unpack_from("<Q", library, 40), struct.unpack_from("<HH", library, 58)
    sections = [struct.unpack_from("<4xI16xQQI", library, offset + index * size) for index in range(count)]
    needed, defined = [], False
    for kind, place, length, link in [section for section in sections if section[0] in (_DYNAMIC, _DYNSYM)]:
        _, start, extent, _ = sections[link]
        names, data = library[start : start + extent], library[place : place + length]
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
    """Whether a library linked by this compiler contains its own libstdc++; None where linking fails."""
    with tempfile.TemporaryDirectory(prefix="graphdbg-cxx-") as folder:
        source, library = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text(_PROBE, encoding="utf-8")
        command = [*shlex.split(compiler), "-shared", "-fPIC", str(source), "-o", str(library), *more]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=os.environ, check=False)
        except OSError:
            return None
        return holds_its_own(library.read_bytes()) if done.returncode == 0 else None
