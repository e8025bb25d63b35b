"""The metadata checker: a graph's values against what they were traced as, with the checks in the graph's own generated
code.

plan (what each value must be) -> checking (a module with a comparison after each line) -> running (what a comparison
that fails means) -> blame (whose fault: the op alone decides) -> `verdicts.mismatches` (findings folded under their
origins, and as text). Imports nothing here.

>>> from graphdbg.toolkit.debug_nop.checking import checked
>>> run = checked(gm, inputs)
>>> outputs = run(inputs)
>>> run.findings
[]
"""
