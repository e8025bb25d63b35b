"""A test in the style of PyTorch's suites, from the text of a repro: it fails while the bug is there, and passes once
it is gone.

Also: the judging parts of a repro for exceptions, and for a run that dies, hangs, or needs too much time or memory.
Imports no torch.

The program's graph, inputs, operators and settings are taken over unchanged; its judging part is replaced by a
comparison of compiled and eager. Which of the forms fails is found by running them (minifier.report). Imports no torch.

For example:

    suite_of(program, failure, "amin_is_wrong").splitlines()[0]
    # '# Owner(s): ["module: inductor"]'
"""

from __future__ import annotations

import ast
import signal as signals
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import syntax
from ..wording import SOURCE
from .case import FailureWords, ReproFacts
from .text import CannotExpressError, Lines, indented, quoted

if TYPE_CHECKING:
    from .endings import Runs

LIMIT_S, LEAST_S, MOST_S, BEGINS_S = 120, 15, 300, 25
"""Seconds: after which a compile of a small case counts as a hang where no limit was recorded; that any compile may
take; the longest wait of a program on an idle machine; and that a process needs before its second compile."""

OUT_OF_MEMORY_BYTES = 2 << 30
"""Bytes that the compiled run of a small case may map, where the original ran out of memory."""

_TEXT_OF = """"".join(traceback.format_exception(error, limit=0)) + str(getattr(error, "inner_exception", ""))"""


class DyingProgram:
    """The statements that run and judge, and functions that they need beside the graph."""

    def __init__(self, *lines: str, functions: Sequence[Lines] = ()) -> None:
        self.lines, self.functions = lines, list(functions)
        self.expected: Lines = []
        """Statements before all others: the exception that is expected."""


def limit_s(failure: FailureWords) -> int:
    """Seconds to wait for a hang: less than the original limit, because a reduced case may exceed that only
    slightly."""
    return min(MOST_S, max(LEAST_S, int(failure.size * 0.8))) if failure.kind == "hang" and failure.size else LIMIT_S


def death_of(failure: FailureWords) -> str | int:
    """The return code of a child that a signal killed, or "hang"."""
    if failure.kind == "hang":
        return "hang"
    return -int(getattr(signals, failure.detail, signals.SIGSEGV))


_JUDGED = [
    f"    text = {_TEXT_OF}",
    "    if ERROR not in text or not like(WORDS, text):",
    "        raise",
    "    traceback.print_exc()",
    '    sys.exit(f"BUG: {ERROR}")',
]
"""Judges an exception: the expected one is the bug; any other one is raised again, to the hook."""


def crash(run: Runs) -> DyingProgram:
    """The judging part for an exception in the compile or the run."""
    return DyingProgram(
        *run.eager(),
        "try:",
        *indented(run.waited(run.compiled)),
        "except Exception as error:",
        *_JUDGED,
        'print("gone: it compiles and runs")',
        functions=[SOURCE],
    )


def missing_error(run: Runs) -> DyingProgram:
    """The judging part for an exception of eager mode that compiled code does not raise."""
    raised = [
        "def raised(function):",
        "    try:",
        *indented(run.waited("function"), " " * 8),
        "    except Exception as error:  # noqa: BLE001",
        f"        return {_TEXT_OF}",
        '    return ""',
    ]
    return DyingProgram(
        f"eager, got = raised(graph), raised({run.compiled})",
        "other = any(text and (ERROR not in text or not like(WORDS, text)) for text in (eager, got))",
        "print(f\"{'cannot tell: ' * other}eager mode raises {eager or 'nothing'}\\ntorch.compile raises "
        "{got or 'nothing'}\")",
        "sys.exit(UNSURE if other else int(bool(eager) and not got))",
        functions=[SOURCE, raised],
    )


def only_compiles(case: ReproFacts, compiled: str, *, inner: bool) -> DyingProgram:
    """The ending for a graph that eager cannot run where it was minified: it is compiled, and nothing is run.

    `torch.compile` gets inputs with values and is stopped after the compile; the inner compiler gets fake tensors,
    which need no device and no memory.
    """
    fake = ["with FakeTensorMode(allow_non_fake_inputs=True):", "    inputs = make_inputs()"]
    inputs = fake if inner else ["inputs = make_inputs()"]
    if not inner and case.facts.on_cuda:
        inputs = [
            "if torch.cuda.is_available():",
            "    inputs = make_inputs()",
            "else:  # fake tensors, and Inductor's joint patterns, which it traces on the device, on the CPU",
            "    usual = joint_graph.lazy_init",
            "    joint_graph.lazy_init = lambda *_: usual()",
            *indented(fake),
        ]
    backend = [
        "def backend(gm, examples):",
        "    if FAULT:",
        "        compile_fx(gm, examples)",
        '    print("gone: it compiles; it is not run")',
        "    sys.exit(0)",
    ]
    return DyingProgram(
        *inputs,
        "try:",
        f"    {compiled}(*inputs)",
        "except Exception as error:",
        *_JUDGED,
        'raise RuntimeError("nothing was compiled")',
        functions=[SOURCE] if inner else [SOURCE, backend],
    )


# -- processes that die, hang, or need too much
# --------------------------------------------------------------------------------


_AGAIN = '[sys.executable, *sys.argv, "child"]'


def _child(run: Runs, *before: str, why: str = "") -> Lines:
    """The compiled run, in a process of its own that the program starts."""
    return [f'if "child" in sys.argv:{why}', *before, *indented([*run.waited(run.compiled), "sys.exit(0)"])]


def _warm(run: Runs) -> Lines:
    """A first compile of something else, so that its one-time loading is not measured."""
    on = ', device="cuda"' if run.facts.on_cuda else ""
    return [f"torch.compile(lambda x: x + 1)(torch.ones(2{on}))  # the first compile of a process is not measured"]


def signal(run: Runs) -> DyingProgram:
    """The judging part for a process that is killed by a signal."""
    end = death_of(run.failure)
    return DyingProgram(
        *_child(run),
        *run.eager(),
        f"end = subprocess.run({_AGAIN}, timeout={limit_s(run.failure)}, check=False).returncode",
        f"print(f\"{{'BUG' if end == {end} else 'cannot tell' if end else 'gone'}}: the compiled run "
        f'ended with {{end}}")',
        f"sys.exit(1 if end == {end} else UNSURE if end else 0)",
    )


def hang(run: Runs) -> DyingProgram:
    """The judging part for a run that does not end: a thread that does not need Python's lock ends the program."""
    busy = "min(2, max(1, os.getloadavg()[0] / os.cpu_count()))"
    return DyingProgram(
        *run.eager(),
        f"faulthandler.dump_traceback_later({LIMIT_S}, exit=True)",
        *_warm(run),
        f"limit = {limit_s(run.failure)} * {busy}  # seconds; longer on a busy machine",
        'print(f"if this takes {limit:.0f} s, that is the BUG: it is then ended, and says where it was", flush=True)',
        "faulthandler.dump_traceback_later(limit, exit=True)  # with exit code 1",
        *run.waited(run.compiled),
        "faulthandler.cancel_dump_traceback_later()",
        'print("gone: it ends")',
    )


def slow(run: Runs) -> DyingProgram:
    """The judging part for a compile that takes too long."""
    over = f"{float(run.failure.message):g}"
    return DyingProgram(
        *run.eager(),
        *_warm(run),
        "began = time.perf_counter()  # compile and first run; the compile cache should be empty",
        *run.waited(run.compiled),
        "seconds = time.perf_counter() - began",
        f"print(f\"{{'BUG' if seconds > {over} else 'gone'}}: compile and first run took {{seconds:.1f}} s\")",
        f"sys.exit(int(seconds > {over}))",
    )


def memory(run: Runs) -> DyingProgram:
    """The judging part for a memory peak, or for running out of memory."""
    return _peak(run) if run.failure.detail == "peak" else _out_of_memory(run)


def _peak(run: Runs) -> DyingProgram:
    over = int(run.failure.message)
    before, peak = "torch.cuda.memory_allocated()", "torch.cuda.max_memory_allocated()"
    reset, functions = ["torch.cuda.reset_peak_memory_stats()"], list[Lines]()
    if not run.facts.on_cuda:
        before, peak = 'resident("VmRSS:")', 'resident("VmHWM:")'
        reset = [
            'with open("/proc/self/clear_refs", "w") as file:',
            '    file.write("5")  # forgets the highest resident memory so far',
        ]
        functions = [
            [
                "def resident(name):",
                '    with open("/proc/self/status") as file:',
                "        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))",
            ]
        ]
    return DyingProgram(
        *run.eager(),
        *_warm(run),
        f"before = {before}",
        *reset,
        *run.waited(run.compiled),
        f"needed = {peak} - before",
        f"print(f\"{{'BUG' if needed > {over} else 'gone'}}: compile and first run needed {{needed / "
        f'2**20:.1f}} MiB")',
        f"sys.exit(int(needed > {over}))",
        functions=functions,
    )


def _out_of_memory(run: Runs) -> DyingProgram:
    limited = [
        '    with open("/proc/self/statm") as file:',
        f"        limit = int(file.read().split()[0]) * resource.getpagesize() + {OUT_OF_MEMORY_BYTES}",
        "    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))",
    ]
    return DyingProgram(
        *_child(
            run, *limited, why=f"  # the compiled run, where no more than {OUT_OF_MEMORY_BYTES} bytes can be mapped"
        ),
        *run.eager(),
        'with tempfile.TemporaryFile("w+") as log:  # no pipe: processes that it leaves would keep it open',
        f"    end = subprocess.run({_AGAIN}, timeout={LIMIT_S}, stderr=log, check=False).returncode",
        "    text = log.seek(0) or log.read()",
        'short = end and any(x in text for x in ("MemoryError", "allocate memory", "bad_alloc", "out of memory"))',
        "print(f\"{text}\\n{'BUG: out of memory' if short else 'cannot tell' if end else 'gone'}: it ended "
        'with {end}")',
        "sys.exit(1 if short else UNSURE if end else 0)",
    )


FORMS: tuple[dict[str, str], ...] = ({}, {"rtol": "1e-6", "atol": "0"}, {"rtol": "1e-9", "atol": "0"})
"""Tolerances for compiled against eager: the defaults of PyTorch's tests by dtype, then stricter ones, for a small
error."""

_CONFIG = "config"
_DEADLY = ("signal", "hang")
_RESTORES = {
    "torch.use_deterministic_algorithms": "torch.are_deterministic_algorithms_enabled",
    "torch.set_float32_matmul_precision": "torch.get_float32_matmul_precision",
    "torch.set_default_dtype": "torch.get_default_dtype",
}
"""Function that sets a global state -> function that returns its current value."""
_HEAD = [
    "try:",
    "    from torch._inductor.test_case import run_tests, TestCase",
    "except ImportError:  # it needs expecttest",
    "    from unittest import main as run_tests, TestCase",
]


@dataclass
class ProgramParts:
    """The parts of a repro: `imports`; `before`, everything before its inputs; `functions` from there on by name;
    `settings` of modules as (module, name, value); statements of a global `state`; and `compiled`, the compile call as
    an expression.
    """

    text: str
    imports: list[str] = field(default_factory=list[str])
    before: list[str] = field(default_factory=list[str])
    functions: dict[str, str] = field(default_factory=dict[str, str])
    settings: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    state: list[str] = field(default_factory=list[str])
    compiled: str = ""


def parts_of(program: str) -> ProgramParts:
    """Splits the text of a repro into its parts. Raises CannotExpressError for a text that is no repro, or has no
    compiled function to call."""
    try:
        program = _faulty(program)
        tree = syntax.parsed(program)
    except SyntaxError as error:
        raise CannotExpressError("the repro is not a Python program", str(error)) from error
    parts, inside = ProgramParts(program), False
    for node in tree.body:
        text = ast.get_source_segment(program, node) or ""
        decorators = [ast.get_source_segment(program, child) or "" for child in getattr(node, "decorator_list", [])]
        text = "\n".join([*(f"@{child}" for child in decorators), text])
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            parts.imports.append(text)
        elif isinstance(node, ast.Try) and any(isinstance(child, ast.Import) for child in node.body):
            parts.imports += [ast.unparse(child) for child in node.body]
        elif isinstance(node, ast.FunctionDef) and (inside or node.name == "make_inputs"):
            inside = True
            parts.functions[node.name] = text
        elif inside:
            _statement(node, text, parts)
        elif not _is_plain_text(node) and not _is_loop(text):
            parts.before.append(text)
    if "make_inputs" not in parts.functions:
        raise CannotExpressError("the repro is not one of graphdbg's", "it has no make_inputs()")
    parts.compiled = parts.compiled or ("compiled" if "compiled" in parts.functions else "")
    if not parts.compiled and "torch.compile(" in program:
        raise CannotExpressError("the repro has no compiled function that a test can call")
    return parts


def _is_plain_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_loop(text: str) -> bool:
    """Whether a statement belongs to the loop of a flaky program, or reads its flags."""
    return text.startswith(("RUNS = ", "if not sys.argv", "FAULT, UNSURE = "))


def _faulty(program: str) -> str:
    """The program as it runs without flags: every test of FAULT is replaced by its branch."""
    asking = (node for node in ast.walk(syntax.parsed(program)) if isinstance(node, (ast.If, ast.IfExp)))
    chosen = next(((node, text) for node in asking if (text := _chosen(node, program)) is not None), None)
    if chosen is None:
        return program
    node, text = chosen
    lines = program.splitlines(keepends=True)
    before = "".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    assert node.end_lineno is not None and node.end_col_offset is not None
    return _faulty(
        before + text + lines[node.end_lineno - 1][node.end_col_offset :] + "".join(lines[node.end_lineno :])
    )


def _chosen(node: ast.If | ast.IfExp, program: str) -> str | None:
    """The branch that remains of a node that tests FAULT; None for other nodes."""
    asks = ast.unparse(node.test)
    if isinstance(node, ast.IfExp) and asks == "FAULT":
        return ast.get_source_segment(program, node.body)
    if isinstance(node, ast.If) and asks in ("FAULT", "not FAULT"):
        body = node.body if asks == "FAULT" else node.orelse
        under = " " * node.col_offset
        whole = program.splitlines()[body[0].lineno - 1 : body[-1].end_lineno] if body else ["pass"]
        return textwrap.indent(textwrap.dedent("\n".join(whole)), under).removeprefix(under)
    return None


def _statement(node: ast.stmt, text: str, parts: ProgramParts) -> None:
    """Sorts a statement after the functions into `parts`: a setting, a state, or the compile call; others judge, and
    are dropped."""
    for call in ast.walk(node):
        compiled = ast.unparse(call) if isinstance(call, ast.Call) else ""
        if compiled.startswith(("torch.compile(graph,", "torch.compile(graph)")):
            parts.compiled = parts.compiled or compiled
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and ast.unparse(target).startswith("torch."):
        module, _, name = ast.unparse(target).partition(f".{_CONFIG}.")
        parts.settings.append((f"{module}.{_CONFIG}", name, ast.unparse(node.value)))
    elif text.startswith(("torch.set_", "torch.use_", "if not torch.distributed")):
        parts.state.append(text)


def suite_of(program: str, failure: FailureWords, name: str, form: int = 0, remark: str = "") -> str:
    """Writes the test for a program. `name`: the test's name; `form`: index in FORMS; `remark`: a sentence for the
    comment at its top. Raises CannotExpressError for a kind of failure that such a test cannot show.
    """
    parts = parts_of(program)
    lines, helpers = _judged(parts, failure, FORMS[form])
    decorators, state = _state(parts)
    own = _of_a_child(parts) if failure.kind in _DEADLY else []
    if own:
        decorators, state = [], []
    title = "".join(word.capitalize() for word in name.split("_"))
    needed = _needed(parts, "\n".join([*lines, *helpers, *own]))
    kept = [text for name_of, text in parts.functions.items() if name_of in needed] + (["\n".join(own)] if own else [])
    body = "\n".join([*parts.before, *kept, *lines, *helpers, *decorators, *state])
    method = [f"def test_{name}(self):", *indented([*state, *lines])]
    text = [
        '# Owner(s): ["module: inductor"]',
        *([""] if remark else []),
        *(f"# {line}" for line in textwrap.wrap(remark, 110)),
        "",
        *_imports(parts, body),
        "",
        *_HEAD,
        "",
        "",
    ]
    for block in (*parts.before, *kept):
        text += [block, "", ""]
    text += [
        f"class Test{title}(TestCase):",
        *indented([*helpers, *([""] if helpers else []), *decorators, *method]),
        "",
        "",
        'if __name__ == "__main__":',
        "    run_tests()",
        "",
    ]
    return "".join(f"{line.rstrip()}\n" for line in "\n".join(text).rstrip().split("\n"))


def _imports(parts: ProgramParts, body: str) -> Iterator[str]:
    """The imports that the test needs, those of the standard library first."""
    plain: list[str] = []
    others: list[str] = []
    for text in parts.imports:
        (node,) = syntax.parsed(text).body
        assert isinstance(node, (ast.Import, ast.ImportFrom))
        names = [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
        library = isinstance(node, ast.Import) and names[0] in ("torch", *_registering(parts))
        if library or any(f"{alias}." in body or f"{alias}(" in body or f"({alias}" in body for alias in names):
            from_torch = ast.unparse(node).removeprefix("from ").removeprefix("import ").startswith("torch")
            (others if from_torch or library else plain).append(text.partition("  #")[0])
    if "multiprocessing." in body:
        plain.append("import multiprocessing")
    yield from sorted(plain)
    yield from ["", *others] if plain else others


def _registering(parts: ProgramParts) -> list[str]:
    """The user's modules that are imported only for what they register."""
    names = [text.removeprefix("import ").partition("  #")[0] for text in parts.imports if text.startswith("import ")]
    return [name.partition(".")[0] for name in names if parts.text.count(f"import {name}  # registers ops")]


def _needed(parts: ProgramParts, text: str) -> set[str]:
    """The functions that a text calls, directly or through others of them."""
    needed: set[str] = set()
    waiting = [text, parts.compiled]
    while waiting:
        text_of = waiting.pop()
        for name in parts.functions:
            if name not in needed and (f"{name}(" in text_of or f"({name}" in text_of or name == text_of):
                needed.add(name)
                waiting.append(parts.functions[name].partition("\n")[2])
    return needed


def _state(parts: ProgramParts) -> tuple[list[str], list[str]]:
    """Settings as decorators, and the global state as statements that are undone after the test."""
    patched: dict[str, list[str]] = {}
    for module, name, value in parts.settings:
        patched.setdefault(module, []).append(f"{quoted(name)}: {value}")
    decorators = [f"@{module}.patch({{{', '.join(pairs)}}})" for module, pairs in patched.items()]
    lines: list[str] = []
    for text in parts.state:
        called = text.partition("(")[0]
        if text == "torch.set_grad_enabled(False)":
            decorators.append("@torch.no_grad()")
            continue
        if called in _RESTORES:
            lines.append(f"self.addCleanup({called}, {_RESTORES[called]}())")
        elif called == "torch.set_autocast_enabled":
            lines.append(f"self.addCleanup({text.replace(', True)', ', False)').replace('(', ', ', 1)}")
        lines += text.splitlines()
    return decorators, lines


def _judged(parts: ProgramParts, failure: FailureWords, how: dict[str, str]) -> tuple[list[str], list[str]]:
    """The statements of the test, and the method that compares, if one is needed."""
    kind, detail = failure.kind, failure.detail
    if "backend" in parts.functions or kind in ("slow", "memory", "command"):
        why = "the repro measures time or memory, or only compiles"
        raise CannotExpressError(f"no test is written for a failure of the kind {kind!r}", why)
    if kind in _DEADLY:
        return _in_a_child(failure), []
    if failure.stage == "eager":
        call = _called(parts, "graph")
        check = ["for result in results:", "    self.assertFalse(result.isnan().any())"] if kind == "nan" else []
        return [f"results = {call}", *check] if check else [call], []
    if kind == "missing_error":
        error = failure.error if failure.error.isidentifier() else "Exception"
        return [
            f"with self.assertRaises({error}):",
            f"    {_called(parts, 'graph')}",
            "with self.assertRaises(Exception):",
            f"    {_called(parts, parts.compiled)}",
        ], []
    if "homes" in parts.functions:
        return [f"self.assertEqual(homes({parts.compiled}), homes(graph))"], []
    if kind == "metadata" and detail in ("mutation", "no mutation"):
        return [
            "expected, actual = make_inputs(), make_inputs()",
            "graph(*expected)",
            f"{parts.compiled}(*actual)",
            "torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)",
        ], []
    asked = {"equal_nan": "True"} | ({"check_stride": "True"} if detail == "stride" else {}) | how
    signs = ["", "@staticmethod", "def signs(results):", "    return [x.signbit() & (x == 0) for x in results]"]
    signs = signs if detail == "signed zero" else []
    close = "torch.testing.assert_close"
    compared = [f"{close}(actual, expected, {', '.join(f'{name}={value}' for name, value in asked.items())})"]
    compared += [f"{close}(self.signs(actual), self.signs(expected))"] if signs else []
    common = [
        "def common(self, fn, compiled):",
        f"    expected = {_called(parts, 'fn')}",
        f"    actual = {_called(parts, 'compiled')}",
        *indented(compared),
        *signs,
    ]
    return [f"self.common(graph, {parts.compiled})"], common


def _called(parts: ProgramParts, function: str) -> str:
    """One run, its results as a list; with gradients where autograd sees the graph."""
    return f"run({function}, make_inputs())" if "run" in parts.functions else f"list({function}(*make_inputs()))"


def _in_a_child(failure: FailureWords) -> list[str]:
    """The compiled run in a child process, which may die or hang."""
    return [
        'child = multiprocessing.get_context("spawn").Process(target=run_compiled)',
        "child.start()",
        "self.addCleanup(child.kill)",
        f"child.join({BEGINS_S + limit_s(failure)})",
        "self.assertEqual(child.exitcode, 0)",
    ]


def _of_a_child(parts: ProgramParts) -> list[str]:
    """The function that the child process calls, with its own settings."""
    settings = [f"{module}.{name} = {value}" for module, name, value in parts.settings]
    state = [line for text in parts.state for line in text.splitlines()]
    return ["def run_compiled():", *indented([*settings, *state, _called(parts, parts.compiled)])]


def eager_of(suite: str) -> str:
    """The same test with torch's backend `eager`; it has to pass, to show that the test itself is not at fault."""
    tree = syntax.parsed(suite)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.compile":
            node.keywords = [argument for argument in node.keywords if argument.arg != "backend"]
            node.keywords.append(ast.keyword("backend", ast.Constant("eager")))
    return ast.unparse(tree)


def compiles(suite: str) -> bool:
    """Whether the test calls torch.compile, so that another backend can be used."""
    return "torch.compile(" in suite


def failed_as(output: str, kind: str, error: str) -> bool:
    """Whether unittest's output shows the failure, not a test that cannot run."""
    last = (output.strip().splitlines() or [""])[-1]
    if kind == "crash":  # unittest counts the compiler's AssertionError as a failure
        return last in ("FAILED (errors=1)", "FAILED (failures=1)") and error.rpartition(".")[2] in output
    return last == "FAILED (failures=1)"
