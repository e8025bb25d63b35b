"""An operator whose operands lie on different devices: which node, which operand where, and from which inputs they come.

>>> mixed(case).why
'sin is on cpu (from the input x), y is on cuda:0 (an input of the graph)'
"""

from __future__ import annotations

import re
from typing import Any

from .case import Case
from .explained import Explained
from .nodes import at, interpreter, running_nodes

KIND = "device mismatch"
_SAID = re.compile(
    r"same device|different devices?\b|two (?:different )?devices|device mismatch|devices? (?:must|should) (?:match|be the same)",
    re.IGNORECASE,
)


def mixed(case: Case) -> Explained | None:
    """Fake propagation in capture or post_grad, or a lowering, met operands on more than one device."""
    if not any(_SAID.search("\n".join(str(one).splitlines()[:2])) for one in case.chain):
        return None
    nodes = running_nodes(case)
    if not nodes:
        return None
    node, run_by = nodes[0], interpreter(case)
    where = [(operand, device) for operand in node.all_input_nodes if (device := _device(operand, run_by))]
    told = [f"{operand.name} is on {device}{_from(operand, device, run_by)}" for operand, device in where]
    devices = list(dict.fromkeys(device for _, device in where))
    return case.told(
        KIND, f"{at(node).op} cannot be compiled (node {node.name}): its operands are on different devices",
        ", ".join(told) if len(devices) > 1 else f"{case.said()} ({', '.join(told)})",
        f"move them to one device before the model is compiled, {' or '.join(devices)}" if len(devices) > 1
        else "move all of them to one device before the model is compiled",
        nodes=[at(one) for one in nodes],
    )  # fmt: skip


def _device(node: Any, run_by: Any) -> str:
    """The device of a node's value: as it was run, else as it was traced; "" where it has none."""
    value: Any = getattr(run_by, "env", {}).get(node)
    if value is None:
        value = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(value, (list, tuple)):
        value = next((one for one in value if one is not None), None)  # pyright: ignore[reportUnknownVariableType]
    device = getattr(value, "device", None)
    if device is None and hasattr(value, "get_device"):
        device = value.get_device()
    return str(device) if device is not None else ""


def _from(node: Any, device: str, run_by: Any) -> str:
    """Which inputs of the graph it comes from, those on the same device if there are any."""
    from ..input_names import name_of

    if node.op == "placeholder":
        user = name_of(node).user
        return f" (the input {user})" if user and user != node.name else " (an input of the graph)"
    seen: dict[Any, None] = {}
    waiting = list(node.all_input_nodes)
    while waiting:
        at_one = waiting.pop()
        if at_one not in seen:
            seen[at_one] = None
            waiting += at_one.all_input_nodes
    inputs = sorted(one for one in seen if one.op == "placeholder")
    there = [one for one in inputs if _device(one, run_by) == device] or inputs
    if not there:
        return ""
    names = ", ".join(str(name_of(one)) for one in there[:4]) + (" ..." if len(there) > 4 else "")
    return f" (from the input {names})" if len(there) == 1 else f" (from the inputs {names})"
