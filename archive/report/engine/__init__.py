"""The analyses on DuckDB, for the report: a log of a few kilobytes takes no Java and no minute.

`columns` is PySpark's Column and Window as text of SQL, `functions` its functions, `frames` its DataFrame; `log_tables`
puts logs and what members logged into tables. `ENGINE` goes to `analyses.engine.use_engine`.

An analysis is written once, against PySpark's API. This is as much of that API as the report's analyses use, with
Spark's meaning where DuckDB's differs: NULL comes first, a sum of integers is one, bytes are no text. A test runs each
analysis on both. Rejected: a Spark that is set up for small logs, which still took 41 s of processor time for 2.6 KB;
SQLFrame, which lacks ten of the functions and plans for 0.9 s an analysis.
"""

from typing import Final

from ...spark.analyses.engine import Engine
from . import functions
from .columns import SqlWindow

ENGINE: Final = Engine(functions=functions, window=SqlWindow)
