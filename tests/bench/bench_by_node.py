"""Planted faults on graphs of 500 and more operations: does `bisect --by node` name it, and with how many compiles?

    python -m tests.bench.bench_by_node [--only NAME,NAME] [--cache FOLDER] [--tell]

Prints a line for each case: the planted node or pattern, what was named, compiles and their bound, operations, seconds.
Exits with 1 when fewer than 19 of 20 are named or a bound is exceeded. Takes minutes. The faults are modules of
tests/planted, imported in the children; what they are about is handed over by a module written for each case.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from torch import fx

from graphdbg.dumps.live import encode, save_graph
from graphdbg.dumps.schema import Ambient
from graphdbg.dumps.store import load_graph
from graphdbg.toolkit.blame.bisect import bisect
from graphdbg.toolkit.isolation import JUDGING, ForkServer
from tests.models.node_graphs import GRAPHS

PLANTED = Path(__file__).parents[1] / "planted"


class Case(NamedTuple):
    """A fault: the graph, the module that plants it (or ""), its settings, and which node: the n-th of a target."""

    name: str
    graph: str
    module: str
    target: str
    number: int
    settings: dict[str, str] = {}
    pattern: tuple[str, ...] = ()
    """Targets of further nodes of the pattern: the neighbours that may be named in place of the node."""


CASES = [
    Case("one multiplication's lowering", "transformer_forward", "planted_node", "mul.Tensor", 20),
    Case(
        "a residual addition before layer norms",
        "transformer_forward",
        "planted_node",
        "add.Tensor",
        15,
        {"FACTOR": "1.01"},
    ),
    Case("one softmax division", "transformer_forward", "planted_node", "div.Tensor", 5),
    Case("a matrix product of the last layer", "transformer_forward", "planted_node", "addmm.default", 26),
    Case("Inductor's own relu bug", "transformer_forward", "", "relu.default", 0),
    Case("a gradient's sum", "transformer_backward", "planted_node", "sum.dim_IntList", 41),
    Case("a gradient's multiplication", "transformer_backward", "planted_node", "mul.Tensor", 60, {"FACTOR": "1.02"}),
    Case("a gradient's where", "transformer_backward", "planted_node", "where.self", 4),
    Case("bfloat16: an addition", "transformer_bf16", "planted_node", "add.Tensor", 31, {"FACTOR": "1.5"}),
    Case("float16: a subtraction", "silu_half", "planted_node", "sub.Tensor", 50, {"FACTOR": "1.3"}),
    Case("code of every tanh", "tanh_net", "planted_codegen", "tanh.default", 0),
    Case("vectorised code only", "convolutional", "planted_op", "exp.default", 0, {"KIND": "vector"}),
    Case("a custom post-grad pass", "tanh_net", "planted_post_grad_pass", "tanh.default", 0),
    Case("a custom joint pass", "tanh_net", "planted_joint_pass", "tanh.default", 0),
    Case("a built-in pass", "tanh_net", "planted_builtin_pass", "mul.Tensor", 57 * 3),
    Case(
        "a pass on one pair, all are right when returned",
        "silu_net",
        "planted_pair",
        "sigmoid.default",
        37,
        {"COUNT": "37"},
        ("mul.Tensor",),
    ),
    Case("a pass on every pair", "silu_net", "planted_pair", "sigmoid.default", 0, {}, ("mul.Tensor",)),
    Case(
        "only where fused with a sigmoid",
        "silu_net",
        "planted_op",
        "sigmoid.default",
        52,
        {"KIND": "fused"},
        ("mul.Tensor",),
    ),
    Case("one constant", "tanh_net", "planted_op", "add.Tensor", 62, {"KIND": "constant"}),
    Case("one shape", "convolutional", "planted_op", "mul.Tensor", -1, {"KIND": "shape"}),
    Case("a view's start", "convolutional", "planted_op", "slice.Tensor", 56, {"KIND": "slice"}),
    Case("a variance", "transformer_forward", "planted_op", "var_mean.correction", 9, {"KIND": "var"}),
    Case("an argmax among integer outputs", "recurrent", "planted_op", "argmax.default", 28, {"KIND": "argmax"}),
    Case("a recurrent gate, damped after", "recurrent", "planted_node", "sigmoid.default", 20),
    Case("a convolution", "convolutional", "planted_node", "convolution.default", 28),
    Case("NaN that only compiled code has", "convolutional", "planted_op", "sqrt.default", 21, {"KIND": "nan"}),
]


def wanted(case: Case, gm: fx.GraphModule) -> tuple[str, set[str]]:
    """The planted node, and every name that counts: its own and those of the pattern around it."""
    nodes = [node for node in gm.graph.nodes if str(node.target) == f"aten.{case.target}"]
    if case.settings.get("KIND") == "shape":
        nodes = [node for node in nodes if node.meta["val"].shape[-1] == 24]
    node = nodes[case.number]
    around = [*node.users, *node.all_input_nodes]
    return node.name, {node.name} | {
        item.name for item in around if str(item.target) in {f"aten.{it}" for it in case.pattern}
    }


def prepared(case: Case, folder: Path, number: int) -> tuple[Path, list[str], str, set[str]]:
    """The saved graph, what to import, the planted node, the names that count."""
    gm, inputs, stage = GRAPHS[case.graph]()
    node, names = wanted(case, gm)
    kwargs: dict[str, Any] = {"is_backward": True} if stage == "backward" else {}
    config = {} if case.module else {"inductor": {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}}
    path = folder / f"case_{number}"
    like = encode(gm, id="0_0/" + stage, stage=stage, compile_kwargs=kwargs, ambient=Ambient(grad=False), config=config)
    save_graph(gm, inputs, path, like=like, stage=stage, compile_kwargs=kwargs)
    if not case.module:
        return path, [], node, names
    given = {"NODE": node, **case.settings}
    lines = [
        "import os",
        *(f"os.environ['PLANTED_{key}'] = {value!r}" for key, value in given.items()),
        f"import {case.module}",
    ]
    (folder / f"plants_{number}.py").write_text("\n".join(lines) + "\n")
    return path, [f"plants_{number}"], node, names


def main() -> None:
    """Runs the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="words of the cases to run, with commas")
    parser.add_argument("--cache", help="an Inductor cache to share; default: a fresh one")
    parser.add_argument("--tell", action="store_true", help="show each compile")
    arguments = parser.parse_args()
    words = [word for word in arguments.only.split(",") if word]
    chosen = [case for case in CASES if not words or any(word in case.name for word in words)]
    named = within = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sys.path += [temporary, str(PLANTED)]
        with ForkServer(arguments.cache, threads=2, preload=JUDGING) as server:
            for number, case in enumerate(chosen):
                path, imports, node, names = prepared(case, folder, number)
                began = time.perf_counter()
                tell = (lambda text: print("   ", text, flush=True)) if arguments.tell else (lambda text: None)
                search = bisect(load_graph(path), by="node", imports=imports, server=server, narrate=tell).by_node
                assert search is not None
                got = search.node.name if search.node else search.status
                bound = 2 * math.log2(search.nodes) + 4
                right = got in names
                named, within = named + right, within + (search.compiles <= bound)
                alone = {True: "alone", False: "fused", None: "-"}[search.alone]
                print(
                    f"{'ok   ' if right else 'WRONG'} {case.name:<50} planted {node:<14} named {got:<14} {alone:<6}"
                    f" {search.compiles:2d} of {bound:4.1f} compiles, n = {search.nodes}, "
                    f"{time.perf_counter() - began:5.1f} s",
                    flush=True,
                )
                if not right:
                    print(
                        f"      {search.text} {search.sentence} {search.notes} {[item.name for item in search.group]}",
                        flush=True,
                    )
    print(f"{named} of {len(chosen)} named, {within} within the bound")
    raise SystemExit(0 if named >= math.ceil(len(chosen) * 0.95) and within == len(chosen) else 1)


if __name__ == "__main__":
    main()
