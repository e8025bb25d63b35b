"""A trainer that traces a whole step with make_fx and gives it through a pass of its own to Inductor; and a package,
made ahead of time, of an exported program."""

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import graphdbg

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
parameters = {name: value.detach() for name, value in model.named_parameters()}
x, y = torch.randn(3, 4), torch.randint(0, 2, (3,))


def step(parameters, x, y):
    parameters = {name: value.requires_grad_() for name, value in parameters.items()}
    loss = nn.functional.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)
    gradients = torch.autograd.grad(loss, list(parameters.values()))
    return [loss.detach(), *(item - 0.1 * grad for item, grad in zip(parameters.values(), gradients, strict=True))]


def without_detach(gm):
    for node in gm.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)
    gm.recompile()
    return gm


def pipeline(gm, inputs):
    gm = graphdbg.observe(gm, stage="traced", inputs=inputs)
    gm = without_detach(gm)
    return graphdbg.observe(gm, stage="after_detach", inputs=inputs)


inputs = [*parameters.values(), x, y]
flat = make_fx(lambda *values: step(dict(zip(parameters, values[:-2], strict=True)), *values[-2:]))(*inputs)
gm = pipeline(flat, inputs)
with torch.no_grad():
    torch.testing.assert_close(torch._inductor.compile(gm, inputs)(*inputs)[0], gm(*inputs)[0])
exported = torch.export.export(model.eval(), (x,))
assert graphdbg.observe(exported, stage="exported", model="packaged") is exported
package = torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")
torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), model(x))
print("done")
