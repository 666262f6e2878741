"""What a new user does, with the Python that runs this file: ``python walk.py FOLDER FIRST_PIPELINE``.

``FOLDER`` is empty; ``FIRST_PIPELINE`` is a file with the first program of docs/first_pipeline.md. The last line says
how many rows arrived.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDERS_OF_OURS = ("broker_lite", "connectors", "exactly_once", "jobs", "offset_store", "registry_lite")
A_RUN = 500
"""Records that are sent before each of two runs of the query."""


def sparkonce(*words: str, given: str = "") -> None:
    """Run a command without activating the environment."""
    command = [sys.executable, "-m", "sparkonce", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, input=given)
    print(f"sparkonce {' '.join(words)}: exit {done.returncode}")
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def main(folder: Path, first_pipeline: str) -> None:
    """Send records, copy them by the program, twice; then inspect the table."""
    from deltalake import DeltaTable

    from sparkonce import EmbeddedBroker

    for name in FOLDERS_OF_OURS:  # a user's own, which nothing of ours may import
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise ImportError('{name} of the user')\n")
    table = folder / "data/orders"
    with EmbeddedBroker() as broker:
        servers = broker.bootstrap_servers
        script = folder / "script.py"
        script.write_text(first_pipeline.replace("localhost:9092", servers).replace("/data/", f"{folder}/data/"))
        for _ in range(2):
            sparkonce("send", "orders", "--bootstrap-servers", servers, given="one\n" * A_RUN)
            subprocess.run([sys.executable, str(script)], check=True, timeout=600, cwd=folder)
        sparkonce("audit", str(table), "--bootstrap-servers", servers)
        sparkonce("doctor", "--table", str(table), "--bootstrap-servers", servers)
    sparkonce("offsets", "show", str(table))
    rows = DeltaTable(str(table)).to_pyarrow_table()
    distinct = len(set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)))
    print(f"RESULT expected={2 * A_RUN} rows={rows.num_rows} distinct={distinct}")
    sys.exit(rows.num_rows != 2 * A_RUN or distinct != rows.num_rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).read_text())
