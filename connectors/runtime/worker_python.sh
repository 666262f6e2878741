#!/bin/sh
# Becomes the Python interpreter, without Spark's own zip files on its path (connectors/runtime/worker_python.py), or
# has the process forked by one that has loaded already what it needs (connectors/runtime/fork_server.py).
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
    "$SPARKONCE_SPARK_HOME"/python/lib/*.zip | "$SPARKONCE_SPARK_HOME"/jars/spark-core_*.jar) ;; # the jar holds no Python
    *) kept=$kept${kept:+:}$entry ;;
    esac
done
PYTHONPATH=$kept
export PYTHONPATH
if [ -S "$SPARKONCE_FORK_SERVER" ] && [ "$1" = -m ]; then
    exec "${SPARKONCE_PYTHON:?is not set}" -I -S "${0%/*}/fork_client.py" "$@"
fi
exec "${SPARKONCE_PYTHON:?is not set: set PYSPARK_PYTHON to an interpreter instead of this script}" "$@"
