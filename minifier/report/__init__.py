"""The report of one failing graph: repro.py (torch alone), issue.md (PyTorch's form), artifacts.zip.

`bundle.emit_report` is the entry point. `trying` chooses which programs are worth trying, `dumps.program` prints them,
`verify` runs them in fresh processes; `issue` writes the text; `environment` and `dumps.pack.redact` decide what may
leave the machine.

No module imports torch at its top, and nothing is claimed that no process has shown.

For example:

    from graphdbg.minifier.report.bundle import emit_report
    emit_report(saved, Path("out"), signature=signature, original=318).rate
    # '3 of 3 fresh processes'
"""
