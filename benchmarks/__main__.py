"""`python -m trimaran.benchmarks COMMAND`."""

from trimaran.benchmarks.app import main

if __name__ == "__main__":
    main()
