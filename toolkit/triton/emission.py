# pyright: basic
"""Every Triton kernel of a generated wrapper in the forms that were asked for, as files and as rows of a table.

Triton's two intermediate forms, LLVM's, PTX, machine code, and what the assembler says of a kernel: registers, spills,
shared memory. Inductor's own options and candidates of block sizes; nothing is launched, and no GPU is needed. Works on
the text of the wrapper, recorded or just written. Runs in a child only, because the sources are programs.

For example:

    rows = emitted_kernels(wrapper, target_of("cuda:90"), ["ptx"], folder, recorded={})
    rows[0].name, rows[0].registers  # -> ('triton_poi_fused_relu_0', 16)
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...dumps import kernels as generated
from ...dumps.errors import ToolchainError
from ...dumps.wording import raised_line
from ..kernels.records import CompiledRow
from . import pretended
from .targets import FORMS, Target


def loaded(name: str, source: str, folder: Path) -> Any:
    """Loads a kernel as Inductor's heuristics make it: `.fn` is Triton's function, `.configs` its candidate
    configurations.

    The source goes to a file in `folder`, because Triton reads it from there. Raises whatever the source raises.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    module_name = f"graphdbg_kernel_{abs(hash(str(path)))}_{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # for the inspect module
    spec.loader.exec_module(module)
    kernels = [each for each in vars(module).values() if hasattr(each, "configs") and hasattr(each, "triton_meta")]
    kernel = getattr(module, name, kernels[0] if kernels else None)  # a user's kernel keeps its own name
    if kernel is None:
        raise ValueError(f"the source of {name} defines no kernel")
    return kernel


LIMIT_S = 120.0


def emitted_kernels(
    wrapper: str, target: Target, forms: Sequence[str], folder: Path, recorded: Mapping[str, str]
) -> list[CompiledRow]:
    """Compiles every candidate of every kernel and writes its forms into `folder`: `NAME.ptx`, of the second one
    `NAME.1.ptx`.

    `recorded`: kernel -> its recorded source, to fill the column `recorded`; empty where there is none. Needs
    `pretending(target)`.
    """
    rows: list[CompiledRow] = []
    with tempfile.TemporaryDirectory(prefix="graphdbg-kernels-") as sources:
        for name, source in triton_sources(wrapper).items():
            try:
                autotuner = loaded(name, source, Path(sources))
                candidates = [_candidate(name, autotuner, config, target) for config in autotuner.configs]
            except Exception as error:  # noqa: BLE001  a kernel that cannot be loaded is a row, and the others go on
                rows.append(CompiledRow(name, error=raised_line(error, 1000)))
                continue
            for place, (row, produced) in enumerate(candidates):
                row.place, row.count, row.recorded = place, len(candidates), _as_recorded(name, source, recorded)
                row.files = _written(row, {form: produced[form] for form in forms if form in produced}, folder)
                rows.append(row)
    return rows


def triton_sources(wrapper: str) -> dict[str, str]:
    """Kernel -> source, in the order of the wrapper."""
    files = {name: text for name, text in generated.split(wrapper).items() if name != generated.WHOLE}
    return {name.removesuffix(".py"): text for name, text in files.items() if name.endswith(".py")}


def _candidate(name: str, autotuner: Any, config: Any, target: Target) -> tuple[CompiledRow, dict[str, str | bytes]]:
    """Compiles one candidate for the pretended target; returns its row and its forms. Where Triton refuses it, the row
    has an `error`."""
    row = CompiledRow(name, _config_text(config, config), dynamic_shared=0)
    try:
        kernel = pretended.compile_config(autotuner, config)
    except Exception as error:  # noqa: BLE001  a candidate that does not compile is reported
        said = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
        row.error = f"{type(error).__name__}: {said[-1] if said else ''}"
        return row, {}
    row.config, row.dynamic_shared = _config_text(config, kernel.metadata), int(getattr(kernel.metadata, "shared", 0))
    forms = {form: kernel.asm[form] for form in FORMS if form in kernel.asm}
    if "ptx" in forms:
        report = assembled(forms["ptx"], target.capability)
        row.report = report.strip()
        for field, count in resources_of(report, row.dynamic_shared).items():
            setattr(row, field, count)
    return row, forms


def _config_text(config: Any, launch: Any) -> str:
    """A configuration as text: "XBLOCK=512 warps=4 stages=1"."""
    blocks = [f"{name}={value}" for name, value in config.kwargs.items() if isinstance(value, int)]
    warps, stages = (getattr(launch, name, "?") for name in ("num_warps", "num_stages"))
    return " ".join([*blocks, f"warps={warps}", f"stages={stages}"])


def architecture(capability: int) -> str:
    """The assembler's name of a chip: sm_90a from 9.0 on, since Triton uses features of that very chip."""
    from triton.backends.nvidia import compiler

    return compiler.sm_arch_from_capability(capability)


def assembled(ptx: str, capability: int) -> str:
    """The report of ptxas (the one that Triton ships) on PTX text. Raises EnvironmentLackError where it cannot run."""
    from triton.backends.nvidia import compiler

    with tempfile.TemporaryDirectory(prefix="graphdbg-ptxas-") as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx, encoding="utf-8")
        options = ["-v", "-lineinfo", f"--gpu-name={architecture(capability)}", "-o", str(Path(folder, "kernel.cubin"))]
        command = [compiler.get_ptxas(capability).path, *options, str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError("the assembler of Triton could not be run", str(error)) from error
    report = (done.stderr + done.stdout).replace(str(source), "kernel.ptx")
    if done.returncode:
        said = report.strip().splitlines()
        raise ToolchainError(f"ptxas ended with {done.returncode}", said[0] if said else "")
    return report


_REGISTERS = re.compile(r"Used (\d+) registers")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")


def resources_of(report: str, shared: int = 0) -> dict[str, int]:
    """The resources in a report of `ptxas -v`, named as fields of CompiledRow; {} where it lists no registers.
    `shared`: bytes of dynamic shared memory to add."""
    registers, frame, fixed = _REGISTERS.search(report), _FRAME.search(report), _SHARED.search(report)
    if registers is None:
        return {}
    stack, stores, loads = (int(amount) for amount in frame.groups()) if frame else (0, 0, 0)
    return {
        "registers": int(registers.group(1)),
        "stack": stack,
        "spill_stores": stores,
        "spill_loads": loads,
        "shared": shared + (int(fixed.group(1)) if fixed else 0),
    }


def _written(row: CompiledRow, forms: Mapping[str, str | bytes], folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    stem = row.name if not row.place else f"{row.name}.{row.place}"
    for form, data in forms.items():
        (folder / f"{stem}.{form}").write_bytes(data if isinstance(data, bytes) else data.encode())
    return {form: f"{stem}.{form}" for form in forms}


_VARYING = re.compile(r"'backend_hash': (?:'[^']*'|None)|# kernel path: .*|filename=[^,]*,")


def same_source(source: str, other: str) -> bool:
    """Whether two sources are the same kernel, apart from comments, empty lines and names of a machine or a cache."""
    return _bare(source) == _bare(other)


def _bare(source: str) -> list[str]:
    lines: Iterable[str] = (_VARYING.sub("", line).strip() for line in source.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _as_recorded(name: str, source: str, recorded: Mapping[str, str]) -> str:
    if not recorded:
        return ""
    if name not in recorded:
        return "not recorded"
    return "as recorded" if same_source(source, recorded[name]) else "differs"
