"""What a repro says of failures that no error tells: 1 for a compiled function with the fault, 0 for one without it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from graphdbg.dumps.program.endings import ending_of
from graphdbg.dumps.schema import GraphRecord
from graphdbg.toolkit.verdicts.signature import Signature

from .cases import call, case_of, node, record_of, relu_record, tensor

NAN, INF = float("nan"), float("inf")


def exit_code(
    failure: Signature,
    graph: Callable[..., Any],
    compiled: Callable[..., Any],
    *values: torch.Tensor,
    record: GraphRecord | None = None,
) -> int:
    """What the program of that failure exits with."""
    case = case_of(record or relu_record(), failure)
    room: dict[str, Any] = {
        "torch": torch,
        "TorchDispatchMode": TorchDispatchMode,
        "tree_map_only": tree_map_only,
        "graph": graph,
        "sys": sys,
        "compiled": compiled,
        "make_inputs": lambda: [value.clone() for value in values],
    }
    ending = ending_of(case, wide=None)
    try:
        exec("\n".join(line for lines in [*ending.functions, ending.lines] for line in lines), room)
    except SystemExit as end:
        return 1 if isinstance(end.code, str) else int(end.code or 0)
    return 0


X = torch.linspace(0.5, 2.5, 7)


def rounds(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x.to(torch.float16).to(torch.float32) * 2,)


@pytest.mark.parametrize(
    ("kind", "detail", "graph", "wrong", "value"),
    [
        ("nan", "no nan", lambda x: (x * 0,), lambda x: (x,), torch.tensor([INF, 1.0])),
        ("nan", "no inf", lambda x: (x * 2,), lambda x: (-x * 2,), torch.tensor([INF, 0.0])),
        ("nan", "nan", lambda x: (x * 2,), lambda x: (x * NAN,), X),
        ("accuracy", "signed zero", lambda x: (x * -1,), lambda x: (0 - x,), torch.tensor([0.0, 1.0])),
        ("accuracy", "rounding", rounds, lambda x: (x * 2,), X),
        ("accuracy", "rounding", rounds, lambda x: (x * 2,), torch.tensor([70000.0, 1.0])),
        ("accuracy", "integers", lambda x: ((x * 2).long(),), lambda x: ((x * 2).long() + 1,), X),
        ("accuracy", "integers", lambda x: (x > 1,), lambda x: (x > 2,), X),
        ("accuracy", "", lambda x: (x * 2,), lambda x: (x * 3,), X),
        ("metadata", "mutation", lambda x: (x + 1,), lambda x: (x.add_(1) + 0,), X),
        ("metadata", "no mutation", lambda x: (x.add_(1) + 0,), lambda x: (x + 1,), X),
        ("metadata", "alias", lambda x: (x * 1,), lambda x: (x,), X),
        ("metadata", "no alias", lambda x: (x[1:],), lambda x: (x[1:].clone(),), X),
        ("metadata", "offset", lambda x: (x.fill_(1.0)[1:],), lambda x: (x.fill_(1.0)[:-1],), X),
    ],
)
def test_it_tells_the_fault_and_nothing_else(
    kind: Any, detail: str, graph: Any, wrong: Any, value: torch.Tensor
) -> None:
    failure = Signature(kind, "compare", detail=detail, size=1.0 if kind == "accuracy" else None)
    assert exit_code(failure, graph, wrong, value) == 1
    assert exit_code(failure, graph, graph, value) == 0


def test_a_rounding_is_judged_by_the_dtype_of_the_result() -> None:
    half = call("to", "to", node("x"), op="call_method", value=tensor(7, dtype="float16"))
    record = record_of({"x": tensor(7)}, [half], ["to"])
    failure = Signature("accuracy", "compare", detail="rounding", size=1e-4)
    assert exit_code(failure, rounds, lambda x: (x * 2,), X, record=record) == 1
