"""Every bound of the server's shell, in one place."""

from __future__ import annotations

from typing import Final

READ_BUFFER_BYTES: Final = 64 * 1024
"""What a connection's read buffer starts with."""

MAX_IDLE_READ_BUFFER_BYTES: Final = 1024 * 1024
"""What it may grow to without a larger frame, and what it goes back to after one."""

MAX_REQUESTS_PER_WAKE_UP: Final = 16
"""How many requests of one connection are handled before the others get their turn."""

MAX_REQUEST_BYTES_PER_WAKE_UP: Final = 64 * 1024
"""How many bytes of requests of one connection are handled before the others get their turn."""

BULK_REQUEST_BYTES: Final = 32 * 1024
"""A request larger than this waits for its turn, after the small ones."""

BULK_BYTES_PER_ROUND: Final = 64 * 1024
"""When such requests have come to this many bytes, the others wait for the next round of the loop."""

BULK_TURNS_ALONE: Final = 64
"""After so many turns of one client, with no small request in between, it counts as alone."""

MAX_SENT_BYTES_PER_WAKE_UP: Final = 1024 * 1024
"""How many bytes of responses one connection is sent before the others get their turn."""

MAX_UNSENT_BYTES: Final = 256 * 1024
"""Above this many unsent bytes of responses, a connection's requests wait and reading is paused."""

MAX_HELD_BYTES: Final = 1024 * 1024 * 1024
"""The most that all connections together hold in read buffers and in answers that are not read."""

ROOM_SHARE: Final = 8
"""When that is reached, connections that stand still give back one of so many parts of it."""

FRAME_TIMEOUT_MS: Final = 30_000
"""How long a client may take for a frame that it has begun, besides what `MIN_RECEIVED_BYTES_PER_S` allows."""

MIN_RECEIVED_BYTES_PER_S: Final = 100 * 1024
"""How fast the bytes of a large frame must come, on the average."""

SEND_TIMEOUT_MS: Final = 60_000
"""How long a client may read nothing of its answers."""

SHRINK_AFTER_MS: Final = 10_000
"""After how long an idle connection's read buffer is small again."""

SWEEP_INTERVAL_S: Final = 1.0
"""How often connections are checked, and so how exact these times are."""

SENDFILE_BYTES: Final = 1024 * 1024
"""The most that one sendfile call is asked for."""

PREAD_BYTES: Final = 256 * 1024
"""The piece size where a file has no descriptor to send from."""

LISTEN_BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""

HOUSEKEEPING_SLICE_MS: Final = 2
"""How long retention and compaction work before requests get their turn."""

HOUSEKEEPING_PAUSE_MS: Final = 4
"""How long they then leave the loop to requests."""

TLS_PIECE_BYTES: Final = 256 * 1024
"""How much is encrypted at a time, and so how much of a TLS connection's answer is in memory twice."""

TLS_HANDSHAKE_TIMEOUT_S: Final = 30.0
"""How long a client may take for the TLS handshake."""

REFUSAL_LINGER_S: Final = 0.2
"""How long a connection stays open after the answer to a failed authentication, unless the client closes it."""

MAX_LOG_LINES_PER_MINUTE: Final = 600
"""Lines of one kind in the log of a broker's process."""

MAX_FAILURE_LENGTH: Final = 300
"""The most that is logged of why an authentication failed: a client chooses its user's name."""

MAX_UNANSWERED_WRITES: Final = 16
"""How many writes of one connection may wait for followers at a time; the next request waits with them."""

JOINED_BYTES: Final = 32 * 1024
"""An answer with stretches of files that has no more than this goes out in one piece, read into memory."""
