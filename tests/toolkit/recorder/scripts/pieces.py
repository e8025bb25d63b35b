"""A small transformer compiled in vLLM's call order: Dynamo's graph is cut at attention, each piece compiled in order
by standalone_compile, the artifacts saved. Words: `observe` lets each piece be observed, `bug` plants a wrong relu.
Prints the code of each piece."""

import sys

import torch
from torch import fx, nn
from torch._guards import detect_fake_mode
from torch._inductor import standalone_compile
from torch.fx.passes.split_module import split_module

import graphdbg

WORDS = sys.argv[1:]


@torch.library.custom_op("tiny::attention", mutates_args=())
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


@attention.register_fake
def _(q, k, v):
    return torch.empty_like(q)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(8, 24), nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        q, k, v = (part.contiguous() for part in self.qkv(self.norm(x)).chunk(3, -1))
        return torch.relu(x + self.out(torch.ops.tiny.attention(q, k, v)))


class Pieces(fx.Interpreter):
    """Runs the cut graph on fake values, and compiles each piece when it is met, with what it is given."""

    def __init__(self, whole, alone):
        super().__init__(whole)
        self.alone, self.compiled = alone, {}

    def call_module(self, target, args, kwargs):
        output = super().call_module(target, args, kwargs)
        if target not in self.alone:
            piece = self.fetch_attr(target)
            print(piece.code)
            if "observe" in WORDS:
                assert graphdbg.observe(piece, stage="after_split", inputs=args, model="tiny") is piece
            artifact = standalone_compile(piece, list(args), dynamic_shapes="from_tracing_context")
            artifact.save(path=f"{target}.bin", format="binary")
            self.compiled[target] = artifact
        return output


class Called(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def backend(gm, inputs):
    place, count, alone = {}, 0, set()
    for node in gm.graph.nodes:
        cut = getattr(node.target, "__module__", "").endswith("tiny") or "tiny" in str(node.target)
        if node.op == "call_function" and cut:
            place[node], count = count + 1, count + 2
            alone.add(f"submod_{count - 1}")
        else:
            place[node] = count
    whole = split_module(gm, None, place.__getitem__, keep_original_order=True)
    mode = detect_fake_mode()
    pieces = Pieces(whole, alone)
    with mode:
        pieces.run(*(mode.from_tensor(tensor) if isinstance(tensor, torch.Tensor) else tensor for tensor in inputs))
    for name, artifact in pieces.compiled.items():
        delattr(whole, name)
        whole.add_module(name, Called(artifact))
    return whole


torch.manual_seed(0)
model = nn.Sequential(Layer(), Layer()).eval()
if "bug" in WORDS:
    torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
with torch.no_grad():
    x = torch.randn(2, 3, 8)
    print("departs", (torch.compile(model, backend=backend)(x) - model(x)).abs().max().item() > 1e-4)
