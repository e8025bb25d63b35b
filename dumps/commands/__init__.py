"""The commands of this room: ls, show. Importing one imports no torch."""
