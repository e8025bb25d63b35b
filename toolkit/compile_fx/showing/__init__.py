"""What `graphdbg compile` shows: plain records of a compile's stages and kernels, and the text made of them.

`child` compiles and reports events, `asking` gathers them as one document, `tables` renders this as text, and `showing`
runs the command.
"""
