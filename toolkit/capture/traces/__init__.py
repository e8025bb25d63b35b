"""Structured traces of torch's (TORCH_TRACE) and folders of TORCH_COMPILE_DEBUG as runs. Their text is read, never
run."""
