"""One launch of a Triton kernel: saved with its arguments, run alone on a GPU, judged beside eager and the roofline."""
