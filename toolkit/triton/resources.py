"""What the assembler says of a kernel: registers, spills, shared memory. Reads ptxas' report; runs the ptxas that Triton brings.

>>> resources_of("... Used 24 registers, used 1 barriers, 1024 bytes smem ...")
Resources(registers=24, ...)
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import msgspec

from ...dumps.errors import EnvironmentLackError

LIMIT_S = 120.0


class Resources(msgspec.Struct, frozen=True):
    """Of one thread: registers (32 bit) and bytes of stack, spilled stores and loads; of one block: bytes of shared memory."""

    registers: int
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0

    @property
    def spills(self) -> int:
        """Bytes that a thread writes to and reads from local memory because registers ran out."""
        return self.spill_stores + self.spill_loads


_REGISTERS = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


def resources_of(report: str, shared: int = 0) -> Resources | None:
    """Reads the report of `ptxas -v`; None where it tells no registers. `shared`: bytes that a launch asks for on top."""
    registers, frame, fixed = _REGISTERS.search(report), _FRAME.search(report), _SHARED.search(report)
    if registers is None:
        return None
    stack, stores, loads = (int(one) for one in frame.groups()) if frame else (0, 0, 0)
    return Resources(int(registers.group(1)), stack, stores, loads, shared + (int(fixed.group(1)) if fixed else 0))


def assemble(ptx: str, architecture: str, ptxas: str, shared: int = 0) -> tuple[Resources | None, str]:
    """(resources, the whole report) of PTX text for `sm_90a`. Raises EnvironmentLackError where ptxas cannot be run."""
    with tempfile.TemporaryDirectory(prefix="graphdbg-ptxas-") as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx, encoding="utf-8")
        command = [ptxas, "-v", "-lineinfo", f"--gpu-name={architecture}", str(source), "-o", str(Path(folder, "kernel.cubin"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentLackError("the assembler of Triton could not be run", str(error)) from error
    report = (done.stderr + done.stdout).replace(str(source), "kernel.ptx")
    if done.returncode:
        said = report.strip().splitlines()
        raise EnvironmentLackError(f"ptxas ended with {done.returncode}", said[0] if said else "")
    return resources_of(report, shared), report
