"""Classes that Spark sends to its other Python processes; a process that cannot load them reports why.

Spark pickles a format, its readers and its writers, and a pickle names their classes by module. If that module is
missing, has another version or cannot be imported, Spark only reports ``ModuleNotFoundError`` below its own
calls, or worse, an error somewhere in the code of the other version. So the pickle of a class of this metaclass begins
with a function that is pickled by value (as cloudpickle does with nested functions), and needs nothing of this package:
it compares the versions, and only then loads the class. The state of an object is read after its class.

Spark 4.2 passes the files of ``--py-files`` to all processes of a registered format, with two exceptions. It puts no
wheel on the path, only ``.zip``, ``.egg`` and ``.jar``. And ``python_streaming_source_runner``, which plans a stream,
gets the folder of the session's artifacts, within that of these files. So the function looks in both for the
file that the package was loaded from.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sparkonce

_ROOT = Path(sparkonce.__file__).parents[1]
ZIP = _ROOT.name if _ROOT.is_file() else None
"""The name of the zip file or wheel that this package was loaded from; None if it is installed."""


class Shipped(ABCMeta):
    """The metaclass of classes that are sent; they are pickled by cloudpickle only, as Spark does."""


def _loader() -> Callable[[str, str, str, str | None], Any]:
    def load(module: str, name: str, version: str, zip_file: str | None) -> Any:
        import importlib
        import os
        import socket
        import sys

        if zip_file is not None:
            from pyspark import SparkFiles

            folder = SparkFiles.getRootDirectory()
            candidates = (os.path.join(each, zip_file) for each in (folder, os.path.dirname(folder)))
            sys.path[1:1] = [path for path in candidates if path not in sys.path and os.path.isfile(path)]
        where = f"the Python process on {socket.gethostname()} ({sys.executable})"
        remedy = f"install sparkonce=={version} there, or set PYSPARK_PYTHON to a Python that has it (docs/shipping.md)"
        try:
            found = importlib.import_module("sparkonce").__version__
        except ImportError as error:
            raise ImportError(f"{where} has no sparkonce ({error}): {remedy}") from None
        if found != version:
            raise ImportError(f"{where} has sparkonce {found}, and the driver {version}: {remedy}")
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise ImportError(f"{where} cannot load sparkonce: {error}: {remedy}, with all its packages") from None

    return load


_load = _loader()


def _reduce(kind: type) -> tuple[Any, ...]:
    return _load, (kind.__module__, kind.__qualname__, sparkonce.__version__, ZIP)


copyreg.pickle(Shipped, _reduce)
