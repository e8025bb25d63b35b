"""The fixed part of graph.py: reads stored inputs, synthesises the others, runs the graph. It stands in the program as
it is here.

`RUNTIME` expects the names Graph, INPUTS, CONSTANTS and SETTINGS to be defined above it, and needs nothing but torch.

>>> code = compile(RUNTIME, "graph.py", "exec")
"""

RUNTIME = '''\
HERE = pathlib.Path(__file__).resolve().parent
STORAGES = {}


def stored(name):
    """The bytes of a stored storage, as a uint8 tensor (a safetensors file: 8 bytes length, header, data)."""
    for folder in [HERE, *HERE.parents][:6]:
        path = folder / "tensors" / name
        if path.is_file():
            data = path.read_bytes()
            data = bytearray(data[8 + int.from_bytes(data[:8], "little"):])
            return torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
    raise SystemExit(f"tensors/{name} is missing: keep the folder of tensors beside the graph")


def made_up(spec, count, key):
    """`count` elements of the dtype of `spec`, the same in every run."""
    dtype = getattr(torch, spec["dtype"])
    source = torch.Generator().manual_seed(sum(ord(c) * 31**i for i, c in enumerate(key)) % 2**63)
    if dtype is torch.bool:
        return torch.rand(count, generator=source) < 0.5
    if dtype.is_complex:
        return torch.randn(count, generator=source, dtype=torch.complex64).to(dtype)
    if dtype.is_floating_point and dtype.itemsize > 1:
        return torch.randn(count, generator=source).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(count, generator=source).abs().add(0.1).to(dtype)
    return torch.randint(0, spec.get("bound", 2), (count,), generator=source).to(dtype)


def tensor(spec, key, storage_name=""):
    """A tensor as `spec` says: its whole storage first, then the view on it; one alias group shares a storage."""
    if spec.get("layout", "strided") != "strided" or spec.get("quantizer"):
        raise SystemExit(f"{key}: graph.py makes no {spec.get('layout', 'quantised')} tensors; use graphdbg replay")
    shape, offset = spec["shape"], spec.get("offset", 0)
    stride = spec["stride"] if "stride" in spec else [math.prod(shape[i + 1:]) for i in range(len(shape))]
    group = spec.get("storage")
    home = (storage_name or key.split(" ")[0], group) if group is not None else key
    if home not in STORAGES:
        if storage_name:
            data = stored(storage_name)
        else:
            count = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if 0 not in shape else 0
            itemsize = getattr(torch, spec["dtype"]).itemsize
            data = made_up(spec, max(count, -(-spec.get("storage_bytes", 0) // itemsize)), key)
        STORAGES[home] = data.to(spec.get("device", "cpu")).untyped_storage()
    dtype = getattr(torch, spec["dtype"])
    value = torch.empty(0, dtype=dtype, device=STORAGES[home].device).set_(STORAGES[home], offset, shape, stride)
    value = value.conj() if spec.get("conj") else value
    value = torch._neg_view(value) if spec.get("neg") else value
    return value.requires_grad_() if spec.get("requires_grad") and SETTINGS["grad"] else value


def constant(path):
    """A tensor that the graph holds."""
    spec = CONSTANTS[path]
    value = tensor(spec, "constant " + path, spec["storage_name"])
    return torch.nn.Parameter(value.detach(), value.requires_grad) if spec["parameter"] else value


def inputs():
    """One value per placeholder: stored ones from inputs.json, where it is there, the others made up."""
    seen = []
    for path in (HERE / "inputs.json", HERE / "inputs.json.gz"):
        if path.is_file():
            data = path.read_bytes()
            seen = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["inputs"]
    seen = {item["name"]: item for item in seen}

    def one(name, spec):
        item = seen.get(name, {})
        if item.get("stored", {}).get("storage"):
            return tensor(item["stored"]["value"], name, item["stored"]["storage"])
        if item.get("scalar") is not None:
            return item["scalar"]
        if item.get("value", {}).get("value_kind") == "tensor":
            spec = {**item["value"], "bound": (spec or {}).get("bound", 2)}
        if isinstance(spec, list):
            return [one(f"{name}.{i}", part) for i, part in enumerate(spec)]
        return tensor(spec, "input " + name) if isinstance(spec, dict) else spec

    return [one(name, spec) for name, spec in INPUTS.items()]


def show(name, value):
    """Prints one output."""
    if isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            show(f"{name}[{i}]", item)
    elif isinstance(value, torch.Tensor):
        numbers = value.detach().to(torch.float64) if not value.is_complex() and value.numel() else None
        text = f" mean {numbers.mean():.6g} max |x| {numbers.abs().max():.6g}" if numbers is not None else ""
        print(f"{name}: {value.dtype} {tuple(value.shape)} stride {value.stride()} {value.device}{text}")
    else:
        print(f"{name}: {value!r}")


def main():
    for name in LIBRARIES:
        library, op = name.split(".")
        if not hasattr(getattr(torch.ops, library), op):
            raise SystemExit(
                f"torch.ops.{name} is not registered: import the library that defines it at the top of this file"
            )
    torch.manual_seed(0)
    graph, values = Graph(), inputs()
    import contextlib

    with contextlib.ExitStack() as state:
        inference = SETTINGS["inference_mode"]
        state.enter_context(torch.inference_mode() if inference else torch.set_grad_enabled(SETTINGS["grad"]))
        for device, dtype in SETTINGS["autocast"].items():
            state.enter_context(torch.autocast(device, getattr(torch, dtype)))
        show("output", graph(*values))


if __name__ == "__main__":
    sys.exit(main())
'''
