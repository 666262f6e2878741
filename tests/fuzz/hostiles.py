"""A process full of hostile connections: `python hostiles.py HOST:PORT COUNT SEED`, until its input ends.

It prints `full` when all are open, and at the end how many were cut off.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import sys
from typing import Final

from tests.fuzz import corpus

TLS_HELLO: Final = bytes.fromhex("16030100c8010000c40303") + bytes(200)
PAUSE_S: Final = 0.05
SHARE: Final = 0.1
"""How many of the connections do something in each round."""


def main(address: str, count: int, seed: int) -> None:
    """Connect, send what nobody should, and begin anew when cut off."""
    host, _, port = address.rpartition(":")
    rng = random.Random(seed)
    frames = [frame for _, _, frame in corpus.frames(rng)]
    open_ones: list[tuple[socket.socket, int]] = []
    cut_off = 0
    told = False
    while True:
        while len(open_ones) < count:
            sock = socket.create_connection((host, int(port)))
            sock.setblocking(False)
            open_ones.append((sock, rng.randrange(4)))
        if not told:
            told = True
            print("full", flush=True)
        kept = [each for each in open_ones if rng.random() > SHARE or annoy(*each, rng, frames)]
        cut_off += len(open_ones) - len(kept)
        open_ones = kept
        if select.select([sys.stdin], [], [], PAUSE_S)[0]:
            break
    print(cut_off)


def annoy(sock: socket.socket, kind: int, rng: random.Random, frames: list[bytes]) -> bool:
    """Send a little; returns whether the connection is still there."""
    frame = rng.choice(frames)
    data = (
        rng.randbytes(64),
        struct.pack(">i", len(frame)) + frame[: len(frame) // 2],
        TLS_HELLO,
        struct.pack(">i", 100_000)[rng.randrange(4) :][:1],  # byte by byte
    )[kind]
    try:
        with contextlib.suppress(BlockingIOError):
            sock.send(data)
        with contextlib.suppress(BlockingIOError):
            if not sock.recv(4096):
                raise ConnectionResetError
    except OSError:
        sock.close()
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
