"""Numbers of a graph: the float64 reference, tolerances with their source, measures of distance, the judgement, statistics.

`tolerances` says how much rounding explains, by dtype and length of a reduction; `measures` how far two tensors are apart
(relative RMSE, ulp, cosine, largest difference); `comparison` judges a rung's outputs by both; `statistics` describes the
value of every node while the graph runs and keeps none of them. The reference itself is `toolkit.baseline`. Nothing here
changes a tensor.

>>> compare([torch.ones(2, dtype=torch.float64)], [torch.ones(2)], [torch.zeros(2)]).kind
'accuracy'
"""

from __future__ import annotations

from .comparison import compare, output_errors
from .difference import Difference
from .measures import relative_rmse
from .reductions import output_grains, output_lengths, reduction_length
from .statistics import NodeStatistics, Streamed, node_statistics
from .tolerances import tolerance

__all__ = [
    "Difference", "NodeStatistics", "Streamed", "compare", "node_statistics", "output_errors", "output_grains",
    "output_lengths", "reduction_length", "relative_rmse", "tolerance",
]  # fmt: skip
