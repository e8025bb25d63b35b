"""Which environment variables may be kept in a run: settings of torch, its compilers and the job, each by its full
name.

By name, because whole families of variables (TORCH*, ...) hold tokens and paths that nobody means to share.

>>> shareable({"OMP_NUM_THREADS": "4", "TORCH_TOKEN": "x", "TRITON_INTERPRET": "/home/ann"})
{'OMP_NUM_THREADS': '4'}
"""

from __future__ import annotations

import re
from collections.abc import Mapping

ALLOWED = (
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "KMP_AFFINITY", "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "PYTORCH_ENABLE_MPS_FALLBACK", "RANK", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_VERBOSE",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING", "TORCHINDUCTOR_CPP_WRAPPER", "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_COMPILE_DEBUG", "TORCH_COMPILE_DISABLE", "TORCH_DEVICE_BACKEND_AUTOLOAD", "TRITON_INTERPRET", "WORLD_SIZE",
)  # fmt: skip

_PLAIN = re.compile(r"[\w.,:+= -]{0,64}", re.ASCII)


def shareable(variables: Mapping[str, str]) -> dict[str, str]:
    """The listed variables whose value is a setting: short, and no path."""
    return {name: text for name, text in variables.items() if name in ALLOWED and _PLAIN.fullmatch(text)}
