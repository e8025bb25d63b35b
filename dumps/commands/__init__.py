"""The commands of this package, such as ls and show. Importing one imports no torch."""
