"""The global state that changes what a graph means, and torch's settings that differ from their defaults.

Only reads: no random number is drawn, no setting written. A value that this torch does not tell stays at the record's default.

>>> ambient().deterministic
False
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dumps.held import packed_state
from ...dumps.schema import Ambient

DEVICE_TYPES = ("cpu", "cuda", "xpu", "mps", "hpu")


def ambient(*, rng: bool = False, seed: bool = True) -> Ambient:
    """The state in force on this thread. With `rng` the states of the CPU and GPU generators are kept whole.

    Without `seed` it holds nothing that ranks with the same graph have each their own of.
    """
    import torch

    return Ambient(
        grad=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        autocast=_autocast(),
        autocast_cache=torch.is_autocast_cache_enabled(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        deterministic_warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
        matmul_precision=_told(torch.get_float32_matmul_precision, "highest"),
        tf32=bool(_told(lambda: torch.backends.cuda.matmul.allow_tf32, False)),
        cudnn_tf32=bool(_told(lambda: torch.backends.cudnn.allow_tf32, True)),
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        threads=torch.get_num_threads(),
        seed=torch.initial_seed() if seed else 0,
        rng_state=rng_state() if rng else "",
    )


def rng_state() -> str:
    """The generators' states as `cpu:<base64 of zlib>`, one word per device that is in use already."""
    return " ".join(f"{name}:{packed_state(bytes(state.tolist()))}" for name, state in generators())


def generators() -> list[tuple[str, Any]]:
    """(device, state) of the default generators of the CPU and of the GPUs in use; states are tensors of bytes on the CPU."""
    import torch

    states: list[tuple[str, Any]] = [("cpu", torch.get_rng_state())]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states += [(f"cuda:{i}", state) for i, state in enumerate(torch.cuda.get_rng_state_all())]
    return states


def _autocast() -> dict[str, str]:
    import torch

    found: dict[str, str] = {}
    for device in DEVICE_TYPES:
        if _told(lambda device=device: torch.is_autocast_enabled(device), False):
            found[device] = str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return found


def _told(read: Callable[[], Any], otherwise: Any) -> Any:
    # torch refuses to tell TF32 settings when the old and the new interface were mixed, and autocast of absent devices.
    try:
        return read()
    except RuntimeError:
        return otherwise
