"""`python -m trimaran` is the command `trimaran`."""

from __future__ import annotations

from .cluster.cli import main

if __name__ == "__main__":
    main()
