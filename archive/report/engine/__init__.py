"""DuckDB for the analyses, so that the report of a log of a few kilobytes takes no Java and no minute.

`frames` runs the queries that analyses are, `log_tables` puts logs and what members logged into tables.

Rejected: a Spark that is set up for small logs, which still took 41 s of processor time for 2.6 KB.
"""
