"""Whether there is a Java that Spark can run on, which Spark itself does not say.

Run as ``python -m sparkonce.connectors.runtime.java_check``; exits with 0 if Spark will find a Java it can run on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

MINIMUM = 17
FIX = (
    f"sparkonce needs Java {MINIMUM} or newer for Spark. Install one (Debian, Ubuntu: apt-get install "
    f"openjdk-{MINIMUM}-jre-headless; macOS: brew install openjdk@{MINIMUM}) or point JAVA_HOME at it."
)


class JavaError(RuntimeError):
    """Spark cannot be started, since there is no Java that it can run on."""


def java_command() -> str | None:
    """Return the java that Spark would start: JAVA_HOME's if set, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java")


def complaint() -> str | None:
    """Return what is wrong with this machine's Java and the remedy, or None."""
    command = java_command()
    if command is None:
        return f"No Java found on PATH, and JAVA_HOME is not set. {FIX}"
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        return f"{command} does not run ({error}). {FIX}"
    found = re.search(r'version "(?:1\.)?(\d+)', answer)
    if found is None or int(found[1]) < MINIMUM:
        return f"{command} is {answer.splitlines()[0] if answer else 'of unknown version'}. {FIX}"
    return None


if __name__ == "__main__":
    sys.exit(complaint())
