"""What the checks say of kernels that have no fault: the twenty models' graphs, which should be nothing.

    python -m tests.matrix.triton_false_reports [MODEL...] [--ways static,dynamic,bfloat16] [--stages forward,backward]

Numbers are judged by `triton_matrix.py`; here a finding is a report, whatever it says. Exit code: 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from graphdbg.dumps.schema import Ambient
from graphdbg.toolkit.kernel_checks.findings import CheckedKernels
from graphdbg.toolkit.kernel_checks.run import checked
from graphdbg.toolkit.live.case import Live
from graphdbg.toolkit.live.spec import ReplaySpec
from tests.matrix.triton_matrix import WAYS
from tests.models.triton_graphs import MODELS, Graph, graphs_of

REFUSED = {("graph_convolution", "bfloat16")}
"""Eager itself refuses these."""
STAGES = ("forward", "backward", "joint", "dynamo", "inference")


def rows(model: str, way: str, stages: tuple[str, ...]) -> Iterator[tuple[Graph, CheckedKernels]]:
    """Each graph of a model, checked. Graphs of one capture share symbols, so each is of its own."""
    present = [index for index, item in enumerate(graphs_of(model, **WAYS[way])) if item.stage in stages]
    for index in present:
        graph = graphs_of(model, **WAYS[way])[index]
        ambient = Ambient(autocast={"cpu": "bfloat16"} if way == "bfloat16" and graph.stage == "dynamo" else {})
        spec = ReplaySpec(graph.stage, graph.kwargs, ambient, dynamic=graph.dynamic)
        yield graph, checked(Live(graph.gm, graph.inputs, spec), plain=False)


def main() -> None:
    """Prints a line for each graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--ways", default="static,dynamic,bfloat16")
    parser.add_argument("--stages", default=",".join(STAGES[:2]))
    asked = parser.parse_args()
    graphs = reports = launches = 0
    for model in asked.models or list(MODELS):
        for way in asked.ways.split(","):
            if (model, way) in REFUSED:
                continue
            for graph, result in rows(model, way, tuple(asked.stages.split(","))):
                graphs, launches = graphs + 1, launches + result.launches
                reports += len(result.findings)
                said = f"{len(result.findings)} findings, {len(result.notes)} notes"
                said += f", {result.verdict[:150]}" if result.cannot or result.wrong else ""
                print(f"{model:24} {way:9} {graph.stage:9} {result.launches:3} launches  {said}", flush=True)
                for item in (*result.findings, *result.notes):
                    print(f"    {item}")
    print(f"{reports} reports in {graphs} graphs, {launches} launches")
    sys.exit(1 if reports else 0)


if __name__ == "__main__":
    main()
