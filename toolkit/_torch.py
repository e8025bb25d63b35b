"""The private names of torch that replay, the rungs and the fork server need, and nowhere else in this room.

Every function says which public alternative is missing; all were checked on 2.13.0 (`CHECKED`). What another torch lacks is either
guarded here, with a sentence that names the loss, or fails as EnvironmentLackError.
Importing this module imports torch; Inductor is imported by the functions.

>>> from graphdbg.toolkit import _torch
>>> _torch.has_cpp_compiler()
True
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

CHECKED = ("2.13.0",)

_WARM_MODULES = (
    "torch._inductor.compile_fx", "torch._inductor.codegen.common", "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad", "torch._inductor.fx_passes.freezing_patterns", "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.quantization", "torch._inductor.codegen.wrapper_fxir", "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.memory_planning", "torch._inductor.bounds", "torch._inductor.compiler_bisector",
    "torch._inductor.extern_node_serializer", "torch._inductor.hooks", "torch.fx.experimental.validator", "sympy.physics.units",
    "torch._dynamo.backends.common", "torch._functorch.aot_autograd", "torch._functorch.partitioners",
    "torch._functorch.config", "torch._export.passes._node_metadata_hook",
)  # fmt: skip


def warm_imports(cache_dir: Path) -> list[str]:
    """Imports what a compile imports lazily, without compiling; returns a sentence for each module that is not there.

    There is no public call that loads Inductor whole; `torch.compile` loads it on the first graph.
    """
    lost = []
    for name in _WARM_MODULES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            lost.append(f"{name} cannot be imported by this torch ({error}), so first queries are slower")
    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor.codegen.common import init_backend_registration

        init_backend_registration()
    _use_private_headers(cache_dir)
    return lost


def _use_private_headers(cache_dir: Path) -> None:
    # Precompiled headers ignore TORCHINDUCTOR_CACHE_DIR, and no setting moves them; a killed g++ would leave half of one in the user's.
    from torch._inductor import codecache

    if hasattr(codecache, "_HEADER_DIR"):
        codecache._HEADER_DIR = str(cache_dir / "precompiled_headers")
        codecache._HEADER_LOCK_DIR = str(cache_dir / "precompiled_headers" / "locks")
    if hasattr(codecache, "_precompile_header"):
        codecache._precompile_header = _remembering(codecache._precompile_header, cache_dir / "precompiled_headers")


def _remembering(precompile: Callable[..., str], folder: Path) -> Callable[..., str]:
    """Torch runs the preprocessor and openssl for each process to name the header; children share one answer, kept in a file."""
    import hashlib

    def remembering(header: str, hashable_cmd_line: str, **command: Any) -> str:
        key = hashlib.blake2b(f"{header}\n{hashable_cmd_line}\n{sorted(command.items())}".encode(), digest_size=16).hexdigest()
        note = folder / f"{key}.path"
        with contextlib.suppress(OSError):
            known = folder / note.read_text()
            if known.exists():
                return str(known)
        path = precompile(header, hashable_cmd_line, **command)
        note.with_suffix(".part").write_text(Path(path).name)
        note.with_suffix(".part").rename(note)
        return path

    return remembering


def warm_toolchain() -> None:
    """Fills the per-process memory of vector instruction sets, which a forked child inherits; runs small programs, no tensor work.

    Nothing public tells which instruction set Inductor will pick.
    """
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    pick_vec_isa()
    post_grad = importlib.import_module("torch._inductor.fx_passes.post_grad")
    with contextlib.suppress(AttributeError, TypeError):
        post_grad.lazy_init()  # patterns, traced on fake tensors; with the same arguments as Inductor, or it registers them twice


def has_cpp_compiler() -> bool:
    """Whether a C++ compiler that Inductor would use is on the path; no public call tells which one that is."""
    try:
        from torch._inductor.cpp_builder import get_cpp_compiler

        return shutil.which(get_cpp_compiler()) is not None
    except Exception:  # noqa: BLE001  torch raises its own InvalidCxxCompiler, whose home has moved between versions
        return False


def compiler_version() -> str:
    """The version text of Inductor's C++ compiler; it is part of what its probes depend on, and not public."""
    from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

    return get_compiler_version_info(get_cpp_compiler())


def compile_probe_kernels() -> None:
    """Compiles one vectorised and one scalar kernel in this process, so that each toolchain probe is made."""
    from torch._inductor.compile_fx import compile_fx_inner
    from torch.fx.experimental.proxy_tensor import make_fx

    for dtype in (torch.float32, torch.float64):
        value = torch.ones(64, 64, dtype=dtype)
        gm = make_fx(lambda x: [(x.relu() + 1).sum(0)])(value)
        with no_caches():
            compile_fx_inner(gm, [value])([value])


@contextlib.contextmanager
def no_caches() -> Iterator[None]:
    """Switches off the caches of whole graphs (not of kernels), which would hide the passes from a replay.

    `torch.compiler.config.force_disable_caches` is public but throws the kernels' binaries away too.
    """
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    with contextlib.ExitStack() as stack:
        stack.enter_context(inductor_config.patch({"fx_graph_cache": False, "fx_graph_remote_cache": False}))
        stack.enter_context(functorch_config.patch(enable_autograd_cache=False))
        yield
