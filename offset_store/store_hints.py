"""What to do about an error of an object store, or of a disk that is full: one sentence for the end of its message.

An error of obstore or delta-rs quotes the request and the store's answer, but not what its user should change. The
patterns are the codes of S3's error answers, and words of the Rust crates ``object_store`` and ``hyper``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sparkonce.offset_store.errors import OffsetStoreError, plain
from sparkonce.offset_store.locations import Location

_KEYS = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "gs": ("GOOGLE_SERVICE_ACCOUNT",),
    "abfss": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
    "az": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY"),
}
_ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "abfss": "AZURE_STORAGE_ENDPOINT", "az": "AZURE_STORAGE_ENDPOINT"}
_RENEWED = "; a query that outlives its keys needs some that are renewed: leave them out, and give the machines a role"
_NO_ANSWER = r"dns error|tcp connect error|client error \(Connect\)"
_TIMED_OUT = r"timed out"
_IS_DOWN = r"\b(?:429 Too Many|50[02-9] [A-Z])"
_BROKEN = r"reading a body|response body error|connection closed|error sending request|IncompleteMessage"
_OUTAGE = re.compile("|".join([_NO_ANSWER, _TIMED_OUT, _IS_DOWN, _BROKEN]))
_HINTS = (
    (
        r"169\.254\.169\.254|169\.254\.170\.2|metadata\.google\.internal|loading credentials",
        "No credentials for {place} were found: set {keys}, or the environment variables of these names for the driver "
        "and the executors, or assign a role to the machine; Spark's own settings, fs.s3a.*, are not read here",
    ),
    (
        r"ExpiredToken|TokenRefreshRequired|RequestExpired|token (?:has|is) expired",
        "The credentials have expired: set new ones ({keys}, a session token too), and start the query again"
        + _RENEWED,
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|AuthorizationHeaderMalformed|\b401 Unauthorized",
        "The store does not accept these credentials: check {keys}, the session token if there is one, and the region",
    ),
    (
        r"AccessDenied|necessary privileges|\b403 Forbidden",
        "These credentials may not do that: a query lists, reads, writes and deletes in the folders of table and "
        "checkpoint (S3: s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload)",
    ),
    (r"NoSuchBucket", "There is no such bucket at this endpoint: create it, or correct {place} or {endpoint}"),
    (r"URL scheme is not allowed", "For an endpoint with http:// set storage.AWS_ALLOW_HTTP=true, or use https://"),
    (r"incorrectly configured region|PermanentRedirect", "The bucket is in another region: set storage.AWS_REGION"),
    (
        _NO_ANSWER,
        "No store answers there: check {endpoint}, and the network from this machine",
    ),
    (
        _TIMED_OUT,
        "The store did not answer in time: check {endpoint} and the network; storage.timeout (default 30 seconds) says "
        "how long a request waits, storage.retry_timeout (180 seconds) how long reads are repeated. Start the query "
        "again: what has landed is found in the table",
    ),
    (
        _IS_DOWN,
        "The store is overloaded or down: start the query again when it serves; storage.max_retries (default 10) and "
        "storage.retry_timeout (180 seconds) say how long requests are repeated",
    ),
    (
        _BROKEN,
        "The connection to the store broke: start the query again; what has landed is found in the table",
    ),
)
_IS_FULL = re.compile(r"(?i)\b(?:errno|os error) (?:28|122)\b")
"""ENOSPC and EDQUOT on Linux, as pyarrow and Python, and as Rust write them."""
_FREE_SPACE = "The disk of {place} is full, or this user's quota there is used up: free space there, and start again"
_IN_GENERAL = (
    "The options storage.* (--storage of commands) set endpoint, region and credentials of the store, for table and "
    "checkpoint alike (S3: storage.AWS_ENDPOINT_URL, storage.AWS_REGION, storage.AWS_ACCESS_KEY_ID, "
    "storage.AWS_SECRET_ACCESS_KEY); Spark's own settings, fs.s3a.*, are not read here"
)


def is_outage(text: str) -> bool:
    """Return whether an error with this text says that a store does not answer now, whatever it is asked."""
    return _OUTAGE.search(text) is not None


def store_hint(location: Location, text: str) -> str:
    """Return what to do about an error with this text, as ``. A sentence``; "" if nothing is known."""
    if location.is_local and _IS_FULL.search(text):
        return ". " + _FREE_SPACE.format(place=location)
    if not location.in_object_store:
        return ""
    scheme = location.text.partition(":")[0]
    for pattern, hint in _HINTS:
        if re.search(pattern, text):
            keys = " and ".join(f"storage.{name}" for name in _KEYS.get(scheme, ())) or "options storage.*"
            endpoint = f"storage.{_ENDPOINTS[scheme]}" if scheme in _ENDPOINTS else "the address"
            return ". " + hint.format(place=location, keys=keys, endpoint=endpoint)
    return ""


def store_hint_or_options(location: Location, text: str) -> str:
    """Return the same; if unknown, the options that configure the store."""
    return store_hint(location, text) or (f". {_IN_GENERAL}" if location.in_object_store else "")


@contextmanager
def full_disk(location: Location) -> Iterator[None]:
    """Pass errors on unchanged, but raise OffsetStoreError with the place and what to do for that of a full disk."""
    try:
        yield
    except OSError as error:
        why = plain(error)
        hint = store_hint(location, why) if location.is_local else ""
        if hint:
            raise OffsetStoreError(f"cannot write to {location}: {why}{hint}") from error
        raise
