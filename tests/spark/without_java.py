"""A user's first program, on a machine without a Java for Spark; run by test_without_java.py.

    python without_java.py PATH

Prints as JSON which Java Spark runs on and how many frames of each type it read.
"""

from __future__ import annotations

import json
import os
import sys

from trimaran.archive.spark import create_session

spark = create_session(master="local[1]", config={"spark.driver.memory": "512m"})
counts = spark.read.format("aeron_archive").load(sys.argv[1]).groupBy("type").count().collect()
print(json.dumps({"java_home": os.environ["JAVA_HOME"], "counts": {row["type"]: row["count"] for row in counts}}))
spark.stop()
