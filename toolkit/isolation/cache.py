"""The private Inductor cache of a fork server, and the per-user seed that spares it the first-use probes.

With a fresh cache folder Inductor's first CPU compile builds half a dozen probes of vector instruction sets (each a g++
run and a dlopen in a process of its own) and one 150 MB precompiled header: 12 to 30 s. They depend only on torch, the
compiler and the CPU, so they are made once per user, kept under XDG_CACHE_HOME/graphdbg/seed/<key>, and hard-linked
into each private cache.

Never writes into the user's own Inductor cache, and never leaves a half-written seed: a seed appears by rename.
Processes that use a seed hold it, so that `cleaning` leaves it alone.

For example, `plant(cache_dir, seed_folder())`: True when a seed was found.
"""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path

from ...dumps.atomic import write_file
from ...dumps.errors import EnvironmentLackError
from . import processes

_SKIP = frozenset({"locks", "fxgraph", "aotautograd", "triton"})
MADE = "complete"
MAKING_PREFIX = ".making-"
NOTE_PREFIX = "note-"
SEEDS = "seed"
"""The folder of all seeds in the cache folder."""


def home() -> Path:
    """The cache folder, which need not be there. Raises RuntimeError where there is no home folder."""
    from platformdirs import user_cache_path

    return user_cache_path("graphdbg")


def seed_folder() -> Path:
    """Where the seed for this torch, compiler and CPU lies (or will lie). Imports torch."""
    import torch

    from ..live.entries import compiler_version

    parts = (torch.__version__, str(torch.version.git_version), compiler_version(), platform.machine(), _cpu_flags())
    key = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    folder = home() / SEEDS / f"{torch.__version__}-{key}"
    _note(folder)
    return folder


def known_seed() -> Path | None:
    """The seed's folder, found without importing torch through the note that `seed_folder` left for this torch,
    compiler and CPU; None where there is none."""
    try:
        seeds = home() / SEEDS
        folder = seeds / (seeds / _note_name()).read_text(encoding="utf-8")
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None
    return folder if (folder / MADE).exists() else None


def _note(seed: Path) -> None:
    with contextlib.suppress(OSError, RuntimeError, EnvironmentLackError):
        note = seed.parent / _note_name()
        if not note.exists() and seed.exists():
            write_file(note, seed.name.encode())


def _note_name() -> str:
    """The name of the note that points to the seed, computed from torch's and the compiler's files, which is quick."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError("there is no torch")
    compiler = os.environ.get("CXX", "g++")
    seen = [str(spec.origin), compiler, platform.machine(), _cpu_flags()]
    for path in (Path(spec.origin).with_name("version.py"), Path(shutil.which(compiler) or compiler).resolve()):
        status = path.stat()
        seen.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return NOTE_PREFIX + hashlib.blake2b("\n".join(seen).encode(), digest_size=8).hexdigest()


def hold(seed: Path) -> int | None:
    """Marks a seed as in use by this process for as long as the returned descriptor is open; None where there is no
    seed, or it cannot be marked (a read-only cache folder)."""
    if not (seed / MADE).exists():
        return None
    try:
        return processes.hold(seed)
    except OSError:
        return None


def plant(cache_dir: Path, seed: Path, *, safely: bool = False) -> bool:
    """Hard-links (or copies, across file systems) a complete seed into `cache_dir`; False when there is none. `safely`:
    makes symbolic links instead, since a process that may write there must not change the seed's files.
    """
    held = hold(seed)
    try:
        if not (seed / MADE).exists():  # checked while it is held: a seed that is being removed is gone by then
            return False
        for source in sorted((seed / "files").rglob("*")):
            target = cache_dir / source.relative_to(seed / "files")
            if source.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif not target.exists():
                target.symlink_to(source) if safely else _link(source, target)
    finally:
        if held is not None:
            os.close(held)
    return True


def furnish(home: Path, seed: Path | None, *, safely: bool = False) -> bool:
    """Plants a seed where programs with the cache folder `home`/cache and the TMPDIR `home`/tmp find it; False without
    a seed.

    Inductor looks for its precompiled header in TMPDIR/torchinductor_<user>, whatever its cache folder is (torch
    2.13.0).
    """
    if seed is None or not plant(home / "cache", seed, safely=safely):
        return False
    with contextlib.suppress(KeyError, OSError):  # a uid without a name: the program builds the header itself
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        place = home / "tmp" / f"torchinductor_{user}" / "precompiled_headers"
        place.parent.mkdir(exist_ok=True)
        (home / "cache" / place.name).rename(place)
    return True


def toolchain_seed() -> Path | None:
    """The seed of this user, torch, compiler and CPU; None when none was made yet. May import torch."""
    folder = known_seed() or seed_folder()
    return folder if folder.exists() else None


def keep(cache_dir: Path, seed: Path, *, safely: bool = False) -> None:
    """Makes the seed from the files that `compile_probe_kernels` left in `cache_dir`. If another process made it
    meanwhile, that one stays. `safely`: the files are copied, not linked.

    Raises OSError where the cache folder cannot be written.
    """
    seed.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=seed.parent, prefix=MAKING_PREFIX))
    held = processes.hold(fresh)
    try:
        for source in sorted(cache_dir.rglob("*")):
            parts = source.relative_to(cache_dir)
            if _SKIP.intersection(parts.parts) or not source.is_file():
                continue
            target = fresh / "files" / parts
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target) if safely else _link(source, target)
        (fresh / MADE).touch()
        with contextlib.suppress(OSError):  # not empty: another server was first
            fresh.rename(seed)
        _note(seed)
    finally:
        os.close(held)
        shutil.rmtree(fresh, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except FileExistsError:  # another server, with the same cache, was first
        return
    except OSError:
        shutil.copy2(source, target)


def _cpu_flags() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor()
