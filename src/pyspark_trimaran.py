"""How Spark finds the data source `aeron_archive` by itself: it looks for modules that are named `pyspark_...`.

So `spark.read.format("aeron_archive")` and `CREATE TEMPORARY VIEW log USING aeron_archive` work in any session on a
machine where Trimaran is installed. The data source itself is `trimaran.archive.spark.source.data_source`.
"""

from trimaran.archive.spark.source.data_source import AeronArchiveDataSource as DefaultSource  # noqa: F401  # by this name Spark looks for it
