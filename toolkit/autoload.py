"""Entry point of torch's plug-in group `torch.backends`: starts the recorder when GRAPHDBG names a run.

Called by torch at the end of `import torch`, in every process that imports it, so it imports next to nothing and never
raises.

>>> os.environ["GRAPHDBG"] = "myrun"; import torch   # torch calls start()
"""

from __future__ import annotations

import os
import sys

_WORKER_FILES = (
    "torch/_inductor/compile_worker",
    "torch/_inductor/autotune_process",
    "torch/_inductor/__autotune_main__",
    "torch._inductor.autotune_process",
)


def start() -> None:
    """Returns at once unless the environment asks for a recording, or in one of Inductor's own worker processes."""
    if os.environ.get("GRAPHDBG_SHADOW") and not in_inductor_worker(sys.orig_argv):
        _start_shadow()
    run = os.environ.get("GRAPHDBG")
    if not run:
        arm = os.environ.get("GRAPHDBG_ARM")
        if arm and not os.environ.get("GRAPHDBG_SHADOW") and not in_inductor_worker(sys.orig_argv):
            _arm(arm)
        return
    if in_inductor_worker(sys.orig_argv):
        del os.environ["GRAPHDBG"]  # nor in what the worker starts
        return
    try:
        from .recorder.starting import start_from_environment

        start_from_environment(run)
    except Exception as error:  # noqa: BLE001 - torch would refuse to import; the program goes on without a recording
        sys.stderr.write(f"graphdbg: not recording, because {_said(error)}\n")


def _said(error: Exception) -> str:
    from ..dumps.errors import said

    return said(error)


def _start_shadow() -> None:
    try:
        from .program.entry import start_from_environment

        start_from_environment()
    except Exception as error:  # noqa: BLE001 - torch would refuse to import; the program goes on alone
        sys.stderr.write(f"graphdbg: nothing is run beside this program, because {_said(error)}\n")


def _arm(value: str) -> None:
    try:
        from .recorder.armed.entry import start_from_environment

        start_from_environment(value)
    except Exception as error:  # noqa: BLE001 - torch would refuse to import; the program goes on without a ring
        sys.stderr.write(f"graphdbg: not armed, because {_said(error)}\n")


def in_inductor_worker(command: list[str]) -> bool:
    """Whether a command line is one of Inductor's compile or autotuning workers, which build no graphs."""
    return any(name in argument.replace(os.sep, "/") for argument in command for name in _WORKER_FILES)
