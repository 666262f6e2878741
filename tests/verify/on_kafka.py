"""``python -m lab.verify`` on the Kafka that `KAFKA` names; ``container`` starts Apache Kafka in one, and kills it.

    KAFKA=container python -m tests.verify.on_kafka --quick

``embedded``, ``real`` and ``host:port`` mean what they mean to ``--kafka``. The options are those of the command.
"""

from __future__ import annotations

import argparse
import os
import sys

from lab.store.stores import open_store
from lab.verify.__main__ import add_arguments, choose, run, verify
from lab.verify.brokers import SETTINGS, Kafka


def main() -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.verify.on_kafka", description=__doc__)
    add_arguments(parser)
    options = parser.parse_args()
    where = os.environ.get("KAFKA", "container")
    if where != "container":
        options.kafka = where
        return run(options)
    from tests.containers.kafka import start_container

    settings = {f"KAFKA_{name.upper().replace('.', '_')}": str(value) for name, value in SETTINGS.items()}
    with start_container(**settings) as broker, open_store(options.store) as store:
        kafka = Kafka("Apache Kafka in a container", broker, may_be_killed=True)
        return verify(choose(options), kafka, options, store)


if __name__ == "__main__":
    sys.exit(main())
