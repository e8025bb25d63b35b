"""The private names of torch that replay, the rungs and the fork server need, and nowhere else in this room.

Every function says which public alternative is missing; all were read on 2.13.0. What another torch lacks is
either guarded here, with a sentence that names the loss, or fails as EnvironmentLackError. Importing this module imports
torch; Inductor is imported by the functions.

>>> from graphdbg.toolkit import _torch
>>> _torch.has_cpp_compiler()
True
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree  # no public module flattens nested values (2.13.0)

from ..dumps.atomic import write_file
from ..dumps.errors import EnvironmentLackError
from .copying import clone_inputs
from .spec import is_opaque, of_the_process

CHECKED = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""Versions of torch on which every stage of a recorded run was replayed to the same numbers and code, on the CPU."""

tree_leaves = pytree.tree_leaves
tree_map = pytree.tree_map

_WARM_MODULES = (
    "torch._inductor.compile_fx", "torch._inductor.codegen.common", "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad", "torch._inductor.fx_passes.freezing_patterns",
    "torch._inductor.fx_passes.mkldnn_fusion", "torch._inductor.fx_passes.quantization",
    "torch._inductor.codegen.wrapper_fxir", "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.memory_planning", "torch._inductor.bounds", "torch._inductor.compiler_bisector",
    "torch._inductor.extern_node_serializer", "torch._inductor.hooks", "torch.fx.experimental.validator",
    "sympy.physics.units", "torch._dynamo.backends.common", "torch._functorch.aot_autograd",
    "torch._functorch.partitioners", "torch._functorch.config", "torch._export.passes._node_metadata_hook", )  # fmt: skip


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
    # Precompiled headers ignore TORCHINDUCTOR_CACHE_DIR, and no setting moves them; a killed g++ would leave half of one in
    # the user's.
    from torch._inductor import codecache

    if hasattr(codecache, "_HEADER_DIR"):
        codecache._HEADER_DIR = str(cache_dir / "precompiled_headers")
        codecache._HEADER_LOCK_DIR = str(cache_dir / "precompiled_headers" / "locks")
    if hasattr(codecache, "_precompile_header"):
        codecache._precompile_header = _remembering(codecache._precompile_header, cache_dir / "precompiled_headers")


def _remembering(precompile: Callable[..., str], folder: Path) -> Callable[..., str]:
    """Torch runs the preprocessor and openssl for each process to name the header; children share one answer, kept in a file."""

    def remembering(header: str, hashable_cmd_line: str, **command: Any) -> str:
        key = hashlib.blake2b(
            f"{header}\n{hashable_cmd_line}\n{sorted(command.items())}".encode(), digest_size=16
        ).hexdigest()
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


def warm_toolchain(seed: Path | None = None) -> None:
    """Fills the per-process memory of vector instruction sets, which a forked child inherits; runs small programs, no
    tensor work. What is kept in `seed`, which is made for one torch, compiler and CPU, is not run again.

    Nothing public tells which instruction set Inductor will pick.
    """
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    with _remembered_probes(seed / "works.json") if seed is not None else contextlib.nullcontext():
        pick_vec_isa()
    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor.codecache import triton_key

        triton_key()  # hashes Triton's own files, half a second; does not touch a device


@contextlib.contextmanager
def _remembered_probes(note: Path) -> Iterator[None]:
    """While open, the probe of an instruction set that once worked is not loaded again in a Python of its own (1 s for all)."""
    from torch._inductor.cpu_vec_isa import VecISA

    original = getattr(VecISA, "check_build", None)
    if original is None:
        yield
        return
    works: set[str] = set()
    with contextlib.suppress(OSError, ValueError):
        works = set(json.loads(note.read_text(encoding="utf-8")))
    before = len(works)

    def check_build(self: Any, code: str) -> bool:
        name = f"{self} {hashlib.blake2b(code.encode(), digest_size=8).hexdigest()}"
        if name not in works and original(self, code):
            works.add(name)
        return name in works

    VecISA.check_build = check_build  # type: ignore[method-assign]
    try:
        yield
    finally:
        VecISA.check_build = original  # type: ignore[method-assign]
    if len(works) > before:
        with contextlib.suppress(EnvironmentLackError):  # a cache folder that cannot be written
            write_file(note, json.dumps(sorted(works)).encode())


def warm_patterns() -> None:
    """Registers the patterns of Inductor's joint and post-grad passes, which each forked child would otherwise do anew (0.3 s).

    They are traced on fake tensors, in Inductor's own order and with its own arguments, or it would register them twice; after
    the user's modules are imported, as in a user's process. The joint ones are made for one device, so where there is a GPU
    they are left to the children. Not public. Checked: 2.13.0.
    """
    joint = importlib.import_module("torch._inductor.fx_passes.joint_graph")
    post_grad = importlib.import_module("torch._inductor.fx_passes.post_grad")
    with contextlib.suppress(AttributeError, TypeError, ImportError):
        if not torch.cuda.is_available():
            takes_device = "input_device" in inspect.signature(joint.joint_graph_passes).parameters
            joint.lazy_init(*([torch.device("cpu")] if takes_device else []))
    with contextlib.suppress(AttributeError, TypeError):
        post_grad.lazy_init()


def forget_copied_tables() -> None:
    """Drops the copy of Inductor's decompositions that a warm process holds; a module imported later may have changed the table.

    Nothing public does it: the copy is a functools.cache. Checked: 2.13.0.
    """
    decomposition = sys.modules.get("torch._inductor.decomposition")
    clear = getattr(getattr(decomposition, "fast_random_decomps", None), "cache_clear", None)
    if clear is not None:
        clear()


def cpp_compiler() -> str | None:
    """The path of the C++ compiler that Inductor would use, None when there is none; no public call tells which one that is."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        return shutil.which(get_cpp_compiler())
    except Exception:  # noqa: BLE001  torch raises its own InvalidCxxCompiler, whose home has moved between versions
        return None


def has_cpp_compiler() -> bool:
    """Whether Inductor can compile for the CPU at all."""
    return cpp_compiler() is not None


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


def shared_fakes(gm: fx.GraphModule, inputs: Sequence[Any], dynamic: bool) -> tuple[list[Any], Any]:
    """Fake inputs for a compile, and their fake mode.

    The placeholders' own `meta["val"]` when they belong to one fake mode and describe the inputs and which of them share memory
    (with symbols only if `dynamic`); else fresh static ones made from the real inputs. Fake tensors have no public module.
    Checked: 2.13.0.
    """
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    recorded = [_fake_of(node) for node in gm.graph.nodes if node.op == "placeholder"]
    modes = {id(value.fake_mode): value.fake_mode for value in recorded if isinstance(value, FakeTensor)}
    alike = all(_stands_for(*pair, dynamic) for pair in zip(recorded, inputs, strict=True))
    traced = any("example_value" in node.meta for node in gm.graph.nodes if node.op == "placeholder")
    if len(modes) == 1 and alike and _share_as_promised(recorded, inputs, views=traced and not dynamic):
        return recorded, next(iter(modes.values()))
    gm.shape_env = None  # type: ignore[assignment]  # Inductor prefers it to the one of the inputs
    given = next((value for value in inputs if isinstance(value, FakeTensor)), None)
    if given is not None:
        return list(inputs), given.fake_mode
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    real_ones = clone_inputs(inputs) if _any_shared(inputs) else inputs  # views of one base, as they were in the program
    return [mode.from_tensor(real) if isinstance(real, torch.Tensor) else real for real in real_ones], mode


def _share_as_promised(recorded: Sequence[Any], inputs: Sequence[Any], views: bool) -> bool:
    """Whether real inputs share memory wherever the recorded values do, which a compiler relies on; with `views` (a graph that
    AOTAutograd still has to see) also whether autograd knows such values as views of each other, as it knew the program's.
    """
    first: dict[int, tuple[Any, Any]] = {}
    for fake, real in zip(recorded, inputs, strict=True):
        if isinstance(fake, torch.Tensor) and fake.layout is torch.strided and not _has_symbols(fake) and real.numel():
            mate, real_mate = first.setdefault(fake.untyped_storage()._cdata, (fake, real))
            unrelated = views and mate._base is None and fake._base is None
            if mate is not fake and (unrelated or _memory(real_mate) != _memory(real)):
                return False
    return True


def _any_shared(inputs: Sequence[Any]) -> bool:
    seen = [_memory(one) for one in inputs if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.numel()]
    return len(set(seen)) < len(seen)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _stands_for(fake: Any, real: Any, dynamic: bool) -> bool:
    """Whether a recorded value describes a real input: the same layout, or symbols in their place when they are wanted."""
    if not isinstance(fake, torch.Tensor) or not isinstance(real, torch.Tensor):
        numbers = isinstance(fake, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, type(None)))
        if type(fake).__name__ == "FakeScriptObject":  # an input that the graph hands through, a device mesh for instance
            return isinstance(real, type(getattr(fake, "real_obj", None)))
        return numbers and not isinstance(real, torch.Tensor) and (dynamic or not _has_symbols(fake))
    if _has_symbols(fake):
        return dynamic and fake.dim() == real.dim() and fake.dtype == real.dtype
    if (fake.shape, fake.stride(), fake.dtype) != (real.shape, real.stride(), real.dtype):
        return False
    # Random state of attention on a GPU: torch promises the compiler a scalar there and makes it on the CPU. Seen on 2.11.0.
    return fake.device == real.device or (real.dim() == 0 and real.device.type == "cpu")


def is_number(node: fx.Node) -> bool:
    """Whether a node's value is a number, a size for instance, and not a tensor."""
    return isinstance(_fake_of(node), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float))


_MISSING = object()


def _fake_of(node: fx.Node) -> Any:
    value = node.meta.get("val", node.meta.get("example_value", _MISSING))
    return int(value) if isinstance(value, torch.SymInt) and value.node.is_constant() else value


def _has_symbols(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if not isinstance(value, torch.Tensor):
        return False
    return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride(), value.storage_offset()))


@contextlib.contextmanager
def settings(config: Mapping[str, Mapping[str, Any]]) -> Iterator[list[str]]:
    """Applies recorded settings of Inductor, Dynamo and functorch; yields a sentence for each that could not be applied.

    Their config modules are private by name (`torch._inductor.config`), though documented. Checked: 2.13.0.
    """
    lost: list[str] = []
    with contextlib.ExitStack() as stack:
        for room, values in config.items():
            module = importlib.import_module(_CONFIG_MODULES[room]) if room in _CONFIG_MODULES else None
            for name, value in values.items():
                if of_the_process(name):
                    continue
                if module is not None and _is_set_here(getattr(module, name, None), value):
                    continue
                if module is None or is_opaque(value):
                    lost.append(f"setting {room}.{name} is not applied: its value could not be saved")
                    continue
                try:
                    stack.enter_context(module.patch({name: value}))
                except (AttributeError, KeyError, TypeError, ValueError):
                    lost.append(f"setting {room}.{name} is not applied: this torch does not have it")
        yield lost


def _is_set_here(value: Any, saved: Any) -> bool:
    """Whether a setting that could not be saved is in force again, because a module of `--import` has set it."""
    named = saved.get("opaque") if isinstance(saved, Mapping) else None
    if value is None or not named:
        return False
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind != named[0]:
        return False
    return not inspect.isfunction(value) or str(named[1]).startswith(f"<function {value.__qualname__} at ")


_CONFIG_MODULES = {
    "inductor": "torch._inductor.config",
    "dynamo": "torch._dynamo.config",
    "functorch": "torch._functorch.config",
}


@contextlib.contextmanager
def watching_compiles(post_grad: Callable[[fx.GraphModule], None], code: Callable[[str], None]) -> Iterator[None]:
    """Calls back with each post-grad graph and each piece of generated code of the compiles inside.

    `inductor.config.post_grad_custom_post_pass` is public but belongs to the user, and runs before the last rewrites.
    Checked: 2.13.0.
    """
    from torch._inductor import compile_fx

    passes, inner = compile_fx._recursive_post_grad_passes, compile_fx._compile_fx_inner
    depth = 0

    def watched_passes(gm: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return passes(gm, *args, **kwargs)
        finally:
            depth -= 1
            if depth == 0:
                post_grad(gm)

    def watched_inner(*args: Any, **kwargs: Any) -> Any:
        compiled = inner(*args, **kwargs)
        code(getattr(compiled, "source_code", "") or "")
        return compiled

    compile_fx._recursive_post_grad_passes, compile_fx._compile_fx_inner = watched_passes, watched_inner
    try:
        yield
    finally:
        compile_fx._recursive_post_grad_passes, compile_fx._compile_fx_inner = passes, inner


def mode_of(gm: fx.GraphModule, fakes: Sequence[Any]) -> Any:
    """The fake mode that fake inputs belong to; a fresh static one for a graph without tensor inputs. Checked: 2.13.0."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    values = [*fakes, *(node.meta.get("val") for node in gm.graph.nodes)]
    found = next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
    return FakeTensorMode(allow_non_fake_inputs=True) if found is None else found


def is_fake(value: Any) -> bool:
    """Whether a tensor has no values. Fake tensors have no public module. Checked: 2.13.0."""
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def kernels_draw_singly() -> bool:
    """Whether Inductor's Triton kernels draw one random number for each index; later versions draw four at once in some.

    Not public. Read on 2.11.0 (singly) and 2.13.0 (not).
    """
    from torch._inductor.codegen.triton import TritonOverrides

    return not hasattr(TritonOverrides, "_can_use_4x_random")


def process_group(name: str) -> Any:
    """The process group that functional collectives know by a name, or None. No public look-up. Checked: 2.13.0."""
    from torch._C import _distributed_c10d

    registry: Any = _distributed_c10d
    try:
        return registry._resolve_process_group(name)
    except (RuntimeError, ValueError):
        return None


def name_process_group(name: str, group: Any) -> None:
    """Lets functional collectives find a group under a name; a new group's own name cannot be chosen. Checked: 2.13.0."""
    from torch._C import _distributed_c10d

    registry: Any = _distributed_c10d
    if process_group(name) is not None:
        registry._unregister_process_group(name)
    registry._register_process_group(name, group)


def has_cpu_kernel(operator: str) -> bool:
    """Whether an operator of aten has a kernel of its own for the CPU. The dispatcher is not public. Checked: 2.13.0."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{operator}", "CPU")
