"""The environment of a fork server: the user's own, less what records, dumps or redirects, plus what a forking torch needs.

>>> server_environment(Path("cache"), Path("tmp"), {"GRAPHDBG": "run", "HOME": "/h"})["TORCHINDUCTOR_CACHE_DIR"]
'cache'
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_REMOVED = frozenset({
    "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DEBUG_DIR", "TORCH_TRACE", "TORCHDYNAMO_REPRO_AFTER", "TORCHDYNAMO_REPRO_LEVEL",
    "TORCH_COMPILE_OVERRIDE_BACKENDS", "TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TRITON_CACHE_DIR", "TORCH_COMPILE_CACHE_DIR",
    "TORCH_BISECT_BACKEND", "TORCH_BISECT_SUBSYSTEM", "TORCH_BISECT_MAX",
})  # fmt: skip


def server_environment(cache_dir: Path, tmp: Path, user: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables for the server: no recorder in it, one thread, CUDA asked for through NVML only, private cache and TMPDIR.

    TMPDIR is private because a killed child leaves compilers' temporary files, and because Inductor puts precompiled
    headers there.
    """
    kept = {name: value for name, value in user.items() if name not in _REMOVED and not name.startswith("GRAPHDBG")}
    return kept | {
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(cache_dir),
        "TRITON_CACHE_DIR": str(cache_dir / "triton"),
        "TMPDIR": str(tmp),
        "PYTHONSAFEPATH": "1",
    }
