# pyright: basic
"""The names of Triton that are not its public interface: compiled kernels' forms, the assembler, the interpreter.

Read on Triton 3.6.0. Importing this module imports Triton.
"""

from __future__ import annotations

from typing import Any

FORMS = ("ttir", "ttgir", "llir", "ptx", "cubin")
"""What Triton makes of a kernel, in order."""


def forms(compiled: Any) -> dict[str, str | bytes]:
    """Each form of a compiled kernel, text but for the machine code."""
    return {name: compiled.asm[name] for name in FORMS if name in compiled.asm}


def metadata(compiled: Any) -> dict[str, Any]:
    """What a launch needs of a compiled kernel: warps, stages, blocks of a cluster, dynamic shared memory in bytes, its name."""
    found = compiled.metadata
    names = ("name", "num_warps", "num_stages", "num_ctas", "shared", "enable_fp_fusion")
    return {name: getattr(found, name) for name in names if hasattr(found, name)}


def architecture(capability: int) -> str:
    """The assembler's name of a chip: sm_90a from 9.0 on, where Triton uses what only that one chip has."""
    from triton.backends.nvidia import compiler

    return compiler.sm_arch_from_capability(capability)


def ptxas(capability: int) -> str:
    """Path of the assembler that Triton uses for a chip."""
    from triton.backends.nvidia import compiler

    return compiler.get_ptxas(capability).path


def version() -> str:
    """Triton's version."""
    import triton

    return triton.__version__


def usage_of(cubin: Any) -> str:
    """What NVIDIA's tool that Triton brings reads off machine code: registers, stack, shared memory. `cubin`: its path."""
    import subprocess

    from triton import knobs

    tool = knobs.nvidia.cuobjdump.path
    return subprocess.run([tool, "-res-usage", str(cubin)], capture_output=True, text=True, check=True, timeout=60).stdout
