"""How the suite is run: `python -m tests.runner`, with the plugins that `tests/conftest.py` registers.

`limit` ends a test that takes too long, `scheduling` hands out files to workers, `outcomes` writes how tests ended,
`history` keeps which tests passed only alone, `verdict` judges a run by that, and `__main__` runs it all.
"""
