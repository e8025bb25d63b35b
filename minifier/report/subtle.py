"""The parts of a repro for failures that no error relative to a size tells: values that are not finite, signs of zeros, roundings
left out, writes to inputs, memory that an output shares with an input.

Texts only, chosen by `checks`, under the rules of `templates`: torch alone, and 1 for nothing but the bug.

>>> compile(MUTATION, "repro.py", "exec") is not None
True
"""

from __future__ import annotations

MISSING = '''
def wrong(eager, exact, got):
    """Says where `got` is something else than the NaN or Inf that eager and float64 agree on."""
    for i, (e, r, g) in enumerate(zip(eager, exact, got, strict=True)):
        if torch.is_tensor(e) and (e.is_floating_point() or e.is_complex()):
            e, r, g = (x.detach().to(torch.complex128 if x.is_complex() else torch.float64) for x in (e, r, g))
            odd = ~e.isfinite() & ((e == r) | (e.isnan() & r.isnan()))
            bad = odd & ~((e == g) | (e.isnan() & g.isnan()))
            if bad.any():
                return f"output {i}: {int(bad.sum())} values like {g[bad][0]} where eager and float64 give {e[bad][0]}"
    return ""
'''

SIGNED_ZERO = '''
def wrong(eager, exact, got):
    """Says where `got` has a zero with another sign than eager and float64 give."""
    for i, (e, r, g) in enumerate(zip(eager, exact, got, strict=True)):
        if torch.is_tensor(e) and e.is_floating_point():
            e, r, g = (x.detach().double() for x in (e, r, g))
            zero = (e == 0) & (r == 0) & (g == 0) & (e.signbit() == r.signbit())
            bad = zero & (e.signbit() != g.signbit())
            if bad.any():
                return f"output {i}: {int(bad.sum())} zeros have the other sign: {g[bad][0]}, eager gives {e[bad][0]}"
    return ""
'''

ROUNDED_MODE = '''
class Float64(TorchDispatchMode):
    """Computes in float64; with `keep` it rounds wherever the graph casts to a floating dtype."""

    def __init__(self, keep):
        super().__init__()
        self.keep = keep

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        given = (args, kwargs or {})
        found = [x for x in (*args, *given[1].values()) if isinstance(x, torch.dtype) and x.is_floating_point]
        args, kwargs = tree_map(lambda x: torch.float64 if any(x is one for one in found) else x, given)
        value = op(*args, **kwargs)
        return value.to(found[0]).double() if self.keep and found and torch.is_tensor(value) else value


def exactly(inputs, keep=False):
    with Float64(keep):
        return run(graph, inputs)
'''

ROUNDING = '''
def wrong(eager, exact, got):
    """Says where eager rounds through a narrower dtype, as the graph says, and `got` does not."""
    kept = exactly([in_float64(x) for x in make_inputs()], keep=True)
    for i, (e, r, k, g) in enumerate(zip(eager, exact, kept, got, strict=True)):
        if torch.is_tensor(e) and e.is_floating_point():
            share = 100 * torch.finfo(e.dtype).eps
            e, r, k, g = (x.detach().double() for x in (e, r, k, g))
            own, bad, near, size = (x.square().mean().sqrt().item() for x in (e - k, g - k, g - r, r))
            if bad > 4 * own + share * size and bad > 2 * near:
                return f"output {i}: a rounding is left out: {bad:.3g} off float64 with it, eager {own:.3g}, {near:.3g} without"
    return ""
'''

MUTATION = '''
def run(function, inputs):
    """The inputs as they are afterwards."""
    torch.manual_seed(0)
    function(*inputs)
    return inputs


def changed(before, after):
    if not torch.is_tensor(before):
        return False
    return not ((before == after) | (before.isnan() & after.isnan())).all()


def differs(eager, got):
    for i, (b, e, g) in enumerate(zip(make_inputs(), eager, got, strict=True)):
        if changed(b, e) != changed(b, g):
            return f"input {i}: {'eager' if changed(b, e) else 'the compiled graph'} alone changes it in place"
    return ""
'''

SHARING = '''
def memory(x):
    return x.untyped_storage().data_ptr()


def run(function, inputs):
    """For each output the first input whose memory it shares (None: none of them) and its storage offset there."""
    torch.manual_seed(0)
    outputs = function(*inputs)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    owner = {memory(x): i for i, x in reversed(list(enumerate(inputs))) if torch.is_tensor(x)}
    homes = [owner.get(memory(y)) if torch.is_tensor(y) and y.numel() else None for y in outputs]
    return [(h, None if h is None else y.storage_offset()) for h, y in zip(homes, outputs, strict=True)]


def differs(eager, got):
    for i, (e, g) in enumerate(zip(eager, got, strict=True)):
        if e != g:
            return f"output {i} shares memory with input (and offset there) {g}, in eager {e}"
    return ""
'''
