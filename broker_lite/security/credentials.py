"""The SCRAM credentials: of users in the settings, and those set by clients, which are in a file.

Theory of operation: credentials set by clients override those in the settings. The file is rewritten, as a whole,
durably and readable by its owner only, before a change is acknowledged or takes effect. It has salted keys, and no
passwords.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sparkonce.broker_lite.log.storage import Files
from sparkonce.broker_lite.security.authorizer import SecurityFileError
from sparkonce.broker_lite.security.scram import DEFAULT_ITERATIONS, SCRAM_MECHANISMS, ScramCredential
from sparkonce.broker_lite.security.settings import ListenerConfig
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

CREDENTIALS_FILE: Final = "scram-credentials.json"
MAX_CREDENTIALS: Final = 100_000

Key = tuple[str, str]
"""A mechanism's name and a user."""


class ScramCredentials:
    """Credentials by mechanism and user."""

    def __init__(self, storage: Files, directory: str, configured: Mapping[Key, ScramCredential]) -> None:
        """Load the file. Raises SecurityFileError if the file is invalid."""
        self._storage = storage
        self._path = f"{directory}/{CREDENTIALS_FILE}"
        self._configured = dict(configured)
        self._kept = _read(storage, self._path)

    def reload(self) -> None:
        """Read the file again, as another writer has replaced it; raises as the constructor."""
        self._kept = _read(self._storage, self._path)

    def get(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential."""
        key = (mechanism, user)
        return self._kept.get(key) or self._configured.get(key)

    def is_kept(self, mechanism: str, user: str) -> bool:
        """Whether a client has set this credential, so that a client can remove it."""
        return (mechanism, user) in self._kept

    def users(self) -> dict[str, dict[str, ScramCredential]]:
        """Return all credentials: user, then mechanism, in order."""
        by_user: dict[str, dict[str, ScramCredential]] = {}
        for (mechanism, user), credential in _in_order(self._configured | self._kept):
            by_user.setdefault(user, {})[mechanism] = credential
        return dict(sorted(by_user.items()))

    def change(self, removals: Iterable[Key], additions: Mapping[Key, ScramCredential]) -> None:
        """Remove and set credentials, all or none; when this returns they are on the disk.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR or POLICY_VIOLATION; then nothing has changed.
        """
        gone = set(removals)
        kept = {key: value for key, value in self._kept.items() if key not in gone} | dict(additions)
        if len(kept) > MAX_CREDENTIALS:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"the broker keeps at most {MAX_CREDENTIALS} credentials")
        text = json.dumps({"version": 1, "credentials": [_to_json(*item) for item in _in_order(kept)]}, indent=1)
        try:
            self._storage.write(self._path, text.encode(), durable=True, private=True)
        except OSError as error:
            logger.error("cannot write %s: %s", self._path, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the credentials cannot be written") from error
        self._kept = kept


def configured_credentials(
    listeners: Iterable[ListenerConfig], new_salt: Callable[[], bytes]
) -> dict[Key, ScramCredential]:
    """Return the credentials of the users in the settings of listeners."""
    found = {}
    for listener in listeners:
        for name, passwords in listener.sasl.users.items() if listener.sasl is not None else ():
            mechanism = SCRAM_MECHANISMS.get(name)
            if mechanism is None:
                continue
            for user, password in passwords.items():
                found[name, user] = ScramCredential.of_password(mechanism, new_salt(), password, DEFAULT_ITERATIONS)
    return found


def _in_order(credentials: Mapping[Key, ScramCredential]) -> list[tuple[Key, ScramCredential]]:
    return [(key, credentials[key]) for key in sorted(credentials)]


def _read(storage: Files, path: str) -> dict[Key, ScramCredential]:
    try:
        content = json.loads(storage.read(path))
        if content["version"] != 1:
            raise ValueError("another version")
        return dict(map(_from_json, content["credentials"]))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        # The error's text could contain a part of the file.
        raise SecurityFileError(
            f"{path} holds no credentials of version 1 ({type(error).__name__}): put a copy back, or remove it and "
            "set the users' passwords again"
        ) from None


def _to_json(key: Key, credential: ScramCredential) -> dict[str, Any]:
    return {
        "mechanism": key[0],
        "user": key[1],
        "iterations": credential.iterations,
        "salt": base64.b64encode(credential.salt).decode(),
        "storedKey": base64.b64encode(credential.stored_key).decode(),
        "serverKey": base64.b64encode(credential.server_key).decode(),
    }


def _from_json(entry: dict[str, Any]) -> tuple[Key, ScramCredential]:
    if entry["mechanism"] not in SCRAM_MECHANISMS:
        raise ValueError("an unknown mechanism")
    salt, stored, server = (base64.b64decode(entry[name], validate=True) for name in ("salt", "storedKey", "serverKey"))
    return (entry["mechanism"], entry["user"]), ScramCredential(salt, stored, server, int(entry["iterations"]))
