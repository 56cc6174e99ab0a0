"""Tables of Spark's catalog over recordings: `CREATE TABLE t USING aeron_archive OPTIONS (path ...)`.

Spark 4.3 asks a Python data source for the schema of a new table with the table's options and properties in one map,
and later reads the table with no option at all: only the schema comes back from the catalog. So the options go into the
metadata of the schema's first column, and are taken from there. A DataFrame of `load` or of a temporary view has its
options, and keeps nothing.

Of the map `option.NAME` is an option, `path` is where the table lies; the rest (`provider`, `owner`, `location`,
`comment`, TBLPROPERTIES) is the catalog's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from ....service_api.errors import ConfigurationError

OPTIONS_KEY: Final = "aeron_archive.options"
"""The metadata of a table's first column with this name are the table's options, as JSON."""

_PREFIX: Final = "option."
_PROVIDER: Final = "provider"


def table_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being made, out of what Spark gives; None where none is being made."""
    given = {key.lower(): text for key, text in options.items()}
    if _PROVIDER not in given:
        return None
    found = {key.removeprefix(_PREFIX): text for key, text in given.items() if key.startswith(_PREFIX)}
    return found | {name: given[name] for name in ("path",) if name in given}


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options of its table in it."""
    first, *others = schema.fields
    metadata = {**first.metadata, OPTIONS_KEY: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def find_options(schema: StructType, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of a read: those of its table if it is of one, and over them those of the read itself.

    Raises:
        ConfigurationError: the table was made with a list of columns, so that its options are lost.
    """
    kept = {text for field in schema if (text := field.metadata.get(OPTIONS_KEY)) is not None}
    if kept:
        of_table: dict[str, str] = json.loads(kept.pop())
        return of_table | {key.lower(): text for key, text in options.items()}
    if not any(key.lower() == "path" for key in options):
        raise ConfigurationError(
            "no path: expected the directory of an archive or of a member in load(path); of a table, that it was made "
            "without a list of columns, which Spark keeps instead of the options: name them in the option columns"
        )
    return options
