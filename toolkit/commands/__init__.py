"""The commands of this room: dump, replay, doctor. Importing one imports no torch."""
