"""The `### Versions` section of an issue, in the style of torch's collect_env, by allow-list: what is not named here is
not shown.

Imports no torch (versions come from package metadata and from the text of torch/version.py), does not start anything
but `nvidia-smi` and `gcc --version`, and does not read any other environment variable than those of ALLOWED_VARIABLES.

>>> versions_text().startswith("PyTorch version: 2")
True
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path

from ...dumps.allowlist import words
from ...dumps.opening import text_if_there
from ...dumps.wording import counted
from ...toolkit.isolation.launch import printed_by

ALLOWED_VARIABLES = sorted(
    words(
        """
        CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES MKL_NUM_THREADS NVIDIA_TF32_OVERRIDE OMP_NUM_THREADS PYTHONHASHSEED
        PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF TORCHDYNAMO_DISABLE TORCHDYNAMO_DYNAMIC_SHAPES
        TORCHINDUCTOR_COMPILE_THREADS TORCHINDUCTOR_CPP_WRAPPER TORCHINDUCTOR_EMULATE_PRECISION_CASTS
        TORCHINDUCTOR_FORCE_DISABLE_CACHES TORCHINDUCTOR_FREEZING TORCHINDUCTOR_FX_GRAPH_CACHE
        TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_MAX_AUTOTUNE_GEMM TORCH_COMPILE_DISABLE TORCH_LOGS TRITON_INTERPRET
        """
    )
)
"""Settings that change what the compiler does. Values longer or stranger than a setting are shown as `<set>`."""

PACKAGES = ("torch", "triton", "torchvision", "torchaudio", "torchao", "numpy", "sympy", "networkx", "mkl")

_PLAIN_VALUE = re.compile(r"[\w.,:+=/ -]{0,64}\Z")
_NOT_TOLD = "not available"


def collect() -> dict[str, str]:
    """Names and values in the order in which they are shown; a value that cannot be had says so, and nothing raises."""
    torch = torch_build()
    return {
        "PyTorch version": package_version("torch") or "not installed",
        "Git revision": torch.get("git_version", _NOT_TOLD),
        "Is debug build": torch.get("debug", _NOT_TOLD),
        "CUDA used to build PyTorch": torch.get("cuda", "None"),
        "ROCM used to build PyTorch": torch.get("hip", "None"),
        "OS": _operating_system(),
        "GCC version": _compiler("g++"),
        "Clang version": _compiler("clang++"),
        "Libc version": "-".join(platform.libc_ver()) if platform.libc_ver()[0] else "N/A",
        "Python version": f"{platform.python_version()} ({platform.python_implementation()}, "
        f"{sys.maxsize.bit_length() + 1}-bit)",
        "Python platform": platform.platform(),
        "GPU models and configuration": _gpus(),
        "CPU": _cpu(),
    }


def packages() -> dict[str, str]:
    """Versions of the packages that matter to a compile, and of graphdbg itself."""
    versions = {name: package_version(name) for name in PACKAGES}
    from ... import __version__

    return {**{name: version for name, version in versions.items() if version}, "graphdbg": __version__}


def settings(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The allow-listed environment variables that are set."""
    source = os.environ if environment is None else environment
    variables = {name: source[name] for name in ALLOWED_VARIABLES if name in source}
    return {name: value if _PLAIN_VALUE.match(value) else "<set>" for name, value in variables.items()}


def versions_text() -> str:
    """The whole section as plain text, ready for a code fence."""
    lines = [f"{name}: {value}" for name, value in collect().items()]
    lines += ["", "Versions of relevant libraries:"]
    lines += [f"[pip3] {name}=={version}" for name, version in packages().items()]
    chosen = settings()
    if chosen:
        lines += ["", "Environment (by allow-list):"]
        lines += [f"{name}={value}" for name, value in chosen.items()]
    return "\n".join(lines)


def package_version(name: str) -> str | None:
    """Installed version of a distribution, without importing it; None when it is not there."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def torch_build() -> dict[str, str]:
    """The fields of torch/version.py (`cuda`, `hip`, `git_version`, `debug`), read as text: importing torch takes
    seconds."""
    spec = util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    text = text_if_there(Path(spec.origin).with_name("version.py"))
    pattern = r"^(cuda|hip|git_version|debug)\s*(?::[^=\n]*)?=\s*['\"]?([^'\"\n]*)['\"]?\s*$"
    return dict(re.findall(pattern, text, re.MULTILINE))


def _operating_system() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = f"{platform.system()} {platform.release()}"
    return f"{name} ({platform.machine()})"


def _compiler(name: str) -> str:
    path = shutil.which(os.environ.get("CXX", name) if name == "g++" else name)
    lines = printed_by([path, "--version"]).splitlines() if path else []
    return lines[0] if lines else "Could not collect"


def _gpus() -> str:
    if not shutil.which("nvidia-smi"):
        return "No CUDA"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    lines = printed_by(query).splitlines()
    return "; ".join(f"GPU {index}: {line}" for index, line in enumerate(lines)) or "No CUDA"


def _cpu() -> str:
    model, flags, cores = platform.processor() or platform.machine(), "", counted(os.cpu_count() or 1, "logical core")
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{model}, {cores}"
    if match := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
        model = match[1]
    if match := re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE):
        known = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")
        flags = " ".join(flag for flag in known if flag in match[1].split())
    return f"{model}, {cores}" + (f", {flags}" if flags else "")
