"""The names of the rungs, in order of trust. Apart, because a command line needs them in milliseconds."""

NAMES = (
    "eager", "nop", "debug_nop", "decomposed", "torchscript", "lazy", "inductor_nofuse", "triton_interpret", "inductor",
    "inductor_cudagraphs", "aot_inductor",
)  # fmt: skip
"""From trusted to clever."""
