# pyright: basic
"""Writes a program that reproduces a departing call with torch alone, from the function's calls kept so far.

Also: runs a function under each of torch's backends in turn, compiled as the program asked. Each rung of a function
keeps its compiled entries while the program runs, so that its guards are reused and recompiled as the program's own
are.

Each call that is looked at is kept in memory, as text and tensors, and written when one departs. Where a part has no
Python text, the reason names it and no program is written. Never raises into the program.

For example:

    kept = FunctionCalls(step); kept.call(asked, start, ambient, set(), False)
    kept.write(Path("found/repro"), call, row, rungs, {}, False)  # -> ''
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...dumps.allowlist import OP_HOMES, WITH_TORCH
from ...dumps.atomic import write_file
from ...dumps.program.entering import CONFIG_MODULES, config_lines, process_lines
from ...dumps.torchside.definitions import of_spaces
from .. import torch_private as t
from ..live.eager import eager_draws
from ..live.torch_state import encoded_settings
from ..torch_private import replaced
from .comparing import WRITTEN
from .reach import argument_names, callable_of, own_file, own_modules
from .records import ALONE, BACKENDS, DRAWN, MODULES, WITH_MODULES, Call, CallRung
from .records import PROGRAM as OWN
from .source import CannotSayError, Source, settings_of
from .start import StartState

if TYPE_CHECKING:
    from .shadowing import Asked

_COMPILE = inspect.unwrap(torch.compile)
"""torch's own `compile`, even where the program replaces it by one that may choose another backend."""
_ROOM = 6
"""By how much Dynamo's recompile limits are multiplied: the program's entry and those of the rungs share a cache."""


class Rungs:
    """The rungs of one function. `names`: from Dynamo alone to the backend that the program asked for; `graphs`: how
    many graphs Dynamo made for the rungs; `filtered`: whether the program drops guards (`guard_filter_fn`)."""

    def __init__(self, function: Callable[..., Any], context: Any) -> None:
        self.function = function
        backend = context.callback
        while hasattr(backend, "_torchdynamo_orig_backend"):
            backend = backend._torchdynamo_orig_backend
        self.backend = backend
        named = getattr(backend, "compiler_name", None) or getattr(backend, "__name__", type(backend).__name__)
        stock = str(getattr(backend, "__module__", "")).partition(".")[0] == "torch"
        self.last = next((rung for rung, of in BACKENDS.items() if stock and of == named), str(named))
        known = list(BACKENDS)
        self.names = [*known[: known.index(self.last) if self.last in known else -1], self.last]
        fullgraph, dynamic = bool(getattr(context, "fullgraph", False)), getattr(context, "_dynamic", None)
        self.asked = {"fullgraph": fullgraph, "dynamic": dynamic}
        hooks = getattr(context.callback, "hooks", None)
        self.filtered = getattr(hooks, "guard_filter_fn", None) is not None
        self._made: dict[str, Callable[..., Any]] = {"eager": function}
        self.graphs = 0

    def key(self, rung: str) -> str:
        """The layer key of a rung; "" for a backend that is not torch's."""
        return rung if rung == "dynamo" else BACKENDS.get(rung, "")

    def call(self, rung: str) -> Callable[..., Any]:
        """The function compiled under a rung; the same object in each call."""
        if rung not in self._made:
            self._made[rung] = self.fresh(rung)
        return self._made[rung]

    def fresh(self, rung: str) -> Callable[..., Any]:
        """The function compiled under a rung, with an empty cache."""
        named = self.backend if rung == self.last else t.look_up("lookup_backend")(BACKENDS[rung])
        chosen = without_cuda_graphs(named)

        def backend(gm: Any, inputs: Any, **kwargs: Any) -> Any:
            self.graphs += 1
            return chosen(gm, inputs, **kwargs)

        backend.of_a_rung = True  # type: ignore[attr-defined]
        alone: dict[str, Any] = {"isolate_recompiles": True} if isolates() else {}
        return _COMPILE(self.function, backend=backend, **self.asked, **alone)


def without_cuda_graphs(backend: Any) -> Any:
    """The backend with CUDA graphs off in its own options: their outputs would be overwritten by the next call, here
    one that runs beside the program's."""
    if not getattr(backend, "config", {}).get("triton.cudagraphs"):
        return backend
    chosen = copy.copy(backend)
    chosen.config = {**backend.config, "triton.cudagraphs": False}
    return chosen


@functools.cache
def isolates() -> bool:
    """Whether this torch keeps the compiled entries of separate torch.compile calls apart (`isolate_recompiles`)."""
    return "isolate_recompiles" in inspect.signature(_COMPILE).parameters


def uncounted(put: t.Replaced) -> None:
    """Excludes the rungs' entries from the count at which Dynamo stops to compile a function of the program."""
    owner, name = t.home("compute_cache_size")
    if isolates() or put.has(owner, name):
        return
    original = getattr(owner, name)
    put.put(owner, name, lambda frame, entry: original(frame, _Entries.of(entry)))


class _Entries:
    """A proxy of a Dynamo cache entry whose `next` skips the entries of rungs."""

    def __init__(self, entry: Any) -> None:
        self.entry, self.next = entry, _Entries.of(entry.next)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)

    @staticmethod
    def of(entry: Any) -> Any:
        while entry and hasattr(getattr(entry.backend, "compiler_fn", None), "of_a_rung"):
            entry = entry.next
        return entry and _Entries(entry)


_forced = threading.local()


def forced() -> bool:
    """Whether this thread is in an eager run, where the program's calls of torch.compile compile nothing."""
    return getattr(_forced, "eager", False)


def as_in_eager(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Lets torch compile what it compiles for itself even in eager mode (`torch.cond`, flex attention): uncompiled it
    gives no gradients for closed-over tensors."""

    @functools.wraps(compiled)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.compiler.set_stance("default"):
            return compiled(*args, **kwargs)

    return run


@contextlib.contextmanager
def stance(eager: bool, plain: bool = False) -> Iterator[None]:
    """Sets torch's stance for a run, whatever the program's is: `eager` compiles nothing, else torch's default.
    Otherwise CUDA graphs are off (see `without_cuda_graphs`), recompile limits are raised so that the rungs' entries do
    not use up the program's, and `numpy.random` and, unless it is `plain`, torch draw eager's numbers."""
    t.look_up("inductor_config")
    with torch.compiler.set_stance("force_eager" if eager else "default"):
        if eager:
            with replaced(_forced, "eager", True):
                yield
            return
        dynamo = t.loaded("dynamo_config")
        limits = {name: getattr(dynamo, name) * _ROOM for name in ("recompile_limit", "accumulated_recompile_limit")}
        alike = dynamo.patch(limits | {"use_numpy_random_stream": True})
        drawing = contextlib.nullcontext() if plain else eager_draws()
        with drawing, t.inductor_config.patch({"triton.cudagraphs": False}), alike:
            yield


PROGRAM = '''\
"""{function}() ({place}), call {number}, departs from eager: made by graphdbg from a program, torch {version}.

What was seen there: {reason}
Exit code 1 while it shows, 0 when it does not, 2 when it cannot tell (with --git-bisect 125). With --without-fault
nothing is compiled, which ends with 0. --backend NAME compiles by another backend of torch's. Tensors lie in
repro.pt beside.
"""

from __future__ import annotations

import os
import pathlib
import sys


def unsure(*error):
    sys.__excepthook__(*error)
    sys.stdout.flush()
    os._exit(125 if "--git-bisect" in sys.argv else 2)


sys.excepthook = unsure
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"  # what another program compiled is no proof
HERE = pathlib.Path(__file__).resolve().parent
{imports}

{settings}

{definitions}


def calls():
    T = torch.load(HERE / "repro.pt", weights_only=True)
{calls}


BACKEND = {backend!r}
COMPILE = {compiled!r}
RAISES = {raises!r}
STRIDES = {strides!r}
TOLERANCE = {tolerance!r}


def rebuilt(kind, state):
    instance = kind.__new__(kind)
    if isinstance(instance, dict):
        dict.update(instance, state)
        return instance
    if isinstance(instance, torch.nn.Module):
        torch.nn.Module.__init__(instance)
    for name, value in state.items():
        if isinstance(instance, torch.nn.Module) and name in ("_parameters", "_buffers", "_modules"):
            instance.__dict__[name].update(value)
        elif hasattr(getattr(kind, name, None), "__objclass__"):  # a slot
            object.__setattr__(instance, name, value)
        else:
            instance.__dict__[name] = value
    return instance


def restore(old, new):
    if isinstance(old, torch.Tensor):
        with torch.no_grad():
            old.copy_(new) if old.shape == new.shape and old.dtype == new.dtype else setattr(old, "data", new.detach())
    elif isinstance(old, list) or type(old).__name__ == "ndarray":
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)
    elif hasattr(old, "extend") and not hasattr(old, "__dict__"):
        old.clear()
        old.extend(new)
    elif hasattr(old, "__closure__"):
        for cell, other in zip(old.__closure__, new.__closure__):
            cell.cell_contents = other.cell_contents
    elif isinstance(old, torch.Generator):
        old.set_state(new.get_state())
    else:
        for name in getattr(old, "__slots__", ()):
            object.__setattr__(old, name, getattr(new, name))
        restore(getattr(old, "__dict__", {{}}), getattr(new, "__dict__", {{}}))


def leaves(value, name, seen=()):
    if id(value) in seen:
        return
    seen = (*seen, id(value))
    if isinstance(value, dict):
        parts = [(f"[{{key!r}}]" if isinstance(key, (str, int)) else "[...]", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)) or hasattr(value, "popleft"):
        parts = [(f"[{{at}}]", part) for at, part in enumerate(value)]
    elif hasattr(value, "__self__") and hasattr(value, "__func__"):
        parts = [("", value.__self__)]
    elif isinstance(value, type) or getattr(value, "__closure__", None):
        methods = vars(value).values() if isinstance(value, type) else [value]
        closed = [part for part in methods if getattr(part, "__closure__", None)]
        cells = [pair for part in closed for pair in zip(part.__code__.co_freevars, part.__closure__)]
        parts = [(f" {{var}}", cell.cell_contents) for var, cell in cells if var != "__class__"]
    elif isinstance(value, (torch.Tensor, type(sys))) or not hasattr(value, "__dict__") or hasattr(value, "__code__"):
        parts = []
        plain = (torch.Tensor, int, float, complex, str, bytes, type(None))
        yield name, value if isinstance(value, plain) else type(value)
    else:
        parts = [(f".{{key}}", part) for key, part in value.__dict__.items() if key != "_is_torch_compile"]
    for place, part in parts:
        yield from leaves(part, name + place, seen)


def whole(value):
    """A plain tensor of all that a sparse tensor or one of others holds; any other as it is."""
    if not hasattr(value, "__tensor_flatten__"):
        return value if value.layout == torch.strided else value.to_dense()
    parts = [whole(getattr(value, name)).detach().reshape(-1) for name in value.__tensor_flatten__()[0]]
    wide = [part.to(value.device, torch.complex128 if part.is_complex() else torch.float64) for part in parts]
    return torch.cat(wide)


def left(function, run, args, kwargs, state, given):
    """All that a call leaves, by name."""
    before = [(name, value) for part in ({{"it": function}}, state()) for name, value in leaves(part, "")]
    tensors = [(name, value) for name, value in before if isinstance(value, torch.Tensor)]
    wanted = {{id(value): (name, value) for name, value in tensors if value.requires_grad}}
    torch.manual_seed(0)
    try:
        result = run(*args, **kwargs)
        by_name = dict(leaves(result, "result"))
        roots = [value for value in by_name.values() if isinstance(value, torch.Tensor) and value.requires_grad]
        if given:
            places = list(wanted.values())
            into = [roots[at] for at in given]
            grads = torch.autograd.grad(into, [value for _, value in places], list(given.values()), allow_unused=True)
            by_name |= {{f"gradient of {{name}}": value for (name, _), value in zip(places, grads)}}
        tensors = {{name: value for name, value in by_name.items() if isinstance(value, torch.Tensor)}}
        by_name |= {{f"{{name}} requires grad": value.requires_grad for name, value in tensors.items()}}
    except Exception as error:
        return {{"": f"raises {{type(error).__name__}}: {{str(error).strip()}}"}}
    after = [pair for part in ({{"it": function}}, state()) for pair in leaves(part, "")]
    by_name |= {{f"{{name}} afterwards": value for name, value in after}}
    tensors = {{name: value for name, value in by_name.items() if isinstance(value, torch.Tensor)}}
    return by_name | {{name: whole(value.detach()).clone() for name, value in tensors.items()}}


def everything(compile):
    """What each call leaves, in order."""
    results, compiled = [], {{}}
    for function, args, kwargs, state, given in calls():
        if function not in compiled:
            compiled[function] = compile(function)
        results.append(left(function, compiled[function], args, kwargs, state, given))
    return results


def differs(want, have):
    """The kind of the first difference, and the difference; None where there is none."""
    if "" in want or "" in have:
        eager, compiled = want.get("", "raises nothing"), have.get("", "raises nothing")
        wrapped = ("raises InternalTorchDynamoError", "raises TorchRuntimeError", "raises BackendCompilerFailed")
        if eager.split(":")[0] == compiled.split(":")[0] or ("" in want and compiled.startswith(wrapped)):
            return None
        kind = "missing error" if "" not in have else f"error {{compiled.split(':')[0]}}"
        return kind, f"it {{compiled}}, eager {{eager}}"
    if list(want) != list(have):
        odd = [name for name in [*want, *have] if (name in want) != (name in have)]
        return "structure", f"{{odd[0]}} is in one of both alone" if odd else "what is left comes in another order"
    for name, expected in want.items():
        actual = have[name]
        if isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
            want_form, form = (
                (part.dtype, tuple(part.shape), part.device, part.stride() if STRIDES else 0)
                for part in (expected, actual)
            )
            if form != want_form:
                return "metadata", f"{{name}} is {{form}}, eager's is {{want_form}}"
            if STRIDES:  # the numbers may differ from run to run
                continue
            if not (expected.is_floating_point() or expected.is_complex()):
                share = float((expected != actual).double().mean()) if expected.numel() else 0.0
                if share > TOLERANCE:
                    return "values", f"{{name}} differs in {{share:.3g}} of its elements"
                continue
            exact = torch.complex128 if expected.is_complex() else torch.float64
            expected, actual = expected.to(exact), actual.to(exact)
            same = (expected == actual) | (expected.isnan() & actual.isnan())
            off, size = (actual - expected)[~same], expected[expected.isfinite()]
            scale = float(size.abs().square().mean().sqrt()) if size.numel() else 0.0
            far = float((off.abs().square().sum() / max(expected.numel(), 1)).sqrt()) / (scale or 1.0)
            if not far <= TOLERANCE:
                return "values", f"{{name}} is off by {{far:.3g}}, relative to its size"
        elif type(expected) is not type(actual) or (expected != actual and expected == expected):
            return "values", f"{{name}} is {{actual!r}}, eager's is {{expected!r}}"
    return None


def main():
    unsure = 125 if "--git-bisect" in sys.argv else 2
    backend = sys.argv[sys.argv.index("--backend") + 1] if "--backend" in sys.argv else BACKEND
    options = COMPILE if backend == BACKEND else {{**COMPILE, "options": None}}
    compiled = lambda function: torch.compile(function, backend=backend, **options)
    eager, again = everything(lambda function: function), everything(lambda function: function)
    steady = TOLERANCE and any(differs(first, second) for first, second in zip(eager, again))
    raised = eager[-1].get("", "raises nothing").split(":")[0].removeprefix("raises ")
    if steady or raised != (RAISES or "nothing"):
        why = "does not repeat itself" if steady else eager[-1].get("", "raises nothing")
        print(f"cannot tell: eager {{why}}")
        return unsure
    have = everything((lambda function: function) if "--without-fault" in sys.argv else compiled)
    for number, (expected, actual) in enumerate(zip(eager, have)):
        if found := differs(expected, actual):
            print(f"FAILS ({{found[0]}}): call {{number + 1}} of {{len(eager)}}: {{found[1]}}")
            return 1
    print("passes: what is compiled leaves what eager leaves")
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''


RESERVED = frozenset(["T", *re.findall(r"^(?:def |import )?(\w+)(?: = |\(|$)", PROGRAM, re.MULTILINE)])
"""The program's own names."""
NO_TEXT = "it cannot be written as Python"
MOST_BYTES = 256 << 20
"""Earlier calls with more bytes than this are not kept."""


class FunctionCalls:
    """The kept calls of one function, or of all functions made by one `def`: Dynamo caches compiled code per `def`.
    `why`: which part of a call has no text."""

    def __init__(self, function: Callable[..., Any]) -> None:
        inner, _ = callable_of(function)
        self.source = Source(getattr(inner, "__globals__", {}), RESERVED)
        self.calls: list[tuple[Any, int, list[str]]] = []
        self.settings: list[str] = []
        self.why = ""

    def call(self, asked: Asked, start: StartState, ambient: Any, touched: set[Any], wanted: bool) -> None:
        """Keeps the state that a call begins with. `wanted`: even where it is large; `touched`: see `Source.begin`."""
        size = sum(kept.nbytes() for _, kept in start.storages.values())
        if self.why or (size > MOST_BYTES and not wanted):
            return
        self.settings = [*process_lines(ambient), *config_lines(encoded_settings(but_caches=True), trusted=True)[0]]
        try:
            lines = self._lines(asked.function.function, asked.args, asked.kwargs, start, ambient, touched)
            self.calls.append((asked.function.function, asked.number, lines))
        except CannotSayError as error:
            self.why = f"{NO_TEXT}: {error}"
        except RecursionError:
            self.why = "the objects that it uses are nested too deeply"
        except Exception as error:  # noqa: BLE001  the program's objects may raise anything; its calls are still judged
            self.why = f"{NO_TEXT}: {type(error).__name__}: {error}"

    def _lines(
        self, function: Any, args: Any, kwargs: Any, start: StartState, ambient: Any, touched: set[Any]
    ) -> list[str]:
        source, names = self.source, argument_names(*callable_of(function))
        source.begin(start, touched)
        hints = [names[at] if at < len(names) else f"argument_{at}" for at in range(len(args))]
        given = [(hint, source.text(value, hint)) for hint, value in zip(hints, args, strict=True)]
        named = [(name, source.text(value, name)) for name, value in kwargs.items()]
        called = source.text(function, "function")
        done: set[str] = set()
        while left := [name for name in source.spaces if name not in done]:
            for name in left:
                done.add(name)
                space, key = source.spaces[name]
                if key in space:
                    source.assign(name, space[key])
        source.assign_classes()
        everything = dict([*given, *named, *((name, name) for name in [*sorted(source.spaces), *source.changed()])])
        state = ", ".join(f"{name!r}: {text}" for name, text in everything.items())
        words = f"({', '.join(text for _, text in given)}{',' if len(given) == 1 else ''})"
        keywords = f"{{{', '.join(f'{name!r}: {text}' for name, text in named)}}}"
        line, depth, lines = f"yield {called}, {words}, {keywords}, lambda: {{{state}}}, {{}}", "", list(source.lines)
        modes = [] if ambient.grad else ["torch.no_grad()"]
        modes += [f"torch.autocast({device!r}, torch.{dtype})" for device, dtype in ambient.autocast.items()]
        if modes:
            lines.append(f"with {', '.join(modes)}:")
            depth = "    "
        return [*lines, depth + line]

    def write(
        self, folder: Path, call: Call, row: CallRung, rungs: Rungs, given: dict[int, torch.Tensor], plain: bool
    ) -> str:
        """Writes the program; returns why that is impossible, or what the program lacks, else "". `given`: the
        gradients that arrived at the results, for a departing backward; `plain`: it draws as the program did. Where
        the program's own call departs, all earlier calls are written, too, under its backend."""
        if self.why:
            return self.why
        rung, own = (rungs.last, True) if row.rung == OWN else (row.rung, False)
        if rung not in BACKENDS:
            return f"its backend, {rung}, is the program's own"
        mine = [at for at, (function, _, _) in enumerate(self.calls) if function is rungs.function]
        last = next((at for at in mine if self.calls[at][1] == call.number), None)
        if last is None:
            return "its arguments were not kept"
        calls = [lines for at, (_, _, lines) in enumerate(self.calls[: last + 1]) if own or at in mine]
        source = self.source
        tensors = dict(source.tensors) | {f"given_{at}": tensor for at, tensor in given.items()}
        asked = getattr(rungs.backend if own else without_cuda_graphs(rungs.backend), "config", {})
        options = {key: value for key, value in asked.items() if isinstance(value, (bool, int, str, float))}
        as_eager = (DRAWN in call.notes and not plain) or given or (own and not call.first)
        options |= {"fallback_random": True} if as_eager else {}
        compiled = rungs.asked | ({"options": options} if rung == "inductor" and options else {})
        main = sys.modules["__main__"]
        settings = settings_of(main)
        more = [line for line in self.settings if line.rpartition("config")[2] not in settings]
        settings += "".join(f"\n{line}" for line in more)
        of_settings = set(re.findall(r"^def ([^(\n]+)", settings, re.MULTILINE))
        parts = [text for name, text in source.definitions.items() if name not in of_settings]
        named = "\n".join([*parts, *(line for lines in calls for line in lines)])
        spaces = set(re.findall(r"torch\.ops\.(\w+)", named)) - WITH_TORCH
        brought = {home for space in spaces for home in (*OP_HOMES.get(space, ())[-1:], space) if home in sys.modules}
        rooms = {room for room in CONFIG_MODULES.values() if any(line.startswith(room) for line in more)}
        source.imports |= {f"import {home}" for home in rooms}
        source.imports |= {f"import {home}" for home in brought if not own_file(sys.modules[home])}
        own_operators = [known.program for known in of_spaces(spaces) if not known.missing]
        definitions = "\n\n\n".join([*own_operators, *parts]).replace("from __future__ import annotations\n", "")
        names = sorted(source.spaces)
        body = [f"global {', '.join(names)}"] if names else []
        body += [f"{place} = {text}" for place, text in source.of_classes.items()]
        body += [line for lines in calls for line in lines]
        if given:
            arrived = ", ".join(f'{at}: T["given_{at}"]' for at in sorted(given))
            body[-1] = body[-1].removesuffix("{}") + f"{{{arrived}}}"
        written = row.value.endswith(WRITTEN)  # by one of the two alone, and by more than rounding
        off = row.error or (0.1 if written else 0.0)
        fields = {
            "function": call.function,
            "place": f"{Path(call.file).name}:{call.line}",
            "number": call.number,
            "reason": row.verdict.reason.replace("\\", "/").replace('"', "'"),
            "version": torch.__version__,
            "backend": BACKENDS[rung],
            "compiled": compiled,
            "definitions": definitions,
            "strides": row.verdict.kind == "metadata" and not written,
            "settings": settings,
            "tolerance": float(f"{max(row.tolerance or 0.0, min(off, 1.0) / 10):.1g}"),
            "calls": "\n".join(f"    {line}" for line in body),
            "raises": call.raises,
        }
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(tensors, folder / "repro.pt")
        homes = self._modules(folder, source.homes)
        for name, modules in ((ALONE, homes), (WITH_MODULES, self._modules(folder, set(own_modules())))):
            imports = dict.fromkeys([*sorted(source.imports), *(f"import {module}" for module in modules)])
            path = f'sys.path.insert(0, str(HERE / "{MODULES}"))\n' if modules else ""
            text = PROGRAM.format(**fields, imports=path + "\n".join(imports))
            write_file(folder / name, text.encode())
        return f"{NO_TEXT}: {source.left_out}" if source.left_out else ""

    def _modules(self, folder: Path, names: set[str]) -> list[str]:
        """Copies the user's single-file modules into a folder beside the program; returns their names."""
        copied = []
        for name in [module for module in sys.modules if module in names]:
            file = Path(getattr(sys.modules[name], "__file__", "") or "")
            if file.suffix == ".py" and "." not in name and file.exists():
                (folder / MODULES).mkdir(exist_ok=True)
                shutil.copyfile(file, folder / MODULES / file.name)
                copied.append(name)
        return copied
