"""Where a recording comes from: versions, the environment by allow-list, the rank. Imports nothing heavy, runs nothing.

>>> rank_and_restart({"RANK": "1"})
(1, 0)
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping

from ...dumps.environment import ALLOWED

_PACKAGES = ("torch", "triton", "numpy", "graphdbg")
_RANKS = (("RANK", "TORCHELASTIC_RESTART_COUNT"), ("SLURM_PROCID", "SLURM_RESTART_COUNT"), ("OMPI_COMM_WORLD_RANK", ""))


def versions(*, live: bool = False) -> dict[str, str]:
    """Versions of Python, the system and the packages that matter; `live` asks the imported torch, which may be a local build."""
    found = dict(_installed())
    torch_version = getattr(sys.modules.get("torch.torch_version"), "__version__", None) if live else None
    if torch_version is not None:
        found["torch"] = str(torch_version)
    return found


@functools.cache
def _installed() -> tuple[tuple[str, str], ...]:
    found = [("python", platform.python_version()), ("platform", platform.platform())]
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append((package, importlib.metadata.version(package)))
    return tuple(found)


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables on the allow-list that are set."""
    return {name: variables[name] for name in ALLOWED if name in variables}


def rank_and_restart(variables: Mapping[str, str] = os.environ) -> tuple[int | None, int]:
    """The rank of this process and how often its job was restarted; (None, 0) outside a distributed job."""
    for rank, restart in _RANKS:
        if variables.get(rank, "").isdigit():
            count = variables.get(restart, "")
            return int(variables[rank]), int(count) if count.isdigit() else 0
    return None, 0
