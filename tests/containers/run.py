"""Run the connectors' tests on a real Kafka in a container: ``python -m tests.containers.run [pytest arguments]``.

Exits with 2 where no Docker engine answers, 1 where the image cannot be built, else with pytest's own code.
"""

from __future__ import annotations

import os
import sys

import pytest

from jobs.peers import PeerMissingError
from tests.containers.engine import EngineMissingError, engine, prepare_environment
from tests.containers.kafka_image import ImageError, image

# These folders hold tests that take their broker from the fixture `kafka`; soak tests are left out.
FOLDERS = ["tests/containers", "tests/spark", "tests/parity"]
DEFAULT_ARGUMENTS = [*FOLDERS, "-m", "(container or spark or kafka) and not soak", "-v"]


class OnlyOnThisBroker:
    """A plugin that leaves out tests which would be the same whatever ``KAFKA`` says."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep what takes its broker from the fixture, or starts a container."""
        chosen = [each for each in items if "kafka" in getattr(each, "fixturenames", ())]
        config.hook.pytest_deselected(items=[each for each in items if each not in chosen])
        items[:] = chosen


def main(arguments: list[str]) -> int:
    """Check for an engine and an image, then run pytest with ``KAFKA=container``."""
    try:
        with engine() as client:
            print(f"Docker engine {client.version()['Version']}", flush=True)
        chosen = image()
    except EngineMissingError as error:
        print(error, file=sys.stderr)
        return 2
    except (ImageError, PeerMissingError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"image {chosen}", flush=True)
    os.environ["KAFKA"] = "container"
    os.environ["KAFKA_IMAGE"] = chosen
    prepare_environment()
    return int(pytest.main(arguments or DEFAULT_ARGUMENTS, [OnlyOnThisBroker()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
