"""What `graphdbg compile` shows: plain records of a compile's stages and kernels, and the text made of them.

`child` compiles and reports events, `asking` reads them, `gathering` keeps them as one document, the rest renders it as
text.
"""
