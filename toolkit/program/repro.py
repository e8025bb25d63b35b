# pyright: basic
"""The program that shows a departing call with torch alone, from what was kept of the function's calls so far.

Kept in memory at each call that is looked at, as text and tensors; written when one departs. What cannot be written is
named, and then there is no program. Never raises into the program.

For example:

    kept = Kept(step); kept.call(0, "step", (x,), {}, start, ambient, set())
    kept.write(Path("found/repro"), call, row, rungs, {})  # -> ''
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...dumps.atomic import write_file
from .reach import argument_names, callable_of, own_modules
from .records import ALONE, LABELS, MODULES, WITH_MODULES, Call, CallRung
from .rungs import Rungs
from .source import CannotSayError, Source, settings_of
from .start import Start
from .template import PROGRAM

MOST_BYTES = 256 << 20
"""Earlier calls with more than this are not kept."""


class FunctionCalls:
    """The calls of one function. `why`: what cannot be written of one of them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        inner, _ = callable_of(function)
        self.source = Source(getattr(inner, "__globals__", {}))
        self.calls: list[tuple[int, list[str]]] = []
        self.why = ""

    def call(
        self, number: int, args: Any, kwargs: Any, start: Start, ambient: Any, touched: set[Any], wanted: bool
    ) -> None:
        """Keeps the state that a call begins with. `wanted`: also where it is large; `touched`: see `Source.begin`."""
        size = sum(kept.nbytes() for _, kept in start.storages.values())
        if self.why or (size > MOST_BYTES and not wanted):
            return
        try:
            self.calls.append((number, self._lines(args, kwargs, start, ambient, touched)))
        except CannotSayError as error:
            self.why = f"there is no text for {error}"
        except RecursionError:
            self.why = "what it reaches is nested too deeply"

    def _lines(self, args: Any, kwargs: Any, start: Start, ambient: Any, touched: set[Any]) -> list[str]:
        source, names = self.source, argument_names(*callable_of(self.function))
        source.begin(start, touched)
        hints = [names[at] if at < len(names) else f"argument_{at}" for at in range(len(args))]
        given = [(hint, source.text(value, hint)) for hint, value in zip(hints, args, strict=True)]
        named = [(name, source.text(value, name)) for name, value in kwargs.items()]
        function = source.text(self.function, "function")
        done: set[str] = set()
        while left := [name for name in source.spaces if name not in done]:
            for name in left:
                done.add(name)
                if name in source.spaces[name]:
                    source.assign(name, source.spaces[name][name])
        everything = [*given, *named, *((name, name) for name in sorted(source.spaces))]
        state = ", ".join(f"{name!r}: {text}" for name, text in everything)
        words = f"({', '.join(text for _, text in given)}{',' if len(given) == 1 else ''})"
        keywords = f"{{{', '.join(f'{name!r}: {text}' for name, text in named)}}}"
        line, depth, lines = f"yield {function}, {words}, {keywords}, lambda: {{{state}}}, {{}}", "", list(source.lines)
        modes = [] if ambient.grad else ["torch.no_grad()"]
        modes += [f"torch.autocast({device!r}, torch.{dtype})" for device, dtype in ambient.autocast.items()]
        if modes:
            lines.append(f"with {', '.join(modes)}:")
            depth = "    "
        return [*lines, depth + line]

    def write(self, folder: Path, call: Call, row: CallRung, rungs: Rungs, given: dict[int, torch.Tensor]) -> str:
        """Writes the program; returns why it cannot. `given`: what arrived at the results, of a backward that
        departs."""
        if self.why:
            return self.why
        backends = {rung: backend for backend, rung in LABELS.items()} | {"inductor": "inductor"}
        if row.rung not in backends:
            return f"its backend, {row.rung}, is the program's own"
        calls = [(number, lines) for number, lines in self.calls if number <= call.number]
        if not calls or calls[-1][0] != call.number:
            return "its arguments were not kept"
        source = self.source
        tensors = dict(source.tensors) | {f"given_{at}": tensor for at, tensor in given.items()}
        asked = getattr(rungs.backend, "config", {})
        options = {key: value for key, value in asked.items() if isinstance(value, (bool, int, str, float))}
        compiled: dict[str, Any] = {
            "fullgraph": bool(getattr(rungs.context, "fullgraph", False)),
            "dynamic": getattr(rungs.context, "_dynamic", None),
        }
        if row.rung == "inductor":
            compiled["options"] = {**options, "fallback_random": True}
        main = sys.modules["__main__"]
        settings = settings_of(main, set())
        of_settings = {
            line.split("(")[0].removeprefix("def ") for line in settings.splitlines() if line.startswith("def ")
        }
        definitions = "\n\n\n".join(text for name, text in source.definitions.items() if name not in of_settings)
        names = sorted(source.spaces)
        body = ([f"global {', '.join(names)}"] if names else []) + [line for _, lines in calls for line in lines]
        if given:
            arrived = ", ".join(f'{at}: T["given_{at}"]' for at in sorted(given))
            body[-1] = body[-1].removesuffix("{}") + f"{{{arrived}}}"
        fields = {
            "function": call.function,
            "place": f"{Path(call.file).name}:{call.line}",
            "number": call.number,
            "reason": _inert(row.verdict.reason),
            "version": torch.__version__,
            "backend": backends[row.rung],
            "compiled": compiled,
            "definitions": definitions,
            "strides": row.verdict.kind == "metadata",
            "settings": settings,
            "tolerance": float(f"{max(row.tolerance or 0.0, min(row.error or 0.0, 1.0) / 10):.1g}"),
            "calls": "\n".join(f"    {line}" for line in body),
            "raises": call.raises,
        }
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(tensors, folder / "repro.pt")
        homes = self._modules(folder, source.homes)
        for name, modules in ((ALONE, homes), (WITH_MODULES, self._modules(folder, set(own_modules())))):
            imports = [
                *sorted(source.imports),
                *(f"import {module}" for module in modules if f"import {module}" not in source.imports),
            ]
            path = f'sys.path.insert(0, str(HERE / "{MODULES}"))\n' if modules else ""
            text = PROGRAM.format(**fields, imports=path + "\n".join(imports))
            write_file(folder / name, text.encode())
        return ""

    def _modules(self, folder: Path, names: set[str]) -> list[str]:
        """Copies the user's modules that are one file each beside the program; returns their names."""
        copied = []
        for name in [module for module in sys.modules if module in names]:
            file = Path(getattr(sys.modules[name], "__file__", "") or "")
            if file.suffix == ".py" and "." not in name:
                (folder / MODULES).mkdir(exist_ok=True)
                shutil.copyfile(file, folder / MODULES / file.name)
                copied.append(name)
        return copied


def _inert(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")
