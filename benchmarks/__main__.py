"""`python -m trimaran.benchmarks SCENARIO`."""

import sys

if __name__ == "__main__":
    try:
        from trimaran.benchmarks.app import main
    except ModuleNotFoundError as error:
        sys.exit(f"trimaran: the benchmarks need more packages: in a checkout, pip install '.[bench]' ({error})")
    main()
