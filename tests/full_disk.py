"""A disk that is full for this process: the kernel answers what it writes to files with ENOSPC (seccomp, Linux).

It needs no rights, unlike a small file system that would have to be mounted. There is no way back, so a process of its
own calls `fill`. Standard output and error, and the few bytes by which threads wake each other, are still written.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_CALLS = {"x86_64": (317, 1), "aarch64": (277, 64)}
"""The numbers of the system calls seccomp and write, by machine."""
LARGEST_WAKING = 16
"""Bytes."""
_NO_NEW_PRIVILEGES, _FILTER, _ALL_THREADS = 38, 1, 1
_LOAD, _EQUAL, _GREATER, _RETURN = 0x20, 0x15, 0x25, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_CALL, _DESCRIPTOR, _COUNT = 0, 16, 32
"""Where in `struct seccomp_data` they are; of two arguments the lower halves."""


def fill() -> None:
    """Let no thread of this process write to a file any more."""
    seccomp, write = _CALLS[platform.machine()]
    steps = [
        (_LOAD, 0, 0, _CALL),
        (_EQUAL, 0, 5, write),
        (_LOAD, 0, 0, _DESCRIPTOR),
        (_GREATER, 0, 3, 2),
        (_LOAD, 0, 0, _COUNT),
        (_GREATER, 0, 1, LARGEST_WAKING),
        (_RETURN, 0, 0, _ERROR | errno.ENOSPC),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    described = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(seccomp, _FILTER, _ALL_THREADS, described):
        raise OSError(ctypes.get_errno(), "seccomp")
