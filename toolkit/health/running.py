"""Checks of what runs graphs: the fork server, a compile of three nodes in its child, and a picture that is really
drawn.

Also: checks of the packages that graphdbg uses: each is imported in a process of its own, so that a crash or hang
becomes a row as well.

Each has a time limit, and its end is reported.

For example: `isolation().found` gives `'a forked child answered in 10 ms'`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dumps import temporary
from ...dumps.deaths import signal_name
from ...dumps.private_names import SEEN, exists
from ...dumps.wording import flat

if TYPE_CHECKING:
    from ..isolation import TaskResult


@dataclass
class HealthCheck:
    """The result of a check: its name, whether it works, whether dump, ls and show need it, what was found, and how to
    fix it.

    `needed_by`: what does not work when it is missing; `without`: what works nevertheless. `row` fills in the name; a
    check says `essential=False` where only a part is lacking that is not essential.
    """

    name: str = field(default="", kw_only=True)
    ok: bool
    essential: bool = field(default=True, kw_only=True)
    found: str
    fix: str = ""
    needed_by: str = ""
    without: str = ""

    def advice(self) -> str:
        """The line under a row that is not ok; empty when there is nothing to add."""
        words = [f"needed by {self.needed_by}"] if self.needed_by else []
        words += [f"{self.without} do without"] if self.without else []
        return ": ".join(part for part in ("; ".join(words), self.fix) if part)


def row(name: str, *, essential: bool) -> Callable[[Callable[[], HealthCheck]], Callable[[], HealthCheck]]:
    """Decorates a check: its result, or any exception (a broken package may raise anything), becomes a row of that
    name."""

    def decorated(check: Callable[[], HealthCheck]) -> Callable[[], HealthCheck]:
        @functools.wraps(check)
        def checked() -> HealthCheck:
            try:
                seen = check()
            except ImportError as error:
                seen = HealthCheck(False, f"not asked: {flat(error)}")
            except Exception as error:  # noqa: BLE001  shown in the row
                seen = HealthCheck(False, f"cannot be asked: {type(error).__name__}: {flat(error)}")
            return replace(seen, name=name, essential=essential and seen.essential)

        return checked

    return decorated


LIMIT_S = 60.0
_ABSENT = "not installed"
_OTHERS = "all other commands"


class Package(NamedTuple):
    """A package by its PyPI name and its module: what needs it, and what works without it."""

    name: str
    module: str
    essential: bool
    needed_by: str
    without: str
    fix: str = ""


PACKAGES = (
    Package("click", "click", True, "every command", ""),
    Package("msgspec", "msgspec", True, "every other command", ""),
    Package("sympy", "sympy", True, "dump and every command that loads a graph", "ls, show, diff, draw and pack"),
    Package("humanize", "humanize", True, "every command that prints sizes or ages", "dump, ls of a run and diff"),
    Package("platformdirs", "platformdirs", True, "tui and all that runs graphs",
        "dump, ls, show, diff, draw and pack"),
    Package("safetensors", "safetensors", False, "bisect, and minify where it takes parts out of a graph", _OTHERS),
    Package(
        "rich", "rich", False, "tui, and ls, show, diff, compile and minify on a terminal",
        "the last five through a pipe or with --json, and all other commands",
    ),
    Package("textual", "textual", False, "tui", _OTHERS),
    Package("textual-serve", "textual_serve.server", False, "tui --web", f"tui in a terminal and {_OTHERS}"),
    Package("aiohttp", "aiohttp.web", False, "tui --web", f"tui in a terminal and {_OTHERS}"),
    Package("pydot", "pydot", False, "draw and the backend graphdbg_draw", _OTHERS),
    Package(
        "pygraphviz", "pygraphviz", False, "draw -o of svg, png and pdf where `dot` is not on PATH",
        f"draw -o of a .dot file and {_OTHERS}", "pip install pygraphviz, or install Graphviz",
    ),
    Package(
        "triton", "triton", False,
        "the rung triton_interpret, kernel, compile --target and --emit of kernels' forms, Inductor on a GPU",
        "all other rungs and commands",
        "pip install 'graphdbg[triton]'" if sys.platform == "linux" else f"it has no build for {sys.platform}: use "
        "Linux",
    ),
    Package(
        "numpy", "numpy", False, "the interpreter of Triton kernels (the rung triton_interpret, kernel)",
        "all other rungs and commands",
    ),
    Package("ray", "ray", False, "minify --executor ray", f"minify on this machine and {_OTHERS}",
        "pip install 'graphdbg[ray]'"),
)  # fmt: skip

_CHILD = """
import importlib, importlib.metadata, json, os, sys
name, module, path = sys.argv[1:]
sys.path[:] = json.loads(path)
top = module.partition(".")[0]
try:
    importlib.import_module(module)
    whole = sys.modules[top]
    said = {"version": getattr(whole, "__version__", ""), "empty": getattr(whole, "__file__", None) is None}
    try:
        said["version"] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
except ModuleNotFoundError as error:
    said = {"absent": error.name == top, "error": str(error)}
except BaseException as error:
    said = {"error": f"{type(error).__name__}: {error}"}
print("\\n" + json.dumps(said, default=str), flush=True)
os._exit(0)
"""


def packages() -> list[HealthCheck]:
    """A row for each package, in the order of PACKAGES, then for declared packages that are not listed there."""
    known = {package.name for package in PACKAGES}
    more = [name for name in declared() if name not in known]
    others = (Package(name, name.replace("-", "_"), True, "graphdbg, which declares it", "") for name in more)
    every = [*PACKAGES, *others]
    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return list(pool.map(_finding, every, pool.map(_imported, every)))


def declared() -> list[str]:
    """The packages that the installed graphdbg asks for, extras included, without torch and what only its developers
    need."""
    try:
        wanted = importlib.metadata.requires("graphdbg") or []
    except importlib.metadata.PackageNotFoundError:  # not installed but run from a checkout: PACKAGES is complete
        return []
    lines = [line for line in wanted if not re.search(r"extra\s*==\s*['\"]dev['\"]", line)]
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for line in lines]
    return [name for name in dict.fromkeys(names) if name != "torch"]


def _imported(package: Package) -> tuple[bool, str]:
    """Whether the package can be imported, and its version or why not."""
    command = [sys.executable, "-c", _CHILD, package.name, package.module, json.dumps(sys.path)]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHDBG")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, env=ours, check=False
        )
    except subprocess.TimeoutExpired:
        return False, f"its import had not ended after {LIMIT_S:g} s"
    except OSError as error:
        return False, f"not asked: {flat(error)}"
    try:
        said = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        return False, f"its import {_end(done)}"
    if "error" in said:
        return False, _ABSENT if said.get("absent") else f"cannot be imported: {flat(said['error'])}"
    if said["empty"]:
        return False, "an empty folder of its name is there, and no package"
    return True, str(said["version"]) or "there"


def _end(done: subprocess.CompletedProcess[str]) -> str:
    lines: Sequence[str] = done.stderr.strip().splitlines()
    last = f": {flat(lines[-1])}" if lines else ""
    if done.returncode >= 0:
        return f"ended the process with code {done.returncode}{last}"
    return f"ended the process by {signal_name(-done.returncode)}"


def _finding(package: Package, seen: tuple[bool, str]) -> HealthCheck:
    ok, state = seen
    fix, without = package.fix or f"pip install {package.name}", package.without
    # other packages import it, too: torch works without numpy, but not with a broken one
    if not ok and state != _ABSENT:
        remedy = f"repair it, or remove it: {without} work without it" if without else "repair it"
        fix, without = f"{remedy}; {shlex.quote(sys.executable)} -c 'import {package.module}' shows where it fails", ""
    return HealthCheck(ok, state, fix, package.needed_by, without, name=package.name, essential=package.essential)


NEEDS_INDUCTOR = (
    "the rungs inductor, inductor_nofuse, inductor_cudagraphs and aot_inductor, so minify and bisect by default"
)
WITHOUT_INDUCTOR = (
    "ls, show, diff, draw, check, kernel, compile --until schedule and --target, and the rungs eager, nop, debug_nop, "
    "decomposed, torchscript, lazy and triton_interpret"
)
"""Determined by running each of them with no compiler on PATH."""

TRIED = ((2, 11), (2, 15))
"""The first and the last release of torch that graphdbg supports."""


@row("python", essential=True)
def python() -> HealthCheck:
    """The version of Python."""
    version = f"{platform.python_version()} at {sys.executable}"
    return HealthCheck(sys.version_info >= (3, 10), version, "install Python 3.10 or newer", "every command")


@row("torch", essential=True)
def torch_itself() -> HealthCheck:
    """Imports torch here, which the later checks need."""
    broken = f"repair it; {shlex.quote(sys.executable)} -c 'import torch' shows where it fails, maybe in a broken numpy"
    lost = ("every command that records or runs graphs", "ls, show, diff, draw, pack and tui")
    try:
        import torch
    except ModuleNotFoundError as error:
        state = "not installed" if error.name == "torch" else f"cannot be imported: {flat(error)}"
        return HealthCheck(False, state, "pip install torch" if error.name == "torch" else broken, *lost)
    except Exception as error:  # noqa: BLE001  a broken torch may raise anything, and the row says what
        return HealthCheck(False, f"cannot be imported: {type(error).__name__}: {flat(error)}", broken, *lost)
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    first, last = (".".join(map(str, version)) for version in TRIED)
    other = f"; graphdbg was made for {first} to {last}, so some stages may be missing"
    state = torch.__version__ + ("" if TRIED[0] <= release <= TRIED[1] else other)
    return HealthCheck(release >= TRIED[0], state, f"install torch {first} or newer", *lost)


@row("C++ compiler", essential=False)
def compiler() -> HealthCheck:
    """Compiles a small program with the compiler that Inductor would take."""
    lost = (
        "install a C++ compiler (g++), or name one in CXX",
        f"torch.compile for the CPU itself, {NEEDS_INDUCTOR}",
        WITHOUT_INDUCTOR,
    )
    name = compiler_name()
    if name is None:
        return HealthCheck(False, "none found", *lost)
    source = "#include <vector>\nint main() { std::vector<int> v(3); return static_cast<int>(v.size()) - 3; }\n"
    with temporary.folder("graphdbg-doctor-") as folder:
        path = folder / "try.cpp"
        path.write_text(source)
        command = [name, str(path), "-o", str(path.with_suffix(""))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return HealthCheck(False, f"{name}: {flat(error)}", *lost)
    if done.returncode:
        failure = f"{name} cannot compile a small program: {flat(done.stderr)}"
        return HealthCheck(False, failure, *lost)
    version = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    return HealthCheck(True, version[0] if version else name, *lost)


def compiler_name() -> str | None:
    """The path of the compiler that Inductor would take."""
    if importlib.util.find_spec("torch") is None:
        return shutil.which(os.environ.get("CXX", "g++"))
    from ..live.entries import cpp_compiler

    return cpp_compiler()


@row("CUDA", essential=False)
def cuda() -> HealthCheck:
    """The GPUs that torch sees."""
    import torch

    if not torch.cuda.is_available():
        built = "this torch is built without CUDA" if torch.version.cuda is None else "no usable GPU"
        without = "replay --device cpu or --rung triton_interpret, kernel --check and kernel --interpret"
        return HealthCheck(False, built, "", "replays of graphs of a GPU, and kernel NAME", without)
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return HealthCheck(True, f"{torch.version.cuda}: {names}")


@row("cache folder", essential=False)
def cache_folder() -> HealthCheck:
    """Writes into the cache folder, and says what lies there."""
    from ...dumps.errors import GraphdbgError
    from ...dumps.wording import size_text
    from ..isolation import cache, cleaning

    home = cache.home()
    fix = f"make {home} writable, or set XDG_CACHE_HOME; without it each start of a fork server costs about 20 s more"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        return HealthCheck(False, f"{home}: {error.strerror or error}", fix, "", "all commands")
    try:
        kinds = [entry.what for entry in cleaning.clean(home, dry_run=True).entries]
    except GraphdbgError:  # a link: --clean reports it
        kinds = []
    seeds = [kind for kind in dict.fromkeys(kinds) if kind.startswith(cleaning.PROBES)]
    held = f"{size_text(cleaning.size_bytes(home))}, which doctor --clean removes" if kinds else "empty"
    return HealthCheck(True, f"{home}: {', '.join([*seeds, held])}")


@row("recorder plug-in", essential=True)
def plugin() -> HealthCheck:
    """Whether torch will load the recorder when it is imported."""
    plugins = importlib.metadata.entry_points(group="torch.backends")
    ours = next((entry.value for entry in plugins if entry.name == "graphdbg"), "")
    fix = "install graphdbg into the environment that runs torch: pip install graphdbg"
    detail = ours or "torch does not know graphdbg"
    return HealthCheck(bool(ours), detail, fix, "dump", "all commands that look at what is recorded")


HOOKS_FIX = "this torch has other names there; all else is recorded"
FIX = f"take a torch from {SEEN[0]} to {SEEN[-1]}"


@row("recorder hooks", essential=True)
def hooks() -> HealthCheck:
    """Looks up each private name of the recorder's table, and says what is not recorded without it."""
    import torch  # noqa: F401  without torch no name counts as missing

    from ..torch_private.names import HOOKS

    lost: list[str] = []
    for hook in HOOKS:
        if not all(exists(hook.module, path) for path in hook.places().values()):
            what = f"{' and '.join(hook.stages)} not recorded" if hook.stages else f"not known: {hook.lost}"
            lost.append(f"{hook.whole()} ({what})")
    state = f"all {len(HOOKS)} are there" if not lost else f"{len(lost)} of {len(HOOKS)} missing: {'; '.join(lost)}"
    return HealthCheck(not lost, state, HOOKS_FIX, essential=len(lost) == len(HOOKS))


@row("private torch names", essential=False)
def names() -> HealthCheck:
    """Looks up the other private names of torch in use, and says who needs those that this torch lacks."""
    import torch

    from ...dumps.torchside.torch_private import NAMES as OF_DUMPS
    from ..torch_private.names import HOOKS, NAMES

    cuda = torch.version.cuda is not None
    every = [row for table in (OF_DUMPS, NAMES) for row in table.rows if row not in HOOKS]
    lacks = [pair for table in (OF_DUMPS, NAMES) for pair in table.lacking(torch.__version__, cuda=cuda)]
    lacking = {name: row for name, row in lacks if row in every}
    lost = [f"{name} (needed by {row.needed_by}{f': {row.lost}' if row.lost else ''})" for name, row in lacking.items()]
    count = len({(row.module, path) for row in every for path in row.places().values()})
    state = f"all {count} that this torch should have are there"
    if lost:
        state = f"{len(lost)} of {count} missing: {'; '.join(lost)}"
    return HealthCheck(not lost, state, FIX, without="all that does not name them")


COMPILE_LIMIT_S = 120.0
START_LIMIT_S = 400.0
"""The first start on a machine compiles the toolchain probes, for which the server itself has 300 s."""
DRAW_LIMIT_S = 20.0


@row("isolation", essential=True)
def isolation() -> HealthCheck:
    """Checks that a child of a bare fork server answers."""
    from ...dumps.errors import GraphdbgError
    from ..isolation import ask, fork_server

    fix = "graphdbg isolates each replay in a forked child; it needs Linux or macOS, and room for one more process"
    if not hasattr(os, "fork"):
        return HealthCheck(False, f"no fork on {platform.system()}", fix)
    try:
        with fork_server("nothing", ()) as server:
            answer = ask("builtins:dict", {"alive": True}, 30, server=server).answer(60)
    except (OSError, TimeoutError, GraphdbgError) as error:
        return HealthCheck(False, flat(error), fix)
    ok = answer.status == "done" and answer.value == {"alive": True}
    seen = f"a forked child answered in {answer.seconds * 1000:.0f} ms" if ok else _trouble(answer)
    return HealthCheck(ok, seen, fix)


@row("wall", essential=False)
def wall() -> HealthCheck:
    """Checks the mechanisms that keep the code of other people's dumps from doing harm."""
    from ...dumps.errors import GraphdbgError
    from ..isolation import fork_server
    from ..isolation.wall import PARTS

    fix = (
        "use Linux 6.12 or newer with Landlock; where namespaces are refused, install bubblewrap; or open only "
        "dumps that you trust"
    )
    lost = ("nothing; dumps of other people are still judged", "every command")
    try:
        with fork_server("nothing", (), wall=PARTS) as server:
            built_of, is_open = server.wall()
    except (OSError, GraphdbgError) as error:
        return HealthCheck(False, flat(error), fix, *lost)
    seen = f"built of {', '.join(built_of)}" if built_of else "there is none"
    could = ", ".join([*is_open, "read your files"])
    return HealthCheck(
        not is_open, f"{seen}; if code in a dump of somebody else broke out, it could {could}", fix, *lost
    )


@row("compile", essential=False)
def compiling() -> HealthCheck:
    """Compiles three nodes with Inductor in a forked child, for the CPU and a GPU where there is one, and compares with
    eager."""
    import torch

    from ..isolation import ask, fork_server

    devices = ["cpu"] if compiler_name() is not None else []
    devices += ["cuda"] if torch.cuda.is_available() else []
    lost = ("see the rows of torch, the C++ compiler and triton", NEEDS_INDUCTOR, WITHOUT_INDUCTOR)
    if not devices:
        return HealthCheck(False, "not tried: there is no C++ compiler, see its row")
    began = time.monotonic()
    task = f"{__name__}:three_nodes"
    with fork_server(preload=(__name__,), threads=1) as server:
        waiting = {device: ask(task, {"device": device}, COMPILE_LIMIT_S, server=server) for device in devices}
        try:
            answers = {device: job.answer(START_LIMIT_S) for device, job in waiting.items()}
        except TimeoutError:
            return HealthCheck(False, f"no answer after {time.monotonic() - began:.0f} s, so it was ended", *lost)
        notes = server.notes
    said = [f"{device} {_compiled(answer)}" for device, answer in answers.items()]
    ok = all(answer.status == "done" and answer.value["same"] for answer in answers.values())
    return HealthCheck(ok, "; ".join([f"three nodes by Inductor: {', '.join(said)}", *notes]), *lost)


def three_nodes(payload: dict[str, Any]) -> dict[str, Any]:
    """The body of the query: three nodes under eager and under Inductor. `seconds` are those of the compile and its
    first run."""
    import torch
    from torch import fx

    graph = fx.Graph()
    x = graph.placeholder("x")
    added = graph.call_function(torch.add, (graph.call_function(torch.relu, (x,)), 1.0))
    graph.output(graph.call_function(torch.sum, (added,)))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    value = torch.linspace(-1.0, 1.0, 64, device=payload["device"])
    began = time.monotonic()
    compiled = torch.compile(gm, fullgraph=True)(value)
    seconds = time.monotonic() - began
    return {"same": torch.allclose(compiled, gm(value)), "seconds": seconds}


def _compiled(answer: TaskResult) -> str:
    if answer.status != "done":
        return _trouble(answer)
    result = "as eager" if answer.value["same"] else "and the result is not eager's"
    return f"in {answer.value['seconds']:.1f} s, {result}"


def _trouble(answer: TaskResult) -> str:
    """A description of how a child ended that gave no answer."""
    if answer.status == "timeout":
        return f"had not ended after {answer.seconds:.0f} s"
    if answer.error is not None and answer.status == "exception":
        return f"failed: {flat(answer.error.type.rpartition('.')[2])}: {flat(answer.error.message)}"
    last = [line for line in answer.output.splitlines() if line.strip()]
    words = {"signal": f"died by {answer.signal}", "memory": "ran out of memory", "lost": "lost its fork server"}
    return words.get(answer.status, answer.status) + (f": {flat(last[-1])}" if last else "")


@row("graphviz", essential=False)
def drawing() -> HealthCheck:
    """Checks that a picture can be drawn."""
    from ...dumps.errors import GraphdbgError
    from ..drawing import picture

    fix = "pip install pygraphviz, or install Graphviz"
    lost = (fix, "draw -o of svg, png and pdf", "draw -o of a .dot file and all other commands")
    try:
        _, renderer = picture.rendered("digraph { a -> b }", "svg", DRAW_LIMIT_S)
    except GraphdbgError as error:
        return HealthCheck(False, error.why or str(error), *lost)
    if renderer == "dot":
        return HealthCheck(True, shutil.which("dot") or renderer)
    try:
        return HealthCheck(True, f"that of {renderer} {importlib.metadata.version(renderer)}")
    except importlib.metadata.PackageNotFoundError:
        return HealthCheck(True, f"that of {renderer}")
