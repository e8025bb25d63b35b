# pyright: basic
"""Every form of a kernel for a named GPU: Triton's two intermediate forms, LLVM's, PTX, machine code, and the assembler's words.

Inductor's own options and candidates of block sizes; nothing is launched, and no GPU is needed.

>>> with pretending(target):
...     made = kernel_stages("triton_poi_fused_relu_0", source, target, folder)
>>> made[0].resources.registers
16
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from . import _triton, pretended
from .loading import loaded
from .resources import Resources, assemble
from .targets import Target


class Compiled(msgspec.Struct):
    """One candidate of a kernel, compiled. `blocks`: XBLOCK and the like; `launch`: warps, stages, shared memory in bytes;
    `forms`: name -> text, or bytes of the machine code; `report`: the assembler's."""

    kernel: str
    blocks: dict[str, int]
    launch: dict[str, Any]
    forms: dict[str, str | bytes]
    resources: Resources | None
    report: str
    error: str = ""

    def config_text(self) -> str:
        """"XBLOCK=512 warps=4 stages=1"."""
        blocks = [f"{name}={value}" for name, value in self.blocks.items()]
        return " ".join([*blocks, f"warps={self.launch.get('num_warps', '?')}", f"stages={self.launch.get('num_stages', '?')}"])


def kernel_stages(name: str, source: str, target: Target, folder: Path, *, every: bool = True) -> list[Compiled]:
    """Compiles a kernel's source for the pretended target: its candidates in Inductor's order, or (`every` False) the first.

    A candidate that Triton refuses is told of by `error`. Raises what the source raises when it is loaded.
    """
    autotuner = loaded(name, source, folder)
    configs = autotuner.configs if every else autotuner.configs[:1]
    return [_compiled(name, autotuner, config, target) for config in configs]


def _compiled(name: str, autotuner: Any, config: Any, target: Target) -> Compiled:
    blocks = {key: value for key, value in config.kwargs.items() if isinstance(value, int)}
    launch = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    try:
        kernel = pretended.compile_config(autotuner, config)
    except Exception as error:  # noqa: BLE001  a candidate that does not compile is one that is told of
        said = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
        return Compiled(name, blocks, launch, {}, None, "", f"{type(error).__name__}: {said[-1] if said else ''}")
    launch = _triton.metadata(kernel)
    made = Compiled(name, blocks, launch, _triton.forms(kernel), None, "")
    if isinstance(ptx := made.forms.get("ptx"), str):
        architecture, ptxas = _triton.architecture(target.capability), _triton.ptxas(target.capability)
        made.resources, made.report = assemble(ptx, architecture, ptxas, int(launch.get("shared", 0)))
    return made
