"""Hides secrets of object stores in errors.

delta-rs's errors quote the request, and some stores take their keys in the address: a shared access signature of Azure,
a presigned address of S3, a user and password before the host. So all code that loads a table, commits to it or reads
its log runs under `hidden_secrets`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

from sparkonce.offset_store.errors import OffsetStoreError

HIDDEN = "***"
LEAST_ANYWHERE = 8
"""In characters: shorter secrets, which may be parts of words, are hidden only where they stand alone."""
_SECRET_OPTION = re.compile(r"(?i)secret|key|token|password|sas|credential")
_FLAG_NAME = re.compile(r"(?i)_enabled$")
_PLAIN_VALUE = re.compile(rf"(?i)true|false|[-+]?[0-9.]{{1,{LEAST_ANYWHERE - 1}}}")
_USER_INFO = re.compile(r"://[^/\s:@]*:[^/\s]+@")
"""User and password in an address, such as that of an endpoint or a proxy."""
_SIGNED = re.compile(r"(?i)\b(sig|x-amz-signature|x-amz-security-token|x-goog-signature)=[^&\s\"']+")


@contextmanager
def hidden_secrets(storage_options: Mapping[str, str]) -> Iterator[None]:
    """Pass errors on unchanged, unless they or their causes show a secret: then without the secret and the causes.

    Raises:
        OffsetStoreError: instead of an error of another library. One of our own keeps its class.
    """
    try:
        yield
    except Exception as error:
        if not shows_secret(error, storage_options):
            raise
        raise with_message(error, without_secrets(str(error), storage_options)) from None


def without_secrets(text: str, storage_options: Mapping[str, str]) -> str:
    """Replace by `HIDDEN` a secret option's value, or a password or signature in an address, in ``text``."""
    for name, value in storage_options.items():
        if not _SECRET_OPTION.search(name) or _FLAG_NAME.search(name) or _PLAIN_VALUE.fullmatch(value):
            continue
        forms = {value, quote(value, safe=""), quote_plus(value), value.lstrip("?")}
        for form in sorted(filter(None, forms), key=len, reverse=True):
            if len(form) >= LEAST_ANYWHERE:
                text = text.replace(form, HIDDEN)
            elif form.strip("?&="):
                text = re.sub(rf"(?<![\w-]){re.escape(form)}(?![\w-])", HIDDEN, text)
    text = _USER_INFO.sub(f"://{HIDDEN}@", text)
    return _SIGNED.sub(lambda found: f"{found[1]}={HIDDEN}", text)


def shows_secret(error: BaseException, storage_options: Mapping[str, str]) -> bool:
    """Whether an error or one of its causes has a secret in its text."""
    return any(without_secrets(text, storage_options) != text for text in _texts(error))


def with_message(error: Exception, told: str) -> Exception:
    """Return an error with another text: of the same class if it is one of ours that has only a text."""
    kind = type(error)
    if kind.__module__.startswith("sparkonce.") and error.args == (str(error),):
        try:
            return kind(told)
        except TypeError:
            pass
    return OffsetStoreError(told)


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an error and of all its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield str(error)
        if error.__cause__ is None and error.__suppress_context__:
            return
        error = error.__cause__ or error.__context__
