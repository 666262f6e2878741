"""An S3 store of its own process, by moto: prints its address, and lives until its standard input ends.

Not a thread of the test's process: delta-rs holds Python's lock while it opens a file, so the two would wait for each
other. It is loopback only, and has one bucket.
"""

from __future__ import annotations

import logging
import sys
import urllib.request

from moto.server import ThreadedMotoServer

BUCKET = "bucket"


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    address = f"http://127.0.0.1:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT")).close()
    print(address, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
