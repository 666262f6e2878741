"""Delta tables by name: their location, and how to create one that Spark and other engines read by that name.

A Python sink cannot do this: Spark runs it in processes without a session, and nothing there can ask a catalog. So it
is done in the user's process, where the session is, before the query starts; with Spark Connect the server's catalogs
are asked. Only Spark's SQL and DataFrame APIs are used: ``DESCRIBE TABLE EXTENDED`` answers for every catalog.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from sparkonce.connectors.catalogs.names import TableName
from sparkonce.connectors.delta_sink.schema import check_partition_columns, table_schema
from sparkonce.options import OptionError

_DETAILS = "# Detailed Table Information"
"""The line of ``DESCRIBE TABLE EXTENDED`` after which the table is described, and no longer its columns."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_SESSION_CATALOG = "spark_catalog"
_NO_DELTA = {
    "DATA_SOURCE_NOT_FOUND": "Delta's jars are not in this session",
    "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG": "Delta is not configured in this session",
    "CANNOT_CREATE_DATA_SOURCE_TABLE.EXTERNAL_METADATA_UNSUPPORTED": "Delta is not configured in this session",
}
_HOW_TO_HAVE_DELTA = (
    "start Spark 4.2 (there is no delta-spark for 4.3) with spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0, "
    "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
    "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog, or use start(path)"
)


def table_path(spark: SparkSession, name: str) -> str:
    """Return where a Delta table is, for what takes a path: ``offsetStore``, `MergeWriter`, the commands.

    Local files have an absolute path without a scheme, as it is on disk; the rest has a URI.

    Example:
        >>> store = "delta:" + table_path(spark, "shop.orders")  # doctest: +SKIP

    Raises:
        OptionError: if there is no such table, or it is a view or of another format than Delta.
    """
    parsed = TableName.parse(name)
    path = find_table(spark, parsed)
    if path is None:
        raise OptionError(f"table={parsed}: there is no such table in {_searched(spark, parsed)}")
    return path


def find_or_create_table(spark: SparkSession, name: str, rows: StructType, partition_by: Sequence[str] = ()) -> str:
    """Return where a Delta table is; if there is none of this name, one is created for these rows.

    Raises:
        OptionError: if the name is of something else, or the catalog does not create the table.
        SchemaError: if a Delta table cannot have these columns, or not be partitioned by them.
    """
    parsed = TableName.parse(name)
    path = find_table(spark, parsed)
    if path is not None:
        return path
    schema = table_schema(rows)
    return create_table(spark, parsed, schema, check_partition_columns(partition_by, schema))


def find_table(spark: SparkSession, name: TableName) -> str | None:
    """Return where a table is, by the catalogs of a session; None if no table or view has this name.

    Raises:
        OptionError: if it is a view or of another format than Delta, or the catalog cannot be asked.
    """
    try:
        if not spark.catalog.tableExists(name.sql):
            return None
        lines = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql}").collect()
    except Exception as error:
        raise OptionError(f"table={name}: the catalog does not tell where it is: {_reason(error)}") from error
    details = _details([(str(line[0]), str(line[1])) for line in lines])
    return _location(name, details)


def create_table(spark: SparkSession, name: TableName, schema: StructType, partition_by: Sequence[str]) -> str:
    """Create an empty Delta table, managed by its catalog, unless another driver just has; return where it is.

    Raises:
        OptionError: if the catalog does not create it.
    """
    _check_session_catalog(spark, name)
    writer = spark.createDataFrame([], schema).writeTo(name.sql).using("delta")
    if partition_by:
        first, *others = (TableName((column,)).sql for column in partition_by)
        writer = writer.partitionedBy(first, *others)
    failure: Exception | None = None
    try:
        writer.create()
    except Exception as error:
        failure = error
    path = find_table(spark, name)
    if path is None:
        why = "the catalog does not know it afterwards" if failure is None else _reason(failure)
        raise OptionError(f"table={name} does not exist, and cannot be created: {why}") from failure
    return path


def _details(lines: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return the details of the table itself: of several equal names the first, as columns come before."""
    headings = [place for place, (name, _) in enumerate(lines) if name == _DETAILS]
    if not headings:
        return {}
    return dict(reversed(lines[headings[-1] + 1 :]))


def _location(name: TableName, details: Mapping[str, str]) -> str:
    kind, provider, location = (details.get(key, "") for key in ("Type", "Provider", "Location"))
    if not details:
        raise OptionError(f"table={name} is a temporary view: name a Delta table, or one that does not exist yet")
    if "VIEW" in kind.upper():
        raise OptionError(f"table={name} is a view: name a Delta table, or one that does not exist yet")
    if provider.lower() != "delta":
        dropping = ". toTable of rows.writeStream made this entry; it holds no rows" if provider == "delta_once" else ""
        raise OptionError(
            f"table={name} is a table of the format {provider or 'unknown'}, and delta_once writes Delta: drop it "
            f"(DROP TABLE {name}), or choose another name{dropping}"
        )
    if not location:
        raise OptionError(
            f"table={name}: its catalog does not say where the table is, so only that catalog can write it"
        )
    # Spark shows paths of files as they are on disk, so '%' and blanks are no escapes.
    return re.sub("^/{2,}", "/", location[len("file:") :]) if location.lower().startswith("file:") else location


def _check_session_catalog(spark: SparkSession, name: TableName) -> None:
    """Reject names that Spark's own catalog rejects only after delta-spark has made the table's folder.

    Raises:
        OptionError: for a part with other characters than letters, digits and _.
    """
    catalog = name.parts[0] if len(name.parts) > 2 else spark.catalog.currentCatalog()
    wrong = next((part for part in name.parts[-2:] if not re.fullmatch("[A-Za-z0-9_]+", part)), None)
    if catalog == _SESSION_CATALOG and wrong is not None:
        raise OptionError(
            f"table={name}: {_SESSION_CATALOG} has only names of letters, digits and _, and {wrong!r} is none: choose "
            "another"
        )


def _searched(spark: SparkSession, name: TableName) -> str:
    if len(name.parts) > 1:
        return "the session's catalogs"
    return f"the schema {spark.catalog.currentCatalog()}.{spark.catalog.currentDatabase()}"


def _reason(error: Exception) -> str:
    """Return why in one line. Not all of Spark's errors are PySpark's exceptions with a condition."""
    text = str(error).strip()
    found = _CONDITION.search(text)
    missing = _NO_DELTA.get(found[1] if found else "")
    if missing is not None:
        return f"{missing}: {_HOW_TO_HAVE_DELTA}"
    return text[found.start() if found else 0 :].partition("\n")[0]
