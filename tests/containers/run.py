"""Run the connectors' tests on a real Kafka in a container: ``python -m tests.containers.run [pytest arguments]``.

``--collect-only`` lists the tests, and needs no engine. Without it, the runner exits with 2 where no engine answers,
with 1 where the image cannot be built (both name everything that is missing), else with pytest's own code.
"""

from __future__ import annotations

import os
import sys

from sparkonce.jobs.shared.jars import PeerMissingError
from tests.containers.engine import EngineMissingError, engine, prepare_environment
from tests.containers.kafka_image import ImageError, image

# These folders hold tests that take their broker from the fixture `kafka`, and those of the pages, all of which are run
# here (see `tests.containers.selection`); soak tests are left out.
FOLDERS = ["tests/containers", "tests/spark", "tests/parity", "tests/ui"]
DEFAULT_ARGUMENTS = [*FOLDERS, "-m", "not soak", "-v"]
COLLECT_ONLY = "--collect-only"


def main(arguments: list[str]) -> int:
    """Check for an engine and an image, then become pytest with ``KAFKA=container``."""
    chosen = [argument for argument in arguments if argument != COLLECT_ONLY] or DEFAULT_ARGUMENTS
    if COLLECT_ONLY in arguments:
        return _become_pytest([*chosen, COLLECT_ONLY, "-qq"])
    try:
        os.environ["KAFKA_IMAGE"] = image()
        with engine() as client:
            print(f"Docker engine {client.version()['Version']}, image {os.environ['KAFKA_IMAGE']}")
    except EngineMissingError as error:
        print(error, file=sys.stderr)
        return 2
    except (ImageError, PeerMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    os.environ["KAFKA"] = "container"
    prepare_environment()
    return _become_pytest(chosen)


def _become_pytest(arguments: list[str]) -> int:
    """Replace this process by pytest.

    Our distribution has a pytest plugin, so pytest rewrites the assertions of all its modules, and warns of those that
    were imported before: in this process they are.
    """
    sys.stdout.flush()
    command = [sys.executable, "-m", "pytest", "-p", "tests.containers.selection", *arguments]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
