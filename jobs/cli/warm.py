"""The command `sparkonce warm`: compile now what the first query would compile."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from sparkonce.jobs.shared.exit_status import FAILED, GOOD
from sparkonce.jobs.shared.extras import missing_extra


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; there are none."""
    parser.description = (
        "Compile the decoders and encoders for this machine and user, as the first query would do, which takes up to a "
        "minute. Run it where an image is built, or on a worker. What is compiled already is loaded only."
    )
    parser.epilog = "exit status: 0 all is compiled that the installed packages can use, 1 it cannot be kept"


def run(options: argparse.Namespace) -> int:  # noqa: ARG001
    """Compile, and say what, and where it is kept."""
    from sparkonce.connectors.formats.warm import steps
    from sparkonce.connectors.runtime import machine_code

    logging.getLogger(machine_code.__name__).setLevel(logging.ERROR)  # this command is what its line advises
    for name, step in steps().items():
        begin = time.monotonic()
        try:
            step()
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
        except ModuleNotFoundError as error:
            print(f"{name}: {missing_extra(error) or error}", flush=True)
    folders = machine_code.code_folders()
    if not folders:
        print(
            "sparkonce warm: this machine code is kept nowhere, so each process compiles: set XDG_CACHE_HOME or TMPDIR "
            "to a folder that only this user can write to",
            file=sys.stderr,
        )
        return FAILED
    print(f"kept in {folders[-1]}")
    return GOOD
