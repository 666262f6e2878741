"""The size of the files that compaction writes; apart, since the command line shows it without loading anything."""

from __future__ import annotations

from typing import Final

DEFAULT_TARGET_BYTES: Final = 128 * 1024 * 1024
