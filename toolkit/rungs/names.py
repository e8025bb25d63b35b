"""The names of the rungs, in order of trust. Apart, because a command line needs them in milliseconds."""

NAMES = (
    "eager", "nop", "debug_nop", "decomposed", "torchscript", "lazy", "inductor_nofuse", "triton_interpret", "inductor",
    "inductor_cudagraphs", "aot_inductor",
)  # fmt: skip
"""From trusted to clever."""
WHOLE = ("eager", "nop", "debug_nop", "torchscript")
"""Rungs without Inductor, which run a joint graph as it is."""


def warmth(*rungs: str) -> str:
    """How warm a fork server has to be for these rungs."""
    return "torch" if set(rungs) <= set(WHOLE) else "inductor"
