# pyright: basic
"""Runs generated wrappers on CPU tensors: every kernel that they define is interpreted, everything else runs as it is.

The wrapper was written for device cuda:0. Its allocations, device guards, streams and device arguments are answered on
the CPU; results of library calls are laid out as the wrapper expects them. Launches are reported to observers.

For example:

    with Session().open():
        compiled(inputs)
"""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ....dumps.wording import counted
from ...live.rung import CannotRun
from .. import pretended
from ..emission import loaded
from .memory import AccessWatch, KernelMistake, Memory

LIMIT = 100_000
"""The most programs of one run: each takes the interpreter some milliseconds."""


@dataclass
class InterpretedLaunch:
    """One launch of a kernel. `number`: its index among all launches of a run; `arguments`: by the kernel's parameter
    names, with the constants of the configuration; `buffers`: argument -> the tensor's name in the wrapper."""

    kernel: str
    number: int
    arguments: dict[str, Any]
    constants: set[str]
    grid: tuple[int, int, int]
    config: Any
    signature: Mapping[str, str]
    function: Any
    autotuner: Any
    buffers: dict[str, str] = field(default_factory=dict)
    memory: Memory | None = None
    passed: tuple[Any, ...] = ()
    """The launcher's arguments, in order."""

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The arguments that are tensors."""
        return {name: value for name, value in self.arguments.items() if isinstance(value, torch.Tensor)}


class LaunchObserver:
    """Observes launches and library calls; may give a `watch` for a launch's memory."""

    def kernel(self, kernel: InterpretedKernel) -> None:
        """Called while a wrapper with this kernel is loaded."""

    def began(self, call: Callable[..., Any], inputs: list[Any]) -> None:
        """Called before a wrapper runs."""

    def ended(self, outputs: Any) -> None:
        """Called when a wrapper has returned."""

    def before(self, launch: InterpretedLaunch) -> AccessWatch | None:
        """Called before a kernel runs."""
        return None

    def after(self, launch: InterpretedLaunch) -> None:
        """Called when the kernel has run."""

    def allocated(self, tensor: torch.Tensor) -> None:
        """Called when the wrapper has allocated uninitialised memory."""

    def called(self, operator: Any, read: list[torch.Tensor], written: list[torch.Tensor]) -> None:
        """Called after a library call, outside of kernels."""


class InterpretedKernel:
    """Replaces what `async_compile.triton(...)` returns: `run` interprets the kernel, with its first configuration."""

    def __init__(self, session: Interpretation, name: str, source: str) -> None:
        self.session, self.name, self.source = session, name, source
        session.made += 1
        self.autotuner = loaded(name, source, session.folder / str(session.made))  # wrappers may reuse a name
        self.config = self.autotuner.configs[0]
        self.function = self.autotuner.fn.fn
        self.signature = dict(self.autotuner.triton_meta["signature"])

    def run(self, *arguments: Any, stream: Any = None, benchmark_run: bool = False, **named: Any) -> None:
        """Interprets a launch, as Inductor's launcher would run it."""
        self.session.launch(self._launch(arguments, named, sys._getframe(1).f_locals))

    def _launch(self, arguments: tuple[Any, ...], named: dict[str, Any], scope: Mapping[str, Any]) -> InterpretedLaunch:
        own, grid = self.autotuner._interpret_args_grid(tuple(arguments), self.config)
        names = list(self.autotuner.fn.arg_names)
        known = self.autotuner.triton_meta.get("constants", {})
        fixed = {**{name: value for name, value in known.items() if isinstance(name, str)}, **self.config.kwargs}
        free = [name for name in names if name not in fixed and self.signature.get(name) != "constexpr"]
        by_name = dict(zip(free if len(free) == len(own) else names, own, strict=False))
        if lost := [name for name in names if name not in {**by_name, **fixed, **named}]:
            why = f"Inductor passes no value for {', '.join(lost)} (Triton refuses to compile it, too)"
            raise KernelMistake(f"kernel {self.name}: {why}")
        given = {name: by_name[name] if name in by_name else fixed.get(name, named.get(name)) for name in names}
        constexprs = {name for name in names if name not in by_name or self.signature.get(name) == "constexpr"}
        own_facts = self.config, self.signature, self.function, self.autotuner
        buffers = _names(given, scope)
        return InterpretedLaunch(
            self.name, self.session.launches, given, constexprs, grid, *own_facts, buffers, passed=arguments
        )


def _names(given: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, str]:
    """Argument -> the tensor's name in the wrapper; for an unnamed view, the name of another tensor on that storage."""
    known = {name: value for name, value in scope.items() if isinstance(value, torch.Tensor)}
    by_identity = {id(value): name for name, value in known.items()}
    by_storage = {value.untyped_storage()._cdata: name for name, value in reversed(known.items())}
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    called = {
        name: by_identity.get(id(tensor)) or by_storage.get(tensor.untyped_storage()._cdata)
        for name, tensor in tensors.items()
    }
    return {name: buffer for name, buffer in called.items() if buffer}


class Interpretation:
    """An interpreted run of wrappers: its kernels, the number of launches, its observers.

    `edit(name, source)` may return another source for a kernel than the generated one.
    """

    def __init__(self, *observers: LaunchObserver, edit: Callable[[str, str], str] | None = None) -> None:
        self.observers, self.edit = observers, edit
        self.made = 0
        self.draws_like_cpu = False
        self.kernels: dict[str, InterpretedKernel] = {}
        self.launches = self.programs = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def folder(self) -> Path:
        """The folder of the kernels' sources while it is open."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="graphdbg-kernels-")
        return Path(self._folder.name)

    @contextlib.contextmanager
    def open(self) -> Iterator[Interpretation]:
        """Interprets the kernels that are defined inside the block. To be opened inside `pretending`."""
        from .language import interpreted
        from .on_cpu import answers, drawing_like_cpu

        draws = drawing_like_cpu() if self.draws_like_cpu else contextlib.nullcontext()
        making, loaded = pretended.kernels_made_by(self.make), pretended.wrappers_loaded(self._loaded)
        with making, interpreted(), draws, answers(self), loaded:
            yield self

    def _loaded(self, _: Any, module: Any) -> None:
        module.call = functools.partial(self._called, module.call)

    def _called(self, call: Callable[..., Any], inputs: list[Any]) -> Any:
        from .on_cpu import running

        for observer in self.observers:
            observer.began(call, inputs)
        with running(self):
            outputs = call(inputs)
        for observer in self.observers:
            observer.ended(outputs)
        return outputs

    def make(self, name: str, source: str) -> InterpretedKernel:
        """Creates a kernel of a wrapper."""
        if self.edit is not None:
            source = self.edit(name, source)
        kernel = self.kernels[name] = InterpretedKernel(self, name, source)
        for observer in self.observers:
            observer.kernel(kernel)
        return kernel

    def launch(self, launch: InterpretedLaunch) -> None:
        """Runs one kernel."""
        from . import launching

        self.launches += 1
        self.programs += launch.grid[0] * launch.grid[1] * launch.grid[2]
        if self.programs > LIMIT:
            raise CannotRun(
                f"its kernels run {counted(self.programs, 'program', form=',')} up to {launch.kernel} "
                f"(launch {self.launches}), and more than {LIMIT:,} take the interpreter too long: try it "
                "with smaller inputs"
            )
        watches = [watch for observer in self.observers if (watch := observer.before(launch)) is not None]
        memory = launch.memory = Memory(watches[0] if watches else None)
        launching.run(launch.function, launch.arguments, launch.constants, launch.grid, memory, launch.signature)
        for observer in self.observers:
            observer.after(launch)
