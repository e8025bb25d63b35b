"""Writes one redacted file of a run, for somebody else: decides what may leave, redacts it, and searches the result for
leaks.

`making.pack` is the entry. `redact` names files and takes paths, users and credentials out of texts, `records` knows
which fields of the saved form are free text, `page` writes the page. Reads and writes runs through the store and the
writer only, needs no torch, and never changes the run that it reads.
"""
