#!/bin/sh
# Becomes the Python interpreter, without Spark's own zip files on its path: see connectors/runtime/worker_python.py.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
    "$SPARKONCE_SPARK_HOME"/python/lib/*.zip) ;;
    *) kept=$kept${kept:+:}$entry ;;
    esac
done
PYTHONPATH=$kept
export PYTHONPATH
exec "${SPARKONCE_PYTHON:?is not set: set PYSPARK_PYTHON to an interpreter instead of this script}" "$@"
