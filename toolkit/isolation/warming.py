"""What a fork server does before it forks: imports, probes and patterns that each child would otherwise repeat.

For example: `warm_imports(Path("cache"))` gives `[]`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from ...dumps.atomic import write_file
from ...dumps.errors import EnvironmentLackError, LacksName
from .. import torch_private as t
from ..live.spec import no_caches
from ..torch_private.names import WARM_MODULES

_PROBES_AT_ONCE = 4
"""Each runs the C++ compiler, which takes up to 0.5 GB."""


def warm_imports(cache_dir: Path) -> list[str]:
    """Imports what a compile imports lazily, without compiling; returns a sentence for each module that cannot be
    imported."""
    lost = []
    for name in WARM_MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            lost.append(f"{name} cannot be imported by this torch ({error}), so first queries are slower")
    t.optional("init_backend_registration", lambda: None)()
    _use_private_headers(cache_dir)
    return lost


def _use_private_headers(cache_dir: Path) -> None:
    # Precompiled headers ignore TORCHINDUCTOR_CACHE_DIR, and no setting moves them; a killed g++ would leave half of
    # one in the user's.
    folder = cache_dir / "precompiled_headers"
    for name, path in (("HEADER_DIR", folder), ("HEADER_LOCK_DIR", folder / "locks")):
        if t.optional(name) is not None:
            setattr(*t.home(name), str(path))
    precompile = t.optional("precompile_header")
    if precompile is not None:
        setattr(*t.home("precompile_header"), _remembering(precompile, folder))


def _remembering(precompile: Callable[..., str], folder: Path) -> Callable[..., str]:
    """Wraps torch's precompilation of a header: the path for each command is kept in a file, so that children share
    it."""

    def remembering(header: str, hashable_cmd_line: str, **command: Any) -> str:
        words = sorted(f"{name} {value}" for name, value in command.items())  # sorted: a repr may contain an address
        key = hashlib.blake2b(f"{header}\n{hashable_cmd_line}\n{words}".encode(), digest_size=16).hexdigest()
        note = folder / f"{key}.path"
        with contextlib.suppress(OSError):
            known = folder / note.read_text()
            if known.exists():
                return str(known)
        path = precompile(header, hashable_cmd_line, **command)
        note.with_suffix(".part").write_text(Path(path).name)
        note.with_suffix(".part").rename(note)
        return path

    return remembering


def warm_toolchain(seed: Path, seen: Iterable[str] = ()) -> None:
    """Fills the in-process cache of vector instruction sets, which forked children inherit; runs small programs, no
    tensor work. Probes recorded in `seed` (made for one torch, compiler and CPU), or `seen` to work by
    `compile_probe_kernels`, are not run again.
    """
    note, kept = seed / "works.json", set[str]()
    with contextlib.suppress(OSError, ValueError):
        kept = set(json.loads(note.read_text(encoding="utf-8")))
    works = kept.union(seen)
    with _remembered_probes(works):
        t.pick_vec_isa()
    if works > kept:
        with contextlib.suppress(EnvironmentLackError):  # the cache folder cannot be written
            write_file(note, json.dumps(sorted(works)).encode())
    with contextlib.suppress(ImportError, AttributeError):
        t.optional("triton_key", lambda: None)()  # half a second: hashes Triton's own files; touches no device


@contextlib.contextmanager
def _remembered_probes(works: set[str]) -> Iterator[None]:
    """Within the block, a probe of an instruction set listed in `works` is not run again in a Python of its own (up to
    4 s each); probes that work are added."""
    original = t.optional("VecISA.check_build")
    if original is None:
        yield
        return

    def check_build(self: Any, code: str) -> bool:
        name = f"{self} {self.build_arch_flags()} {hashlib.blake2b(code.encode(), digest_size=8).hexdigest()}"
        if name not in works and original(self, code):
            works.add(name)
        return name in works

    with t.swapped("VecISA.check_build", check_build):
        yield


def _try_instruction_sets() -> None:
    """Runs the probes of all instruction sets in parallel; Inductor would run them one after the other."""
    flags = t.optional("x86_isa_checker", list)()  # other machines have a single probe
    sets = [isa for isa in t.optional("supported_vec_isa_list", []) if all(flag in flags for flag in str(isa).split())]
    with ThreadPoolExecutor(max_workers=min(_PROBES_AT_ONCE, os.cpu_count() or 1)) as pool:
        list(pool.map(bool, sets))


def warm_patterns() -> None:
    """Registers the patterns of Inductor's joint and post-grad passes, which each forked child would otherwise repeat
    (0.3 s).

    They are traced on fake tensors, in Inductor's own order and with its own arguments, or it would register them
    twice; after the user's modules are imported, as in a user's process. The joint ones are made for one device, so
    where there is a GPU they are left to the children.
    """
    with contextlib.suppress(LacksName, AttributeError, TypeError, ImportError):
        if not torch.cuda.is_available():
            t.joint_lazy_init(*([torch.device("cpu")] if t.takes("joint_graph_passes", "input_device") else []))
    with contextlib.suppress(LacksName, AttributeError, TypeError):
        t.post_grad_lazy_init()


def forget_copied_tables() -> None:
    """Drops a warm process's cached copy of Inductor's decompositions, since a module imported later may change the
    table.

    The copy is a functools.cache.
    """
    clear = getattr(t.loaded("fast_random_decomps"), "cache_clear", None)
    if clear is not None:
        clear()


def compile_probe_kernels(_payload: dict[str, Any]) -> list[str]:
    """Compiles one vectorised and one scalar kernel, so that each toolchain probe is made, and returns which worked.
    Runs in a child."""
    works: set[str] = set()
    with _remembered_probes(works):
        _try_instruction_sets()
        for dtype in (torch.float32, torch.float64):
            value = torch.ones(64, 64, dtype=dtype)
            gm = t.make_fx(lambda x: [(x.relu() + 1).sum(0)])(value)
            with no_caches():
                t.compile_fx_inner(gm, [value])([value])
    return sorted(works)
