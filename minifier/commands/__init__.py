"""The commands of this room: minify, report, demo, show and others. Importing one imports no torch."""
