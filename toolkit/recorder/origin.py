"""Determines where a recording comes from: versions, environment variables on an allow-list, the rank; and to which run
folder it goes where it was started without a wrapper (GRAPHDBG=RUN): its job's own, or a new one.

The processes of one job find one folder without communicating: each takes the first of RUN, RUN-2, ... that is free or
belongs to its job. A job is identified by its launcher's id, and by its ranks: a folder in which this rank has recorded
already belongs to another job, or to an earlier command. A process without a rank generates an id, which its children
inherit with the run's name. Leaves folders that are no runs alone; imports nothing heavy.

>>> rank_and_restart({"RANK": "1"})
(1, 0)
>>> choose("myrun", job="", rank=None, restart=0)      # myrun was recorded yesterday
PosixPath('myrun-2')
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import itertools
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...dumps.errors import ExistsAlreadyError, GraphdbgError, UsageError
from ...dumps.graph_folder import RUN_FILE
from ...dumps.schema import FORMAT, RunRecord
from ...dumps.secrets import ALLOWED
from ...dumps.writer import RunWriter, joined_record
from .options import Options

_PACKAGES = ("torch", "triton", "numpy", "graphdbg")
_RANKS = (("RANK", "TORCHELASTIC_RESTART_COUNT"), ("SLURM_PROCID", "SLURM_RESTART_COUNT"), ("OMPI_COMM_WORLD_RANK", ""))

OWNER, JOB = "_GRAPHDBG_OWNER", "_GRAPHDBG_JOB"
"""Set by the first process that records without a wrapper: its run and its job. Its children join the run and leave the
summary to it."""

_JOBS = (("SLURM_JOB_ID", "SLURM_STEP_ID"), ("PMIX_NAMESPACE",), ("TORCHELASTIC_RUN_ID",))
_NO_ID = ("none", "default", "batch", "interactive")
"""Values that launchers set where no id was given; Slurm sets the last two for steps that run several commands in
turn."""
_ATTEMPTS = 100


def versions() -> dict[str, str]:
    """Versions of Python, the system and the packages that matter, and the processor. An imported torch is asked
    itself, since it may be a local build."""
    known = dict(_installed())
    torch_version = getattr(sys.modules.get("torch.torch_version"), "__version__", None)
    if torch_version is not None:
        known |= {"torch": str(torch_version), "cpu": processor()}
    return known


@functools.cache
def processor() -> str:
    """The instruction set for which torch's C++ kernels are written on this machine: "AVX512"."""
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


@functools.cache
def _installed() -> tuple[tuple[str, str], ...]:
    packages = [("python", platform.python_version()), ("platform", platform.platform())]
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages.append((package, importlib.metadata.version(package)))
    return tuple(packages)


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables on the allow-list that are set."""
    return {name: variables[name] for name in ALLOWED if name in variables}


def run_record(options: Options, command: Sequence[str], **more: Any) -> RunRecord:
    """The record of a run that this process begins now."""
    return RunRecord(
        format=FORMAT,
        command=list(command),
        versions=versions(),
        environment=environment(),
        world_size=int(os.environ.get("WORLD_SIZE") or 1),
        started=time.time(),
        inputs_policy=options.inputs,
        stages=options.stages,
        **more,
    )


def rank_and_restart(variables: Mapping[str, str] = os.environ) -> tuple[int | None, int]:
    """The rank of this process and how often its job was restarted; (None, 0) outside a distributed job."""
    for rank, restart in _RANKS:
        if variables.get(rank, "").isdigit():
            count = variables.get(restart, "")
            return int(variables[rank]), int(count) if count.isdigit() else 0
    return None, 0


def job(rank: int | None, variables: Mapping[str, str] = os.environ) -> str:
    """The id of this process's job: inherited; else its launcher's, the same in all ranks; else "" with a rank, a
    generated id without."""
    if JOB in variables:
        return variables[JOB]
    for names in _JOBS if rank is not None else ():
        values = [variables.get(name, "") for name in names]
        if all(values) and not any(value in _NO_ID for value in values):
            return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return "" if rank is not None else f"process {os.urandom(8).hex()}"


def choose(wanted: str | Path, *, job: str, rank: int | None, restart: int) -> Path:
    """The first of RUN, RUN-2, ... that does not exist, or that this rank's job made and this rank has not recorded
    into."""
    mine = f"rank{rank}_restart{restart}_pid" if restart else f"rank{rank}_pid"
    for path in _candidates(Path(wanted)):
        if not _taken(path):
            return path
        ours = rank is not None and _made_by(path, job)
        if ours and not any(entry.name.startswith(mine) for entry in path.iterdir()):
            return path
    raise AssertionError("unreachable")


def open_run(wanted: Path, chosen: Path, record: RunRecord) -> RunWriter:
    """Creates the chosen folder; joins it when a process of the same job (`record.job`) created it meanwhile, and takes
    the next name when another did.

    Raises GraphdbgError when no folder can be made or written.
    """
    refused: UsageError | None = None
    rest = itertools.dropwhile(lambda path: path != chosen, _candidates(wanted))
    for candidate in itertools.islice(rest, _ATTEMPTS):
        try:
            return RunWriter.create(candidate, record, join=_made_by(candidate, record.job), ours=True)
        except UsageError as error:
            refused = error
        if _made_by(candidate, record.job):  # a process of the same job created it between both checks
            return RunWriter.create(candidate, record, join=True, ours=True)
    raise refused or ExistsAlreadyError(f"cannot record into {wanted}")


def _candidates(wanted: Path) -> Iterator[Path]:
    yield wanted
    for count in itertools.count(2):
        yield wanted.with_name(f"{wanted.name}-{count}")


def _taken(path: Path) -> bool:
    try:
        return path.is_file() or (path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir()))
    except OSError:
        return False


def _made_by(path: Path, job: str) -> bool:
    try:
        return (path / RUN_FILE).exists() and joined_record(path).job == job
    except (GraphdbgError, OSError):
        return False
