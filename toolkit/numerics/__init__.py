"""Numbers of a graph: the float64 reference, tolerances with their source, measures of distance, the judgement, statistics.

`tolerances` says how much rounding explains, by dtype and length of a reduction; `measures` how far two tensors are apart
(relative RMSE, ulp, cosine, largest difference); `comparison` judges a rung's outputs by both; `statistics` describes the
value of every node while the graph runs and keeps none of them. The reference itself is `toolkit.baseline`. Nothing here
changes a tensor.

>>> compare([torch.ones(2, dtype=torch.float64)], [torch.ones(2)], [torch.zeros(2)]).kind
'accuracy'
"""

from __future__ import annotations

from ..baseline import NoReference, reference
from .comparison import compare, output_errors, significant_strides
from .difference import Difference
from .measures import Distance, cosine, distance, relative_rmse, ulp_distance
from .reductions import output_grains, output_lengths, reduction_length
from .statistics import NodeStatistics, Streamed, node_statistics
from .tolerances import TOLERANCE, rounding_bound, tolerance

__all__ = [
    "TOLERANCE", "Difference", "Distance", "NoReference", "NodeStatistics", "Streamed", "compare", "cosine", "distance",
    "node_statistics", "output_errors", "output_grains", "output_lengths", "reduction_length", "reference", "relative_rmse",
    "rounding_bound", "significant_strides", "tolerance", "ulp_distance",
]  # fmt: skip
