"""The commands of this room: minify, report, demo. Importing one imports no torch."""
