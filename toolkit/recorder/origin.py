"""Where a recording comes from: versions, the environment by allow-list, the rank; and which run folder it goes to
where it was started without a wrapper (GRAPHDBG=RUN): its job's own, or a fresh one.

The processes of one job meet in one folder with no word between them: each takes the first of RUN, RUN-2, ... that is
free or its own job's. A job is known by its launcher's id, and by its ranks: a folder in which this rank has recorded
already is another job's, or an earlier command's. A process without a rank invents an id, which its children inherit
with the name. Leaves folders that are no runs alone; imports nothing heavy.

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
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...dumps.errors import ExistsAlreadyError, GraphdbgError, UsageError
from ...dumps.graph_folder import RUN_FILE
from ...dumps.schema import RunRecord
from ...dumps.secrets import ALLOWED
from ...dumps.writer import RunWriter, joined_record

_PACKAGES = ("torch", "triton", "numpy", "graphdbg")
_RANKS = (("RANK", "TORCHELASTIC_RESTART_COUNT"), ("SLURM_PROCID", "SLURM_RESTART_COUNT"), ("OMPI_COMM_WORLD_RANK", ""))

OWNER, JOB = "_GRAPHDBG_OWNER", "_GRAPHDBG_JOB"
"""Set by the first process that records without a wrapper: its run and job. Its children join and leave the telling to
it."""

_JOBS = (("SLURM_JOB_ID", "SLURM_STEP_ID"), ("PMIX_NAMESPACE",), ("TORCHELASTIC_RUN_ID",))
_NO_ID = ("none", "default", "batch", "interactive")
"""What launchers write where nobody gave an id, and Slurm for steps that hold one command after the other."""
_ATTEMPTS = 100


def versions() -> dict[str, str]:
    """Versions of Python, the system and the packages that matter; an imported torch gives its own version, since it
    may be a local build, and the processor."""
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


def rank_and_restart(variables: Mapping[str, str] = os.environ) -> tuple[int | None, int]:
    """The rank of this process and how often its job was restarted; (None, 0) outside a distributed job."""
    for rank, restart in _RANKS:
        if variables.get(rank, "").isdigit():
            count = variables.get(restart, "")
            return int(variables[rank]), int(count) if count.isdigit() else 0
    return None, 0


def job(rank: int | None, variables: Mapping[str, str] = os.environ) -> str:
    """The id of this process's job: inherited, its launcher's (the same in all ranks), invented, or empty for ranks
    without an id."""
    if JOB in variables:
        return variables[JOB]
    for names in _JOBS if rank is not None else ():
        values = [variables.get(name, "") for name in names]
        if all(values) and not any(value in _NO_ID for value in values):
            return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    return "" if rank is not None else f"process {os.urandom(8).hex()}"


def choose(wanted: str | Path, *, job: str, rank: int | None, restart: int) -> Path:
    """The first of RUN, RUN-2, ... that is free, or was made by this rank's job and not yet recorded into by this
    rank."""
    mine = f"rank{rank}_restart{restart}_pid" if restart else f"rank{rank}_pid"
    for path in _candidates(Path(wanted)):
        if not _taken(path):
            return path
        ours = rank is not None and _made_by(path, job)
        if ours and not any(entry.name.startswith(mine) for entry in path.iterdir()):
            return path
    raise AssertionError("unreachable")


def open_run(wanted: Path, chosen: Path, record: RunRecord) -> RunWriter:
    """Makes the chosen folder, joins it when a process of the same job (`record.job`) made it meanwhile, or takes the
    next name.

    Raises GraphdbgError when no folder can be made or written.
    """
    refused: UsageError | None = None
    rest = itertools.dropwhile(lambda path: path != chosen, _candidates(wanted))
    for candidate in itertools.islice(rest, _ATTEMPTS):
        try:
            return RunWriter.create(candidate, record, join=_made_by(candidate, record.job), ours=True)
        except UsageError as error:
            refused = error
        if _made_by(candidate, record.job):  # between the two looks
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
