"""Entry point of torch's plug-in group `torch.backends`: starts the recorder when GRAPHDBG names a run.

Called by torch at the end of `import torch`, in every process that imports it, so it imports next to nothing and never
raises.

>>> os.environ["GRAPHDBG"] = "myrun"; import torch   # torch calls start()
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

_WORKER_FILES = (
    "torch/_inductor/compile_worker",
    "torch/_inductor/autotune_process",
    "torch/_inductor/__autotune_main__",
    "torch._inductor.autotune_process",
)


def start() -> None:
    """Returns at once unless the environment asks for a recording, or in one of Inductor's own worker processes."""
    worker = in_inductor_worker(sys.orig_argv)
    shadow, run, arm = (os.environ.get(name) for name in ("GRAPHDBG_SHADOW", "GRAPHDBG", "GRAPHDBG_ARM"))
    if shadow and not worker:
        _start("program.entry", "nothing is run beside this program")
    if run and worker:
        del os.environ["GRAPHDBG"]  # nor in what the worker starts
    elif run:
        _start("recorder.starting", "not recording", run)
    elif arm and not shadow and not worker:
        _start("recorder.armed.entry", "not armed", arm)


def _start(module: str, failed: str, *given: str) -> None:
    try:
        import_module(f".{module}", __package__).start_from_environment(*given)
    except Exception as error:  # noqa: BLE001 - torch would refuse to import; the program goes on without
        from ..dumps.errors import said

        sys.stderr.write(f"graphdbg: {failed}, because {said(error)}\n")


def in_inductor_worker(command: list[str]) -> bool:
    """Whether a command line is one of Inductor's compile or autotuning workers, which build no graphs."""
    return any(name in argument.replace(os.sep, "/") for argument in command for name in _WORKER_FILES)
