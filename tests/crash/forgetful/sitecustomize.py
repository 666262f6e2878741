"""Loaded by every Python that finds this folder on its path: notes how much of each file has been flushed to the disk.

A process that is killed leaves its unflushed writes to the operating system, which keeps them; a machine that loses
power does not. `tests.crash.power` takes them away afterwards, by what is noted here: a line of inode and size for each
`fsync`, in a file of this process that outlives it.
"""

import os

_fsync = os.fsync
_folder = os.environ.get("FLUSHES_NOTED_IN")

if _folder:
    _notes = os.open(os.path.join(_folder, str(os.getpid())), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def _noted_fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        _fsync(descriptor)
        os.write(_notes, b"%d %d\n" % (found.st_ino, found.st_size))

    os.fsync = _noted_fsync
