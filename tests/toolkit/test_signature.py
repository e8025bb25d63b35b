"""What counts as one failure: normal forms of messages, unwrapping, equality across reductions, and back from JSON."""

from __future__ import annotations

import msgspec
import pytest

from graphdbg.toolkit.isolation.protocol import ChildError, TaskResult
from graphdbg.toolkit.verdicts import signature
from graphdbg.toolkit.verdicts.signature import Signature, from_answer, from_exception

SAME = [
    ("shape (4, 8) at 0x7f3a", "shape (16,) at 0xdeadbeef"),
    ("expected size [2, 3, 4], got [5]", "expected size [1], got [7, 7]"),
    ("buf12 is not in names", "buf3 is not in names"),
    ("bad node %add_14 of arg0_1", "bad node %add of arg7_1"),
    ("primals_13 has no val", "primals_2 has no val"),
    ("/tmp/abc/def.py is gone", "/home/me/x/y.py is gone"),
    ("got 1.5e-05 and 3", "got -2 and 7.25"),
    (
        "cannot lower TensorBox(StorageBox(\n  InputBuffer(name='x_1', layout=FixedLayout('cpu', size=[8, 8]))\n))",
        "cannot lower TensorBox(\n  View(ComputedBuffer(name='buf0', data=Pointwise((1), lambda: (2)))))",
    ),
    ("dict has no key s0", "dict has no key s17"),
]

OTHER = [
    ("expected Float but found Half", "expected Float but found Double"),
    ("aten.sin.default is not supported", "aten.cos.default is not supported"),
    ("index out of range", "shape mismatch"),
]


@pytest.mark.parametrize(("text", "other"), SAME)
def test_what_a_reduction_changes_is_left_out(text: str, other: str) -> None:
    assert signature.message(text) == signature.message(other)


@pytest.mark.parametrize(("text", "other"), OTHER)
def test_what_tells_bugs_apart_stays(text: str, other: str) -> None:
    assert signature.message(text) != signature.message(other)


def test_a_compilers_output_is_its_first_error() -> None:
    output = (
        "/tmp/c4/cabc.cpp: In function 'void kernel(const float*)':\n/tmp/c4/cabc.cpp:12:38: error: "
        "'compile' was not declared\n"
        "   12 | auto tmp1 = compile error!;\n/tmp/c4/cabc.cpp:13:1: error: expected ';'\n"
    )
    assert signature.cpp_error(output) == "'compile' was not declared"
    first, second = (f"x.cpp:9:1: error: conflicting declaration 'auto at_Half_tmp_acc{n}_vec'" for n in (0, 12))
    assert signature.cpp_error(first) == signature.cpp_error(second)
    assert signature.cpp_error("collect2: ld returned 1 exit status") == "collect2: ld returned <n> exit status"


class InductorError(RuntimeError):
    """Like torch's: wraps another exception."""

    def __init__(self, inner: BaseException) -> None:
        self.inner_exception = inner
        super().__init__(f"{type(inner).__name__}: {inner}")


class LoweringException(RuntimeError):
    """Like torch's: raised from within the handler of another."""


class CppCompileError(RuntimeError):
    """Like torch's: has the compiler's output."""

    def __init__(self, output: str) -> None:
        self.output = output
        super().__init__("C++ compile error\n\nCommand:\ng++ /tmp/x.cpp")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as caught:
        return caught


def lowering(op: str, text: str) -> BaseException:
    try:
        try:
            raise AssertionError(text)
        except AssertionError as inner:
            raise LoweringException(f"AssertionError: {text}\n  target: {op}\n  args[0]: TensorBox(...)") from inner
    except LoweringException as caught:
        return raised(InductorError(caught))


def test_wrappers_are_opened_and_the_op_is_kept() -> None:
    result = from_exception(lowering("aten.sin.default", "bad 3"), "compile")
    assert (result.kind, result.stage, result.error, result.message) == (
        "crash",
        "compile",
        "AssertionError",
        "bad <n>",
    )
    assert result.detail == "aten.sin.default"
    assert result.same_as(from_exception(lowering("aten.sin.default", "bad 4"), "compile"))
    assert not result.same_as(from_exception(lowering("aten.cos.default", "bad 4"), "compile"))
    assert not result.same_as(from_exception(lowering("aten.sin.default", "bad 4"), "run"))


def test_a_share_of_whole_numbers_is_no_relative_error() -> None:
    raw = "argmax, train.py:4: 2 of 8 elements differ from eager's (torch.int64)"
    assert Signature("accuracy", "compare", detail="integers", size=0.25, raw=raw).text() == (
        f"accuracy in compare: integers: {raw}"
    )
    assert "relative error 0.25" in Signature("accuracy", "compare", size=0.25, raw="argmax").text()


def test_a_cpp_error_is_known_by_its_text_not_its_command() -> None:
    item = from_exception(
        raised(InductorError(CppCompileError("/a/b/k.cpp:1: error: 'foo' was not declared"))), "compile"
    )
    two = from_exception(
        raised(InductorError(CppCompileError("/c/d/l.cpp:99: error: 'foo' was not declared"))), "compile"
    )
    three = from_exception(raised(InductorError(CppCompileError("/c/d/l.cpp:99: error: expected ';'"))), "compile")
    assert item.same_as(two)
    assert not item.same_as(three)


def test_frames_speak_when_the_message_does_not() -> None:
    item = Signature("crash", "compile", "AssertionError", "", ("torch._inductor.ir:a", "torch._inductor.graph:b"))
    assert item.same_as(msgspec.structs.replace(item))
    assert not item.same_as(
        msgspec.structs.replace(item, frames=("torch._inductor.scheduler:a", "torch._inductor.graph:b"))
    )


def test_a_message_that_varies_is_forgiven_in_the_same_place_only() -> None:
    frames = ("torch._inductor.ir:a", "torch._inductor.graph:b")
    text = "unsupported combination of layouts for operation called {} in this scheduler"
    item = Signature("crash", "compile", "RuntimeError", text.format("alpha"), frames)
    assert item.same_as(msgspec.structs.replace(item, message=text.format("beta")))
    assert not item.same_as(msgspec.structs.replace(item, message=text.format("beta"), frames=frames[:1]))
    assert not item.same_as(msgspec.structs.replace(item, message="division by zero"))


def test_wrong_numbers_may_shrink_but_not_to_rounding() -> None:
    item = Signature("accuracy", "compare", size=0.5)
    assert item.same_as(Signature("accuracy", "compare", size=0.01))
    assert item.same_as(Signature("accuracy", "compare", size=90.0))
    assert not item.same_as(Signature("accuracy", "compare", size=1e-5))
    assert not item.same_as(Signature("nan", "compare", detail="nan"))


def test_metadata_failures_are_told_by_property() -> None:
    assert not Signature("metadata", "compare", detail="stride").same_as(
        Signature("metadata", "compare", detail="dtype")
    )


TRACE = 'Current thread 0x1 (most recent call first):\n  File "/v/torch/_ops.py", line 3 in __call__'


@pytest.mark.parametrize(
    "answer",
    [
        TaskResult(1, "signal", signal="SIGSEGV", stage="run", output=TRACE),
        TaskResult(1, "timeout", stage="compile"),
        TaskResult(1, "memory", stage="run"),
        TaskResult(
            1, "exception", error=ChildError("ProcessExit", "the process ended itself with exit code 3"), stage="run"
        ),
    ],
)
def test_each_end_of_a_process_has_a_signature(answer: TaskResult) -> None:
    result = from_answer(answer)
    assert result is not None
    assert (
        result.kind == {"signal": "signal", "timeout": "hang", "memory": "memory", "exception": "crash"}[answer.status]
    )
    assert result.stage == answer.stage
    assert msgspec.json.decode(msgspec.json.encode(result), type=Signature) == result
    assert result.same_as(result)
    assert result.kind in result.text()


HEAP = (
    "double free or corruption (!prev)",
    "corrupted size vs. prev_size",
    "free(): invalid next size (fast)",
    "malloc_consolidate(): unaligned fastbin chunk detected",
)


@pytest.mark.parametrize("line", HEAP[1:])
def test_a_corrupt_heap_is_one_failure_wherever_it_is_noticed(line: str) -> None:
    elsewhere = TRACE.replace("_ops", "_tensor")
    first, second, other = (
        from_answer(TaskResult(1, "signal", signal="SIGABRT", stage=stage, output=f"{said}\n{trace}"))
        for said, trace, stage in (
            (HEAP[0], TRACE, "run"),
            (line, elsewhere, "compare"),
            ("Assertion `n < 3' failed.", elsewhere, "run"),
        )
    )
    assert first is not None and second is not None and other is not None
    assert first.same_as(second) and second.same_as(first)
    assert not first.same_as(other)
    assert line in second.text()


def test_an_answer_carries_the_tasks_own_signature() -> None:
    inner = Signature("accuracy", "compare", size=1.0)
    assert from_answer(TaskResult(1, "done", value={"signature": msgspec.to_builtins(inner)})) == inner
    assert from_answer(TaskResult(1, "done", value={"ok": True})) is None


def test_a_segfault_trace_gives_frames() -> None:
    trace = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/v/lib/python3.11/site-packages/torch/_ops.py", line 900 in __call__\n'
        '  File "/tmp/x/ab/cabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz2.py", line 3 in call\n'
    )
    assert signature.faulthandler_frames(trace) == ["torch._ops:__call__", "<generated>:call"]


class CompilationError(Exception):
    """As Triton's: without a message of its own where a function that the kernel calls is refused."""

    def __init__(self, text: str, error_message: str | None = None) -> None:
        super().__init__(text)
        self.error_message = error_message


def test_what_triton_refuses_is_known_by_its_sentence_and_not_by_the_source() -> None:
    def refused(name: str, what: str) -> Signature:
        inner = CompilationError(f"at 3:1:\ndef {name}(p):\n    q = p\n ^\n{what}", what)
        outer = CompilationError(f"at 9:5:\ndef kernel_of_{name}(p):\n    {name}(p)\n    ^")
        outer.__cause__ = inner
        return from_exception(outer, "compile")

    result = refused("one", "type fp8e4b8 not supported")
    assert result.text() == "crash in compile: CompilationError: type fp8e4b8 not supported"
    assert result.same_as(refused("two", "type fp8e4b8 not supported"))
    assert not result.same_as(refused("one", "arange takes constants"))
