"""`python -m graphdbg` is the same as the `graphdbg` command."""

from .cli import main

if __name__ == "__main__":
    main()
