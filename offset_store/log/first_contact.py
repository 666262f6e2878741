"""Whether an object store answers at all: checked once per process, with short timeouts.

obstore and delta-rs retry a read for three minutes without a message. That is right for a running query, whose store
may be down for a moment, and wrong for one that starts with a wrong endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.stores import object_storage

IMPATIENT = {"connect_timeout": "5s", "timeout": "10s", "max_retries": "1", "retry_timeout": "10s"}
"""Storage options; the user's own take precedence."""
_NO_ANSWER = re.compile(r"dns error|tcp connect error|client error \(Connect\)|timed out")
_answered: set[tuple[str, tuple[tuple[str, str], ...]]] = set()


def check_store_answers(location: Location, storage_options: Mapping[str, str]) -> None:
    """Request a file of the folder, existing or not; errors other than a missing answer are left to later requests.

    Raises:
        OSError: if nothing answers, or an option has no such value, such as an endpoint that is no address.
    """
    bucket = "/".join(location.text.split("/")[:3])
    key = bucket, tuple(sorted(storage_options.items()))
    if not location.in_object_store or key in _answered:
        return
    given = {name.lower() for name in storage_options}
    impatient = {name: value for name, value in IMPATIENT.items() if name not in given}
    storage = object_storage(location, {**storage_options, **impatient})
    try:
        storage.tag("_last_checkpoint")
    except OSError as error:
        if _NO_ANSWER.search(str(error)):
            raise
    _answered.add(key)
