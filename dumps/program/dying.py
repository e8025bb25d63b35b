"""Endings of a repro for what raises, and for a run that dies, hangs, or needs too much time or memory. Imports no
torch."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..wording import SOURCE
from .case import FailureWords, ReproFacts
from .text import Lines, indented

if TYPE_CHECKING:
    from .endings import Runs

LIMIT_S, LEAST_S = 120, 20
"""Seconds after which a compile of a small case hangs, where no limit was recorded; and what a fresh process needs at
least."""

OUT_OF_MEMORY_BYTES = 2 << 30
"""Bytes that the compiled run of a small case may map, where the original ran out of memory."""

_TEXT_OF = """"".join(traceback.format_exception(error, limit=0)) + str(getattr(error, "inner_exception", ""))"""
_WARM = (
    "torch.compile(lambda x: x + 1)(torch.ones(2))  # what the first compile of a process loads is not what is measured"
)


@dataclass
class DyingProgram:
    """The statements that run and judge, and functions that they need beside the graph."""

    lines: Lines
    functions: list[Lines] = field(default_factory=list[Lines])
    expected: Lines = field(default_factory=list[str])
    """Statements that come before all others: which exception is looked for."""


def limit_s(failure: FailureWords) -> int:
    """Seconds to wait for a hang: the limit when it was found."""
    return max(LEAST_S, int(failure.size)) if failure.kind == "hang" and failure.size else LIMIT_S


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
"""Judges an exception: the expected one is the bug; any other one ends in the hook."""


def crash(run: Runs) -> DyingProgram:
    """The ending for an exception while it compiles or runs."""
    return DyingProgram(
        [
            *run.eager(),
            "try:",
            *indented(run.waited(run.compiled)),
            "except Exception as error:",
            *_JUDGED,
            'print("gone: it compiles and runs")',
        ],
        [SOURCE],
    )


def missing_error(run: Runs) -> DyingProgram:
    """The ending for an exception of eager mode that compiled code does not raise."""
    raised = [
        "def raised(function):",
        "    try:",
        *indented(run.waited("function"), " " * 8),
        "    except Exception as error:  # noqa: BLE001",
        f"        return {_TEXT_OF}",
        '    return ""',
    ]
    return DyingProgram(
        [
            f"eager, got = raised(graph), raised({run.compiled})",
            "other = any(text and (ERROR not in text or not like(WORDS, text)) for text in (eager, got))",
            "print(f\"{'cannot tell: ' * other}eager mode raises {eager or 'nothing'}\\ntorch.compile raises "
            "{got or 'nothing'}\")",
            "sys.exit(UNSURE if other else int(bool(eager) and not got))",
        ],
        [SOURCE, raised],
    )


def only_compiles(case: ReproFacts, compiled: str, *, inner: bool) -> DyingProgram:
    """The ending for a graph that eager cannot run where it was minified: it is compiled, and nothing is run.

    `torch.compile` is given inputs with values and stopped behind the compile; the inner compiler is given fake
    tensors, which need no device and no memory.
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
        [
            *inputs,
            "try:",
            f"    {compiled}(*inputs)",
            "except Exception as error:",
            *_JUDGED,
            'raise RuntimeError("nothing was compiled")',
        ],
        [SOURCE] if inner else [SOURCE, backend],
    )


# -- processes that die, hang, or need too much
# --------------------------------------------------------------------------------


_AGAIN = '[sys.executable, *sys.argv, "child"]'


def _child(run: Runs, *before: str, why: str = "") -> Lines:
    """The compiled run, in a process of its own that the program starts."""
    return [f'if "child" in sys.argv:{why}', *before, *indented([*run.waited(run.compiled), "sys.exit(0)"])]


def signal(run: Runs) -> DyingProgram:
    """The ending for a process that is killed."""
    end = death_of(run.failure)
    return DyingProgram(
        [
            *_child(run),
            *run.eager(),
            f"end = subprocess.run({_AGAIN}, timeout={limit_s(run.failure)}, check=False).returncode",
            f"print(f\"{{'BUG' if end == {end} else 'cannot tell' if end else 'gone'}}: the compiled run "
            f'ended with {{end}}")',
            f"sys.exit(1 if end == {end} else UNSURE if end else 0)",
        ]
    )


def hang(run: Runs) -> DyingProgram:
    """The ending for a run that does not end."""
    limit = limit_s(run.failure)
    return DyingProgram(
        [
            *_child(run),
            *run.eager(),
            "try:",
            f"    subprocess.run({_AGAIN}, timeout={limit}, check=True)",
            "except subprocess.TimeoutExpired:",
            f'    sys.exit("BUG: the compiled run does not end within {limit} s")',
            'print("gone: it ends")',
        ]
    )


def slow(run: Runs) -> DyingProgram:
    """The ending for a compile that takes too long."""
    over = f"{float(run.failure.message):g}"
    return DyingProgram(
        [
            *run.eager(),
            _WARM,
            "began = time.perf_counter()  # compile and first run; the compile cache should be empty",
            *run.waited(run.compiled),
            "seconds = time.perf_counter() - began",
            f"print(f\"{{'BUG' if seconds > {over} else 'gone'}}: compile and first run took {{seconds:.1f}} s\")",
            f"sys.exit(int(seconds > {over}))",
        ]
    )


def memory(run: Runs) -> DyingProgram:
    """The ending for a memory peak, or for running out of memory."""
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
        [
            *run.eager(),
            _WARM,
            f"before = {before}",
            *reset,
            *run.waited(run.compiled),
            f"needed = {peak} - before",
            f"print(f\"{{'BUG' if needed > {over} else 'gone'}}: compile and first run needed {{needed / "
            f'2**20:.1f}} MiB")',
            f"sys.exit(int(needed > {over}))",
        ],
        functions,
    )


def _out_of_memory(run: Runs) -> DyingProgram:
    limited = [
        '    with open("/proc/self/statm") as file:',
        f"        limit = int(file.read().split()[0]) * resource.getpagesize() + {OUT_OF_MEMORY_BYTES}",
        "    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))",
    ]
    output = "capture_output=True, text=True, check=False"
    return DyingProgram(
        [
            *_child(
                run, *limited, why=f"  # the compiled run, where no more than {OUT_OF_MEMORY_BYTES} bytes can be mapped"
            ),
            *run.eager(),
            f"end = subprocess.run({_AGAIN}, timeout={LIMIT_S}, {output})",
            'words = ("memoryerror", "can\'t allocate memory", "std::bad_alloc", "out of memory")',
            "short = end.returncode != 0 and any(word in end.stderr.lower() for word in words)",
            'says = "BUG: it runs out of memory" if short else "cannot tell" if end.returncode else "gone"',
            'print(f"{end.stderr}\\n{says}: the compiled run ended with {end.returncode}")',
            "sys.exit(1 if short else UNSURE if end.returncode else 0)",
        ]
    )
