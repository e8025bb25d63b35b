"""A compiler that is not there: which one, what to install, and how far a compile comes without it.

>>> missing(case).fix
'install one (apt-get install g++, ...) or set CXX to it; graphdbg compile with --until codegen works without'
"""

from __future__ import annotations

import re

from .case import Case
from .explained import Explained

KIND = "missing compiler"


def missing(case: Case) -> Explained | None:
    """No C++ compiler, no Triton, no nvcc or ptxas."""
    error = case.find("InvalidCxxCompiler")
    if error is not None:
        tried = re.findall(r"'([^']+)'", str(error)) or re.findall(r"Compiler: (\S+) is not found", str(error))
        return case.told(
            KIND, f"no C++ compiler: the stage {case.stage} needs one for kernels on the CPU",
            f"{' and '.join(tried) or 'g++'} cannot be run (CXX, torch._inductor.config.cpp.cxx)",
            "install one (apt-get install g++, conda install gxx, xcode-select --install) or set CXX to it; "
            "graphdbg compile with --until codegen works without",
        )  # fmt: skip
    if case.find("TritonMissing") is not None:
        return case.told(
            KIND, f"no Triton: the stage {case.stage} needs it for kernels on the GPU", "it is not installed, or too old",
            "pip install triton, in the version that this torch names (pip show torch)",
        )  # fmt: skip
    gone = case.find("FileNotFoundError")
    name = str(getattr(gone, "filename", "") or "")
    if gone is not None and re.search(r"(?:^|/)(?:nvcc|ptxas|ld|g\+\+|gcc|clang(?:\+\+)?|cl|hipcc)(?:-[\d.]+)?$", name):
        return case.told(
            KIND, f"the stage {case.stage} could not run {name}", "there is no such program",
            f"install it, or name another one; what calls it: {case.said()}",
        )  # fmt: skip
    return None
