"""Numbers of a graph: the float64 reference, tolerances with their source, measures of distance, the judgement,
statistics.

`measures` says how far two tensors are apart (relative RMSE, ulp, cosine, largest difference), and how much of it
rounding explains, by dtype and length of a reduction; `comparison` judges a rung's outputs by both; `statistics`
describes the value of every node while the graph runs and keeps none of them. The reference itself is
`toolkit.judging.baseline`. Nothing here changes a tensor.
"""
