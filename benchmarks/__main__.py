"""`python -m trimaran.benchmarks COMMAND`."""

from .app import main

if __name__ == "__main__":
    main()
