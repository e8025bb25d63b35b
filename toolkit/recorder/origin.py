"""Where a recording comes from: versions, the environment by allow-list, the rank. Imports nothing heavy, runs nothing.

The allow-list is by name, because whole families of variables (TORCH*, ...) hold tokens and paths that nobody means to share.

>>> rank_and_restart({"RANK": "1"})
(1, 0)
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping

ENVIRONMENT = (
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "KMP_AFFINITY", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
    "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_ENABLE_MPS_FALLBACK", "RANK", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_VERBOSE", "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING", "TORCHINDUCTOR_CPP_WRAPPER", "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_MAX_AUTOTUNE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DISABLE", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TRITON_INTERPRET", "WORLD_SIZE",
)  # fmt: skip

_PACKAGES = ("torch", "triton", "numpy", "graphdbg")
_RANKS = (("RANK", "TORCHELASTIC_RESTART_COUNT"), ("SLURM_PROCID", "SLURM_RESTART_COUNT"), ("OMPI_COMM_WORLD_RANK", ""))


def versions(*, live: bool = False) -> dict[str, str]:
    """Versions of Python, the system and the packages that matter; `live` asks the imported torch, which may be a local build."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    torch_version = getattr(sys.modules.get("torch.torch_version"), "__version__", None) if live else None
    if torch_version is not None:
        found["torch"] = str(torch_version)
    return found


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables on the allow-list that are set."""
    return {name: variables[name] for name in ENVIRONMENT if name in variables}


def rank_and_restart(variables: Mapping[str, str] = os.environ) -> tuple[int | None, int]:
    """The rank of this process and how often its job was restarted; (None, 0) outside a distributed job."""
    for rank, restart in _RANKS:
        if variables.get(rank, "").isdigit():
            count = variables.get(restart, "")
            return int(variables[rank]), int(count) if count.isdigit() else 0
    return None, 0
