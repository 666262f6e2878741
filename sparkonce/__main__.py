"""`python -m sparkonce`: the command line, where the environment is not activated."""

import sys

from sparkonce.jobs.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
