"""Leaf modules of `call_module` nodes: saves torch.nn classes on a list as constructor arguments and state tensors, and
rebuilds them.

A module is saved so only if building its class from the recovered arguments gives the same repr and the same state
names. Any other module is saved with its type and text only: it is shown, but refused when a live graph is loaded.

For example:

    encode(torch.nn.Linear(2, 3), arguments, values.store).arguments
    # {'in_features': 2, 'out_features': 3, 'bias': True}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..allowlist import words
from ..errors import DamagedError, TargetRefusedError, TorchLacksError
from ..schema import ModuleRecord, StoredTensor
from .live_values import ArgumentReader
from .values import ArgumentWriter

CLASSES = words(
    """
    AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
    AlphaDropout AvgPool1d AvgPool2d AvgPool3d BatchNorm1d BatchNorm2d BatchNorm3d BCELoss BCEWithLogitsLoss Bilinear
    CELU ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Conv1d
    Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity
    CrossEntropyLoss Dropout Dropout1d Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold
    FractionalMaxPool2d FractionalMaxPool3d GELU GLU GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid
    Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d InstanceNorm3d KLDivLoss
    L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LayerNorm LeakyReLU Linear LocalResponseNorm LogSigmoid LogSoftmax
    MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish
    MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss NLLLoss2d PReLU
    PairwiseDistance PixelShuffle PixelUnshuffle PoissonNLLLoss RMSNorm RNN RNNCell RReLU ReLU ReLU6 ReflectionPad1d
    ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d SELU SiLU Sigmoid SmoothL1Loss
    SoftMarginLoss Softmax Softmax2d Softmin Softplus Softshrink Softsign SyncBatchNorm Tanh Tanhshrink Threshold
    TripletMarginLoss Unflatten Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
    """
)
"""Names in torch.nn whose forward is a computation on tensors and whose constructor takes plain values."""

_NOT_ARGUMENTS = frozenset(
    {"self", "device", "dtype", "args", "kwargs", "_weight", "_freeze", "size_average", "reduce"}
)
_FLAGS = {
    "bias": "bias",
    "add_bias_kv": "bias_k",
    "elementwise_affine": "weight",
    "affine": "weight",
    "track_running_stats": "running_mean",
}


def encode(
    module: torch.nn.Module, arguments: ArgumentWriter, store: Callable[[torch.Tensor], StoredTensor]
) -> ModuleRecord:
    """The record of a module; one without arguments and state if it cannot be rebuilt. `store` writes a tensor."""
    kind = type(module)
    record = ModuleRecord(
        type=f"{kind.__module__}.{kind.__qualname__}", training=module.training, repr=repr(module)[:500]
    )
    if kind.__name__ not in CLASSES or getattr(torch.nn, kind.__name__, None) is not kind:
        return record
    given = _constructor_arguments(module)
    if given is not None:
        record.type = f"torch.nn.{kind.__name__}"
        record.arguments = {name: arguments.encode(value) for name, value in given.items()}
        record.state = {name: store(tensor) for name, tensor in _state(module).items()}
    return record


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors_by_name = dict(module.named_parameters(remove_duplicate=False))
    return tensors_by_name | dict(module.named_buffers(remove_duplicate=False))


def _constructor_arguments(module: torch.nn.Module) -> dict[str, Any] | None:
    """Arguments that build a module with the same text and state; None if none are found."""
    kind = type(module)
    arguments: dict[str, Any] = {}
    for name, parameter in _parameters(kind).items():
        if name in _FLAGS and hasattr(module, _FLAGS[name]) and isinstance(parameter.default, bool):
            arguments[name] = getattr(module, _FLAGS[name]) is not None
        elif hasattr(module, name) and not (name == "mode" and isinstance(module, torch.nn.RNNBase)):
            value = getattr(module, name)
            if not isinstance(value, torch.Tensor) and value is not parameter.default:
                arguments[name] = value
    if kind is torch.nn.RNN:
        arguments["nonlinearity"] = module.nonlinearity
    try:
        with torch.device("meta"):
            twin = kind(**arguments)
    except (TypeError, ValueError, RuntimeError):
        return None
    shapes = {name: tensor.shape for name, tensor in _state(module).items()}
    same = repr(twin) == repr(module) and {name: tensor.shape for name, tensor in _state(twin).items()} == shapes
    return arguments if same else None


def _parameters(kind: type) -> dict[str, inspect.Parameter]:
    """Parameters of the constructor, including those of base classes where it takes **kwargs."""
    by_name: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if base is torch.nn.Module:
            break
        if "__init__" not in vars(base):
            continue
        parameters = inspect.signature(base.__init__).parameters
        fresh = [name for name in parameters if name not in _NOT_ARGUMENTS and name not in by_name]
        by_name |= {name: parameters[name] for name in fresh}
        if not any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values()):
            break
    return by_name


def build(
    record: ModuleRecord, arguments: ArgumentReader, load: Callable[[StoredTensor], torch.Tensor], where: str
) -> torch.nn.Module:
    """A live leaf module. Raises RefusedError for a class that is not on the list."""
    short = record.type.removeprefix("torch.nn.")
    if record.type == short or short not in CLASSES:
        why = f"the module class {record.type!r} is not on the list of modules that a saved graph may hold"
        raise TargetRefusedError(where, why)
    kind = getattr(torch.nn, short, None)
    if kind is None:
        raise TorchLacksError(where, f"this torch has no torch.nn.{short}")
    known = {*_parameters(kind), *(("nonlinearity",) if kind is torch.nn.RNN else ())}
    unknown = sorted(set(record.arguments) - known)
    if unknown:
        raise TorchLacksError(where, f"torch.nn.{short} takes no argument {unknown[0]!r}")
    decoded = {name: arguments.decode(value, where) for name, value in record.arguments.items()}
    try:
        with torch.device("meta"):
            module = kind(**decoded)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DamagedError(where, f"torch.nn.{short} cannot be built from its arguments ({error})") from error
    _load_state(module, {name: load(stored) for name, stored in record.state.items()}, where)
    return module.train(record.training)


def _load_state(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], where: str) -> None:
    wanted = _state(module)
    if set(wanted) != set(tensors):
        raise DamagedError(where, f"its state has {sorted(tensors)}, and the module needs {sorted(wanted)}")
    for name, tensor in tensors.items():
        home, _, last = name.rpartition(".")
        owner: Any = module.get_submodule(home)
        if last in owner._parameters:
            owner._parameters[last] = tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor)
        else:
            owner._buffers[last] = tensor
