"""What `graphdbg compile` shows: plain records of a compile's stages and kernels, and the text made of them.

`child` compiles and tells, `asking` reads what it tells, `gathering` keeps it as one document, the rest makes text of
that.
"""
