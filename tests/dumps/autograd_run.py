"""A small run with both sides of autograd, made without torch: Dynamo's graph, forward with generated code, backward,
post-grad.

>>> run = autograd_run(Path("myrun"), Path("model.py"))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphdbg.dumps.schema import (
    FORMAT,
    GraphBody,
    GraphRecord,
    InputRecord,
    InputsRecord,
    NodeRecord,
    SymbolRecord,
    TensorValue,
)
from graphdbg.dumps.store import Run, open_run

from .graphs import new_run, tensor_value

MODEL = "import torch\n\n\ndef forward(x, w):\n    h = x @ w\n    return torch.relu(h)\n"

CODE = """\
# AOT ID: ['0_forward']
async_compile = AsyncCompile()

# Topologically Sorted Source Nodes: [relu], Original ATen: [aten.relu]
# Source node to ATen node mapping:
#   relu => relu
# Graph fragment:
#   %mm : Tensor "f32[4, 8][8, 1]cuda:0" = PlaceHolder[target=mm]
#   %relu : Tensor "f32[4, 8][8, 1]cuda:0"[num_users=2] = call_function[target=aten.relu.default](args = (%mm,))
#   return %relu
triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''
import triton
def triton_poi_fused_relu_0(in_out_ptr0, xnumel):
    pass
''', device_str='cuda')

async_compile.wait(globals())

def call(args):
    buf0 = empty_strided_cuda((4, 8), (8, 1), torch.float32)
    # Topologically Sorted Source Nodes: [h], Original ATen: [aten.mm]
    extern_kernels.mm(primals_1, primals_2, out=buf0)
    buf1 = buf0; del buf0  # reuse
    # Topologically Sorted Source Nodes: [relu], Original ATen: [aten.relu]
    raw_stream0 = get_raw_stream(0)
    triton_poi_fused_relu_0.run(buf1, 32, stream=raw_stream0)
    # Topologically Sorted Source Nodes: [relu_1], Original ATen: [aten.relu]
    triton_poi_fused_relu_0.run(buf1, 32, stream=raw_stream0)
    return (buf1, )
"""


def call(
    name: str,
    target: str,
    *args: Any,
    number: int = -1,
    stack: int = -1,
    origin: str = "",
    aten: str = "",
    shape: tuple[int | str, ...] = ("s0", 8),
) -> NodeRecord:
    """One call; an argument that is a text names a node."""
    encoded = [{"node": arg} if isinstance(arg, str) else arg for arg in args]
    return NodeRecord(
        name=name,
        op="call_function",
        target=target,
        args=encoded,
        value=tensor_value(*shape),
        stack=stack,
        module=-1 if stack < 0 else 2,
        seq_nr=number,
        from_node=[origin] if origin else [],
        original_aten=aten,
    )


def placeholder(name: str, *shape: int | str, number: int = -1) -> NodeRecord:
    """One input."""
    return NodeRecord(name=name, op="placeholder", target=name, value=tensor_value(*shape), seq_nr=number)


def output(*names: str) -> NodeRecord:
    """The output."""
    return NodeRecord(name="output", op="output", target="output", args=[{"tuple": [{"node": name} for name in names]}])


def _record(graph_id: str, nodes: list[NodeRecord], inputs: list[InputRecord], strings: list[str]) -> GraphRecord:
    return GraphRecord(
        format=FORMAT,
        id=graph_id,
        stage=graph_id.partition("/")[2],
        graph=GraphBody(nodes=nodes),
        inputs=inputs,
        strings=strings,
        symbols=[SymbolRecord("s0", hint=4, lower=2, upper=64, source="L['x'].size()[0]")],
    )


def autograd_run(path: Path, model: Path, *, copy: bool = True) -> Run:
    """The run; `copy` keeps a copy of the model's file, which lies at `model` only if it is written there."""
    strings = [
        f'  File "{model}", line 5, in forward\n    h = x @ w\n',
        f'  File "{model}", line 6, in forward\n    return torch.relu(h)\n'
        '  File "/opt/lib/python3.12/site-packages/torch/nn/functional.py", line 9, in relu\n    return _relu(x)\n',
        "L['self'].body: model.Body",
    ]
    given = [
        InputRecord(name="primals_1", role="user", source="L['x']"),
        InputRecord(name="primals_2", role="parameter", source="L['w']"),
    ]
    x, w = placeholder("primals_1", "s0", 16), placeholder("primals_2", 16, 8)
    mm = call("mm", "aten.mm.default", "primals_1", "primals_2", number=7, stack=0, origin="h", aten="aten.mm.default")
    relu = call("relu", "aten.relu.default", "mm", number=8, stack=1, origin="relu", aten="aten.relu.default")
    built: dict[str, GraphRecord] = {}
    traced = [
        placeholder("l_x_", "s0", 16),
        placeholder("l_w_", 16, 8),
        call("h", "operator.matmul", "l_x_", "l_w_", stack=0),
        call("relu", "torch.relu", "h", stack=1),
        output("relu"),
    ]
    named = [
        InputRecord(name="l_x_", role="user", source="L['x']"),
        InputRecord(name="l_w_", role="parameter", source="L['w']"),
    ]
    built["dynamo"] = _record("0_0/dynamo", traced, named, strings)
    built["forward"] = _record("0_0/forward", [x, w, mm, relu, output("relu", "primals_1", "relu")], given, strings)
    after = call("mm", "aten.mm.default", "primals_1", "primals_2", number=7, stack=0, origin="h")
    nodes = [x, w, after, relu, output("relu", "primals_1", "relu")]
    built["post_grad_forward"] = _record("0_0/post_grad_forward", nodes, given, strings)
    back = [
        x,
        placeholder("relu", "s0", 8, number=8),
        placeholder("tangents_1", "s0", 8),
        call("le", "aten.le.Scalar", "relu", 0, number=8),
        call("where", "aten.where.self", "le", "tangents_1", number=8),
        call("permute", "aten.permute.default", "primals_1", [1, 0], number=7, shape=(16, "s0")),
        call("mm_1", "aten.mm.default", "permute", "where", number=7, shape=(16, 8)),
        output("mm_1"),
    ]
    built["backward"] = _record("0_0/backward", back, [], strings)
    _, process = new_run(path)
    for record in built.values():
        process.save_graph(record)
    process.save_code("0_0/forward", {"output_code.py": CODE})
    seen = InputRecord(
        name="primals_1",
        value=TensorValue("float32", [4, 16], [16, 1]),
        statistics={"min": -1.5, "max": 2.0, "nan": 1, "inf": 0},
    )
    process.save_inputs("0_0/forward", InputsRecord(format=FORMAT, inputs=[seen]))
    if copy:
        process.sources.keep(str(model), MODEL)
    process.close()
    return open_run(path)
