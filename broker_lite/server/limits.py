"""All limits of the server, in one place."""

from __future__ import annotations

from typing import Final

READ_BUFFER_BYTES: Final = 64 * 1024
"""The initial size of a connection's read buffer."""

MAX_IDLE_READ_BUFFER_BYTES: Final = 1024 * 1024
"""The size it may grow to without a larger frame, and shrinks to after one."""

COPIED_BYTES: Final = 4 * 1024
"""Requests up to this size are copied out of the read buffer, so that one that waits does not keep all of it."""

MAX_REQUESTS_PER_WAKE_UP: Final = 16
"""How many requests of one connection are handled before the others get a turn."""

MAX_REQUEST_BYTES_PER_WAKE_UP: Final = 64 * 1024
"""How many bytes of requests of one connection are handled before the others get a turn."""

BULK_REQUEST_BYTES: Final = 32 * 1024
"""A request larger than this waits for its turn, after the small ones."""

BULK_BYTES_PER_ROUND: Final = 64 * 1024
"""When such requests reach this many bytes, the others wait for the next round of the loop."""

BULK_TURNS_ALONE: Final = 64
"""After so many turns of one client, without a small request in between, it counts as alone."""

MAX_SENT_BYTES_PER_WAKE_UP: Final = 1024 * 1024
"""How many bytes of responses one connection is sent before the others get a turn."""

MAX_UNSENT_BYTES: Final = 256 * 1024
"""Above this many unsent bytes of responses, a connection's requests wait and reading is paused."""

MAX_HELD_BYTES: Final = 1024 * 1024 * 1024
"""The most memory of all connections together, in read buffers and unread responses."""

ROOM_SHARE: Final = 8
"""At the limit, stalled connections release 1/n of it."""

FRAME_TIMEOUT_MS: Final = 30_000
"""How long a client may take for an incomplete frame, besides what `MIN_RECEIVED_BYTES_PER_S` allows."""

MIN_RECEIVED_BYTES_PER_S: Final = 100 * 1024
"""The minimum average rate at which a large frame must arrive."""

SEND_TIMEOUT_MS: Final = 60_000
"""How long a client may read none of its responses."""

SHRINK_AFTER_MS: Final = 10_000
"""After how long an idle connection's read buffer is shrunk."""

SWEEP_INTERVAL_S: Final = 1.0
"""How often connections are checked, which is the accuracy of these times."""

SENDFILE_BYTES: Final = 1024 * 1024
"""The most bytes of one sendfile call."""

PREAD_BYTES: Final = 256 * 1024
"""The piece size for a file without a descriptor to send from."""

LISTEN_BACKLOG: Final = 1024
"""Connections that may wait to be accepted."""

HOUSEKEEPING_SLICE_MS: Final = 2
"""How long retention and compaction work before requests get a turn."""

HOUSEKEEPING_PAUSE_MS: Final = 4
"""How long they then pause for requests."""

TLS_PIECE_BYTES: Final = 256 * 1024
"""How much is encrypted at a time, and so how much of a TLS connection's response is in memory twice."""

TLS_HANDSHAKE_TIMEOUT_S: Final = 30.0
"""How long a client may take for the TLS handshake."""

REFUSAL_LINGER_S: Final = 0.2
"""How long a connection stays open after a failed authentication's response, unless the client closes it."""

MAX_LOG_LINES_PER_MINUTE: Final = 600
"""The most log lines of one kind per minute."""

MAX_FAILURE_LENGTH: Final = 300
"""The most characters logged about a failed authentication: the client chooses its user name."""

MAX_UNANSWERED_WRITES: Final = 16
"""How many writes of one connection may wait for followers; the next request waits with them."""

JOINED_BYTES: Final = 32 * 1024
"""A response with file slices of at most this size is read into memory and sent in one piece."""
