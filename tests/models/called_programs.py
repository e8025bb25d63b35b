"""Small programs with one fault each, for planted_calls.py: in a graph, or in what Dynamo and AOTAutograd do around
them.

A case's `fault` is a module of tests/planted, or the text of one: it lies beside the program, which imports it
as `fault`.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    """`says`: a pattern that the finding has to match (its sentence, node, line); `rung` and `layers` as in `triage --
    CMD`."""

    fault: str
    program: str
    function: str
    rung: str
    layers: str
    says: str
    call: int = 0


HEAD = "import torch\nimport fault\ntorch.manual_seed(0)\n"
LOWERED = """import torch
from torch._inductor.lowering import lowerings, mul
_right = lowerings[torch.ops.aten.{op}]
lowerings[torch.ops.aten.{op}] = lambda *args, **kwargs: mul(_right(*args, **kwargs), {factor})
"""
DECOMPOSED = """import torch
from torch._inductor.decomposition import decompositions
decompositions[torch.ops.aten.{op}] = {function}
"""
PASSED = """import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
class Larger(CustomGraphPass):
    def __call__(self, graph):
        for node in list(graph.find_nodes(op="call_function", target=torch.ops.aten.{op})):
            with graph.inserting_after(node):
                larger = graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.03))
            larger.meta.update(node.meta)
            node.replace_all_uses_with(larger, delete_user_cb=lambda user, mine=larger: user is not mine)
    def uuid(self):
        return None
config.{place} = Larger()
"""
CODED = """from torch._inductor.codegen import cpp
for _overrides in (cpp.CppOverrides, cpp.CppVecOverrides):
    _overrides.{op} = staticmethod(lambda x, _right=_overrides.{op}: _right(f"({{x}} * {{x}})"))
"""
EPILOGUE = """import torch._dynamo
from torch._functorch._aot_autograd import runtime_wrappers as wrappers
_right = wrappers._codegen_epilogue
def _codegen_epilogue(lines, names, *args, **kwargs):
    _right(lines, names, *args, **kwargs)
    if (right := names.get("{name}")) is not None:
        names["{name}"] = {function}
wrappers._codegen_epilogue = _codegen_epilogue
"""
TRAINS = """
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.{layer}(), torch.nn.Linear(16, 4))
@torch.compile
def step(x):
    return net(x).pow(2).mean()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = step(torch.randn(32, 8))
    loss.backward()
    opt.step()
    print(loss.item())
"""
CALLED = """
@torch.compile
def step(x):
    return {body}
for _ in range(2):
    print(step(torch.randn(16, 32)).sum().item())
"""
BACKWARD = """
@torch.compile
def step(x):
    return {body}
for _ in range(2):
    x = torch.randn(16, 32, requires_grad=True)
    step(x).backward()
    print(x.grad.norm().item())
"""

GRAPHS: dict[str, Case] = {
    "decomposition": Case(
        "planted_decomposition", HEAD + TRAINS.format(layer="SiLU"), "step", "decomposed", "decomposition", "silu"
    ),
    "decomposition, backward": Case(
        DECOMPOSED.format(op="tanh_backward.default", function="lambda g, y: 1.02 * g * (1 - y * y)"),
        HEAD + TRAINS.format(layer="Tanh"),
        "step",
        "decomposed",
        "decomposition",
        "tanh_backward",
    ),
    "dtype of a decomposition": Case(
        "planted_wide_decomposition",
        HEAD + CALLED.format(body="torch.nn.functional.silu(x) + 1"),
        "step",
        "decomposed",
        "decomposition",
        "silu",
    ),
    "pre-grad pass": Case(
        "planted_pre_grad_pass",
        HEAD + CALLED.format(body="torch.tanh(x) * 2"),
        "step",
        "inductor",
        "inductor",
        "tanh|Larger",
    ),
    "joint pass": Case(
        "planted_joint_pass", HEAD + TRAINS.format(layer="Tanh"), "step", "inductor", "inductor", "tanh|Larger"
    ),
    "post-grad pass": Case(
        "planted_post_grad_pass",
        HEAD + CALLED.format(body="torch.tanh(x) * 2"),
        "step",
        "inductor",
        "inductor",
        "tanh|Larger",
    ),
    "post-grad pass, backward": Case(
        PASSED.format(op="cos.default", place="post_grad_custom_post_pass"),
        HEAD + BACKWARD.format(body="(x.sin() * 2).sum()"),
        "step",
        "inductor",
        "inductor",
        "cos|Larger",
    ),
    "lowering": Case("planted_lowering", HEAD + TRAINS.format(layer="Tanh"), "step", "inductor", "inductor", "tanh"),
    "lowering, backward": Case(
        LOWERED.format(op="cos.default", factor=1.02),
        HEAD + BACKWARD.format(body="(x.sin() * 2).sum()"),
        "step",
        "inductor",
        "inductor",
        "cos",
    ),
    "fusion": Case(
        "planted_fusion",
        HEAD
        + """
@torch.compile
def step(x):
    y = torch.tanh(x)
    return y.relu(), (y * x).sigmoid()
for _ in range(2):
    print([one.sum().item() for one in step(torch.randn(16, 32))])
""",
        "step",
        "inductor",
        "inductor",
        "tanh|fus",
    ),
    "code": Case(
        "planted_codegen", HEAD + CALLED.format(body="torch.tanh(x) * 2"), "step", "inductor", "inductor", "tanh"
    ),
    "code, backward": Case(
        CODED.format(op="cos"),
        HEAD + BACKWARD.format(body="(x.sin() * 2).sum()"),
        "step",
        "inductor",
        "inductor",
        "cos",
    ),
    "later recompile": Case(
        "planted_dynamic",
        HEAD
        + """
@torch.compile
def step(x):
    return torch.tanh(x) * 2
for at in range(12):
    print(step(torch.randn(16 if at < 6 else 10 + at, 32)).sum().item())
""",
        "step",
        "inductor",
        "inductor",
        "tanh",
        7,
    ),
    "only under autocast": Case(
        """import torch
from torch._inductor.lowering import lowerings, mul
_right = lowerings[torch.ops.aten.tanh.default]
def tanh(x):
    return mul(_right(x), 1.2) if x.get_dtype() == torch.bfloat16 else _right(x)
lowerings[torch.ops.aten.tanh.default] = tanh
""",
        HEAD
        + """
fc = torch.nn.Linear(32, 32)
@torch.compile
def step(x):
    return torch.tanh(fc(x)) * 2
for at in range(6):
    with torch.autocast("cpu", torch.bfloat16, enabled=at >= 4):
        print(step(torch.randn(16, 32)).float().sum().item())
""",
        "step",
        "inductor",
        "inductor",
        "tanh",
        4,
    ),
    "third step's values": Case(
        """import torch
from torch._inductor.lowering import lowerings, mul
_right = lowerings[torch.ops.aten.tanh.default]
def tanh(x):
    big = lowerings[torch.ops.aten.gt.Scalar](x, 4.0)
    return lowerings[torch.ops.aten.where.self](big, mul(_right(x), 0.9), _right(x))
lowerings[torch.ops.aten.tanh.default] = tanh
""",
        HEAD
        + """
@torch.compile
def step(x):
    return torch.tanh(x) * 2
for at in range(4):
    print(step(torch.rand(16, 32) * (at + 1) * 1.8).sum().item())
""",
        "step",
        "inductor",
        "inductor",
        "tanh",
        2,
    ),
    "third step's counter": Case(
        """import torch
from torch._inductor.lowering import lowerings
_right = lowerings[torch.ops.aten.add.Tensor]
def add(a, b, **kwargs):
    return _right(a, 2.5 if b == 2 else b, **kwargs)
lowerings[torch.ops.aten.add.Tensor] = add
""",
        HEAD
        + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.calls = torch.nn.Linear(8, 8), 0
    def forward(self, x):
        y = self.fc(x).relu() + self.calls if self.calls < 3 else self.fc(x)
        self.calls += 1
        return y
net = Net()
step = torch.compile(net, dynamic=False)
for _ in range(4):
    print(step(torch.randn(4, 8)).sum().item())
""",
        "Net.forward",
        "inductor",
        "inductor",
        "add",
        2,
    ),
    "compiled optimizer": Case(
        """from torch._inductor.codegen import cpp
cpp.CppOverrides.sqrt = staticmethod(lambda x: f"std::sqrt({x} * {x})")
cpp.CppVecOverrides.sqrt = staticmethod(lambda x: f"({x} * {x}).sqrt()")
""",
        HEAD
        + """
net = torch.nn.Linear(8, 8)
opt = torch.optim.Adam(net.parameters(), lr=0.1)
@torch.compile
def update():
    opt.step()
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8)).pow(2).mean().backward()
    update()
    print(net.weight.sum().item())
""",
        "update",
        "inductor",
        "inductor",
        "sqrt",
    ),
    "second of two functions": Case(
        "planted_lowering",
        HEAD
        + """
@torch.compile
def first(x):
    return x.sin() * 2
@torch.compile
def second(x):
    return torch.tanh(x) * 2
for _ in range(2):
    print(second(first(torch.randn(16, 32))).sum().item())
""",
        "second",
        "inductor",
        "inductor",
        "tanh",
    ),
    "behind a graph break": Case(
        "planted_lowering",
        HEAD
        + """
@torch.compile
def step(x):
    y = x.sin() * 2
    print("half way")
    return torch.tanh(y) * 2
for _ in range(2):
    print(step(torch.randn(16, 32)).sum().item())
""",
        "step",
        "inductor",
        "inductor",
        "tanh",
    ),
    "partition": Case(
        "planted_partition", HEAD + TRAINS.format(layer="Tanh"), "step", "inductor", "inductor", "custom_partitioner_fn"
    ),
    "write": Case(
        "planted_write",
        HEAD
        + """
kept = torch.zeros(16, 32)
@torch.compile
def step(x):
    kept.mul_(0.5).add_(x)
    return x.sum()
for _ in range(2):
    print(step(torch.randn(16, 32)).item())
""",
        "step",
        "inductor",
        "inductor",
        "copy_|kept",
    ),
}
"""Found with its rung and its op by `triage -- python prog.py` alone."""

AROUND: dict[str, Case] = {
    "a guard is missing": Case(
        """from torch._dynamo.guards import GuardBuilder
_right = GuardBuilder.EQUALS_MATCH
def EQUALS_MATCH(self, guard, recompile_hint=None):
    return None if "scale" in guard.name else _right(self, guard, recompile_hint)
GuardBuilder.EQUALS_MATCH = EQUALS_MATCH
""",
        HEAD
        + """
class Net(torch.nn.Module):
    scale = 2
    def forward(self, x):
        return x.sin() * self.scale
net = Net()
step = torch.compile(net, dynamic=False)
for at in range(3):
    net.scale = at // 2 + 2
    print(step(torch.randn(4, 8)).sum().item())
""",
        "Net.forward",
        "dynamo",
        "dynamo",
        "result",
        2,
    ),
    "a side effect is lost": Case(
        """from torch._dynamo import side_effects
_right = side_effects.SideEffects.codegen_update_mutated
def codegen_update_mutated(self, cg, *args, **kwargs):
    for changes in self.store_attr_mutations.values():
        changes.pop("count", None)
    return _right(self, cg, *args, **kwargs)
side_effects.SideEffects.codegen_update_mutated = codegen_update_mutated
""",
        HEAD
        + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0
    def forward(self, x):
        self.count += 1
        return x.sin() * 2
net = Net()
step = torch.compile(net)
for _ in range(3):
    print(step(torch.randn(4, 8)).sum().item(), net.count)
""",
        "Net.forward",
        "dynamo",
        "dynamo",
        "count",
    ),
    "resumed without a mode": Case(
        """from torch._dynamo import resume_execution
_right = resume_execution.ReenterWith.__call__
def __call__(self, code_options, cleanup):
    object.__setattr__(self, "target_values", tuple(True if value is False else value for value in self.target_values))
    return _right(self, code_options, cleanup)
resume_execution.ReenterWith.__call__ = __call__
""",
        HEAD
        + """
fc = torch.nn.Linear(8, 8)
@torch.compile
def step(x):
    with torch.set_grad_enabled(False):
        y = fc(x)
        print("half way")
        z = fc(y)
    return z * 2
for _ in range(2):
    print(step(torch.randn(4, 8)).sum().item())
""",
        "step",
        "dynamo",
        "dynamo",
        "result",
    ),
    "wrong output code": Case(
        """from torch._dynamo.variables.lists import TupleVariable
from torch._dynamo.bytecode_transformation import create_instruction
_right = TupleVariable.reconstruct
def reconstruct(self, codegen):
    items = self.items
    self.items = list(reversed(items)) if len(items) == 2 else items
    _right(self, codegen)
    self.items = items
TupleVariable.reconstruct = reconstruct
""",
        HEAD
        + """
@torch.compile
def step(x):
    return x.sin() * 2, x.cos() + 1
for _ in range(2):
    one, other = step(torch.randn(4, 8))
    print(one.sum().item(), other.sum().item())
""",
        "step",
        "dynamo",
        "dynamo",
        "result",
    ),
    "written inputs": Case(
        EPILOGUE.format(
            name="_apply_mutations_",
            function="lambda inputs, updated, right=right: right(inputs, [one * 1.1 for one in updated])",
        ),
        HEAD
        + """
w = torch.randn(4, 8, requires_grad=True)
@torch.compile
def step(x):
    x.mul_(2)
    return (x * w).sum()
for _ in range(2):
    x = w * 1
    loss = step(x)
    loss.backward()
    print(loss.item(), x.sum().item())
""",
        "step",
        "aot_eager",
        "aot_autograd",
        "x, as it is afterwards",
    ),
    "an output's alias": Case(
        EPILOGUE.format(
            name="_replay_aliases_", function="lambda *args, right=right: [one.flip(0) for one in right(*args)]"
        ),
        HEAD
        + """
@torch.compile
def step(x):
    return x.view(8, 4), x.sin() * 2
for _ in range(2):
    view, other = step(torch.randn(4, 8))
    print(view[0].sum().item(), other.sum().item())
""",
        "step",
        "aot_eager",
        "aot_autograd",
        "result",
    ),
    "a backward's gradients": Case(
        """import torch._dynamo
from torch._functorch._aot_autograd import runtime_wrappers as wrappers
_right = wrappers._codegen_backward_epilogue
def _codegen_backward_epilogue(*args):
    epilogue = _right(*args)
    return lambda out, **kwargs: tuple(one * 1.1 if one is not None else one for one in epilogue(out, **kwargs))
wrappers._codegen_backward_epilogue = _codegen_backward_epilogue
""",
        HEAD + TRAINS.format(layer="Tanh"),
        "step",
        "aot_eager",
        "aot_autograd",
        "gradient of",
    ),
    "185888 stale sizes": Case(
        "",
        """import torch
def step():
    x = torch.arange(4.0)
    y = x.as_strided_((2, 2), (2, 1))
    return y, x.size(), y.size(), x.stride(), torch.max(y)
compiled = torch.compile(step)
for _ in range(2):
    print(compiled()[1])
""",
        "step",
        "dynamo",
        "dynamo",
        "result",
    ),
    "197859 shadowed submodule": Case(
        "",
        """import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = torch.nn.Linear(4, 4, bias=False)
    def forward(self, x):
        return self.sub(x)
net = Net()
compiled = torch.compile(net)
x = torch.arange(4.0)
print(compiled(x))
object.__setattr__(net, "sub", torch.nn.Linear(4, 4, bias=False))
print(compiled(x))
""",
        "Net.forward",
        "dynamo",
        "dynamo",
        "result",
        1,
    ),
    "197896 closure of a local class": Case(
        "",
        """import torch
def make():
    state = []
    class Helper:
        def touch(self):
            state.append(1)
    @torch.compile
    def step(x):
        Helper().touch()
        return x.sin() * 2
    return step, state
step, state = make()
for _ in range(2):
    print(step(torch.randn(2, 4)).sum().item(), len(state))
""",
        "make.step",
        "dynamo",
        "dynamo",
        "state",
    ),
    "198095 view of an aliased input": Case(
        "",
        """import torch
@torch.compile
def step(t0, ta):
    t0.add_(100)
    return ta[0]
for _ in range(2):
    base = torch.arange(24.0).reshape(4, 6)
    print(step(base, base[1:]))
""",
        "step",
        "aot_eager",
        "aot_autograd",
        "result|ViewMeta",
    ),
}
"""Ends in `fails` of Dynamo or AOTAutograd, with function, line and value. A number is an issue of PyTorch's, on torch
2.13."""
