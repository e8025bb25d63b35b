"""What Inductor logs of a compile beside its stages, under TORCH_LOGS: bytes and run times of the code, its matrix
products.

Nothing is computed while the log is off.

For example:

    of_code(work)  # TORCH_LOGS=inductor_metrics
    of_products()  # TORCH_LOGS=inductor
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import torch_private as t

if TYPE_CHECKING:
    from .work import Work


def text_of(gm: Any, **options: Any) -> str:
    """Readable code of a graph with strides and devices."""
    return gm.print_readable(print_output=False, include_stride=True, include_device=True, **options)


def trace_text(name: str, make: Callable[[], str], encoding: str = "string") -> None:
    """One artifact of torch's structured trace."""
    t.trace_structured("artifact", metadata_fn=lambda: {"name": name, "encoding": encoding}, payload_fn=make)


def of_code(work: Work) -> None:
    """Bytes moved, elements and estimated run times by scheduler node, also added to Inductor's metrics; who runs which
    graph."""
    log = t.inductor_metrics_log
    if log.isEnabledFor(logging.INFO):
        moved, elements, runtimes = work.lowering.count_bytes()
        t.metrics.num_bytes_accessed += moved
        t.metrics.nodes_num_elem += elements
        t.metrics.node_runtimes += runtimes
        metrics = {"num_bytes_accessed": moved, "nodes_num_elem": elements, "node_runtimes": runtimes}
        log.info("Graph Metrics:\n%s", metrics)
    debug, number = t.inductor_debug, work.kwargs.get("graph_id")
    if debug.RECORD_GRAPH_EXECUTION and debug.GRAPH_COMPILE_IDS is not None and number is not None:
        debug.GRAPH_COMPILE_IDS[number] = str(t.CompileContext.current_compile_id())


def of_products() -> None:
    """How many matrix products of which sizes were lowered so far: keys of the counter end in batch (if any), m, n and
    k."""
    log = t.compile_log
    if not log.isEnabledFor(logging.INFO):
        return
    line = "{:<30} | {:<20} | {:<20} | {:<20} | {:<20} | {:<20}"
    log.info("Overview info of inductor aten mms: ")
    log.info(line.format("Name", "B", "M", "N", "K", "Count"))
    log.info("-" * 130)
    for key, count in t.counters["aten_mm_info"].items():
        log.info(line.format(*product_of(key), count))
        log.info("-" * 130)


def product_of(key: str) -> tuple[str, str, str, str, str]:
    """Name, batch, m, n and k of a key of that counter; "?" where it has none.

    >>> product_of("aten.bmm_2_3_4_5")
    ('aten.bmm', '2', '3', '4', '5')
    """
    parts = key.split("_")
    if len(parts) < 3:
        return key, "-", "?", "?", "?"
    m, n, k = parts[-3:]
    name = "_".join(parts[:-4]) if len(parts) >= 4 else "_".join(parts[:-3])
    if len(parts) >= 4 and name.endswith(("bmm", "baddbmm")):
        return name, parts[-4], m, n, k
    return "_".join(parts[:-3]), "-", m, n, k
