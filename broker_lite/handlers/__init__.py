"""One module per API: from request to response. A module is imported when it is first named here (PEP 562)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name):
        from importlib import import_module

        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error
