"""`python -m trimaran.benchmarks SCENARIO`; in a checkout `python -m benchmarks SCENARIO` is the same."""

from trimaran.benchmarks.app import main

if __name__ == "__main__":
    main()
