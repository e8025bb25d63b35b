"""The environments of fork servers: the user's own, less what records, dumps or redirects, plus what a forking torch needs;
and that of whole programs, by allow-list.

>>> server_environment(Path("cache"), Path("tmp"), {"GRAPHDBG": "run", "HOME": "/h"})["TORCHINDUCTOR_CACHE_DIR"]
'cache'
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_REMOVED = frozenset({
    "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DEBUG_DIR", "TORCH_TRACE", "TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_REPRO_LEVEL",
    "TORCH_COMPILE_OVERRIDE_BACKENDS", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TRITON_CACHE_DIR", "TORCH_COMPILE_CACHE_DIR",
    "TORCH_BISECT_BACKEND", "TORCH_BISECT_SUBSYSTEM", "TORCH_BISECT_MAX",
})  # fmt: skip


KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH",
    "PYTHONHOME", "CC", "CXX", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH", "SYSTEMROOT",
)  # fmt: skip
"""What a program needs to find Python, compilers and devices. Settings of torch are not among them: a repro makes its own."""
FORKING = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""A process that forks must have no worker processes of Inductor's and no CUDA."""


def program_environment(cache_dir: Path, tmp: Path, path: Sequence[str] = ()) -> dict[str, str]:
    """The variables for a program of its own, with private caches. `path`: folders where it finds modules beside torch."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    if path:
        kept["PYTHONPATH"] = os.pathsep.join([*filter(None, [kept.get("PYTHONPATH")]), *path])
    return kept | _private(cache_dir, tmp)


def _private(cache_dir: Path, tmp: Path) -> dict[str, str]:
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(cache_dir), "TRITON_CACHE_DIR": str(cache_dir / "triton"), "TMPDIR": str(tmp)
    }  # fmt: skip


def server_environment(cache_dir: Path, tmp: Path, user: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables for the server: no recorder in it, one thread, CUDA asked for through NVML only, private cache and TMPDIR.

    TMPDIR is private because a killed child leaves compilers' temporary files, and because Inductor puts precompiled
    headers there.
    """
    kept = {name: value for name, value in user.items() if name not in _REMOVED and not name.startswith("GRAPHDBG")}
    single = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    return kept | FORKING | single | _private(cache_dir, tmp)
