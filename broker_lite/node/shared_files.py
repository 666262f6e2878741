"""Files that all brokers of a cluster have alike: ACLs, SCRAM credentials, settings that clients have changed.

Theory of operation: such a file is changed on the controller only. Before it is written there, the controller's log has
its text; all other brokers find it in the image, write it to their own directory, and read it again. So a broker that
starts has the latest version it knew, until it has caught up. The settings that only the controller decides are in the
image only, and are read there.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.node.dynamic_settings import FILE as SETTINGS_FILE
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.protocol.primitives import Buffer
from sparkonce.broker_lite.security.authorizer import ACLS_FILE, SecurityFileError
from sparkonce.broker_lite.security.credentials import CREDENTIALS_FILE

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.image import ClusterImage
    from sparkonce.broker_lite.node.broker import Broker

_SHARED: Final = frozenset({ACLS_FILE, CREDENTIALS_FILE, SETTINGS_FILE})
_PRIVATE: Final = frozenset({CREDENTIALS_FILE})

logger = logging.getLogger(__name__)


class AnnouncedFiles:
    """A storage's files; each write goes to the controller's log first."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.announce: Callable[[str, str], None] | None = None
        """Called with a file's name and text; raises KafkaError NOT_CONTROLLER if this is not the controller."""

    def read(self, path: str) -> bytes:
        """See `Files`."""
        return self.storage.read(path)

    def write(self, path: str, data: Buffer, *, durable: bool, private: bool = False) -> None:
        """See `Files`."""
        if self.announce is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not in its cluster yet")
        self.announce(posixpath.basename(path), bytes(data).decode())
        self.storage.write(path, data, durable=durable, private=private)


class SharedFiles:
    """Keeps one broker's files as the cluster has them."""

    def __init__(self, broker: Broker, member: ClusterMember, files: AnnouncedFiles) -> None:
        self._broker = broker
        self._member = member
        self._storage = files.storage
        self._known: dict[str, str] = {}
        files.announce = self._announce
        member.on_image.append(self.take)

    def take(self, image: ClusterImage) -> None:
        """Write the files as the cluster has them.

        Raises:
            OSError: if one cannot be written.
        """
        dynamic = self._broker.dynamic
        if dynamic.decided != image.default_settings:
            dynamic.decided = dict(image.default_settings)
            self._broker.reload_settings()
        for name, text in image.documents.items():
            if self._known.get(name) != text:
                self._take(name, text)

    def _take(self, name: str, text: str) -> None:
        if name in _SHARED:
            path = f"{self._broker.logs.log_dir}/{name}"
            self._storage.write(path, text.encode(), durable=True, private=name in _PRIVATE)
        else:  # whoever can write what the cluster rests on must not write any file of its brokers
            logger.error("the cluster's file %r is ignored: brokers share %s", name, ", ".join(sorted(_SHARED)))
        self._known[name] = text
        self._read_again(name)

    def _announce(self, name: str, text: str) -> None:
        self._member.controller.decide(lambda controller: (controller.change_document(name, text), None))
        self._known[name] = text

    def _read_again(self, name: str) -> None:
        broker = self._broker
        try:
            if name == ACLS_FILE and broker.authorizer is not None:
                broker.authorizer.reload()
            elif name == CREDENTIALS_FILE:
                broker.scram_credentials.reload()
            elif name == SETTINGS_FILE:
                broker.reload_settings()
        except (SecurityFileError, LogDirectoryError) as error:
            logger.error("going on with what was known before: %s", error)
