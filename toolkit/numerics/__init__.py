"""Numbers of a graph: the float64 reference, tolerances with their source, measures of distance, the judgement,
statistics.

`comparison` says how far two tensors are apart (relative RMSE, ulp, cosine, largest difference) and judges a rung's
outputs by it; `tolerance` how much of it rounding explains, by dtype and length of a reduction; `statistics` describes
the value of every node while the graph runs and keeps none of them. The reference itself is
`toolkit.judging.baseline`. Nothing here changes a tensor.
"""
