"""One redacted file of a run, for somebody else: what may leave, what is changed, and a search for what should have
gone.

`making.pack` is the door. `places` names files, `texts` takes paths, people, hosts, credentials and source lines out of
texts, `records` knows which fields of the saved form are free text, `leaks` searches the finished file. Reads and
writes runs through the store and the writer only, needs no torch, and never changes the run that it reads.
"""
