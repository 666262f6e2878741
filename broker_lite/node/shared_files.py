"""Files that are the same on all brokers of a cluster: ACLs, SCRAM credentials, settings that clients have changed.

Theory of operation: such a file is changed on the controller only. It is written there when its text is durable in
the controller's log; all other brokers find it in the image, write it to their own directory, and reload it. So a
broker that starts has the latest version it knew, until it has caught up. The settings that only the controller decides
are in the image only, and are read there.

The controller itself uses a change from its decision on, since the next one builds on it; the first builds on what the
log has, which its broker may not have applied yet. If the controller is replaced before the decision is durable, it
reverts to the last durable one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.node.announced_files import AnnouncedFiles
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.dynamic_settings import FILE as SETTINGS_FILE
from sparkonce.broker_lite.security.authorizer import ACLS_FILE, SecurityFileError
from sparkonce.broker_lite.security.credentials import CREDENTIALS_FILE
from sparkonce.broker_lite.waiting import begin_in_background

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.image import ClusterImage
    from sparkonce.broker_lite.controller.records import MetadataRecord

_SHARED: Final = frozenset({ACLS_FILE, CREDENTIALS_FILE, SETTINGS_FILE})
_PRIVATE: Final = frozenset({CREDENTIALS_FILE})

logger = logging.getLogger(__name__)


class SharedFiles:
    """Updates one broker's files to match the cluster's."""

    def __init__(self, broker: Broker, member: ClusterMember, files: AnnouncedFiles) -> None:
        self._broker = broker
        self._member = member
        self._files = files
        self._known: dict[str, str] = {}
        """The texts that are on the disk."""
        self._decided: dict[str, int] = {}
        """The image position that includes this controller's last decision about a file."""
        self._settled_at: dict[str, int] = {}
        """The image position that includes its last durable decision."""
        files.announce = self._announce
        member.on_image.insert(0, self.take)  # before topics, which depend on these settings

    def take(self, image: ClusterImage) -> None:
        """Write the files to match the cluster image, and reload them.

        Raises:
            OSError: if a write fails. The text is used all the same, and written at the controller's next change.
        """
        dynamic = self._broker.dynamic
        if dynamic.decided != image.default_settings:
            dynamic.decided = dict(image.default_settings)
            self._broker.reload_settings()
        failure: OSError | None = None
        for name, text in image.documents.items():
            if self._known.get(name) != text and image.next_offset >= self._decided.get(name, 0):
                self._files.ahead.pop(name, None)
                try:
                    self._write(name, text)
                except OSError as error:  # the change must be effective even if the disk is full: it may revoke access
                    self._files.ahead[name] = text
                    failure = failure or error
                self._read_again(name)
        if failure is not None:
            raise failure

    def lead(self, image: ClusterImage) -> None:
        """Let decisions of this broker, now the controller, build on the files of ``image``."""
        for name, text in image.documents.items():
            if self._files.ahead.get(name, self._known.get(name)) != text:
                self._decided[name] = self._settled_at[name] = image.next_offset
                self._files.ahead[name] = text
                self._read_again(name)

    def _write(self, name: str, text: str) -> None:
        self._known.pop(name, None)
        if name in _SHARED:
            path = f"{self._broker.logs.log_dir}/{name}"
            self._files.storage.write(path, text.encode(), durable=True, private=name in _PRIVATE)
        else:  # access to the cluster's storage must not allow writing any other file of its brokers
            logger.error("the cluster's file %r is ignored: brokers share %s", name, ", ".join(sorted(_SHARED)))
        self._known[name] = text

    def _announce(self, name: str, text: str) -> None:
        def decision(controller: Controller) -> tuple[list[MetadataRecord], int]:
            records = controller.change_document(name, text)
            return records, controller.image.next_offset

        role = self._member.controller
        end = self._decided[name] = role.decide(decision)
        self._files.ahead[name] = text
        begin_in_background(self._settle(name, text, end), f"{name} is not settled")

    async def _settle(self, name: str, text: str, end: int) -> None:
        """Write the value once it is committed; roll back if the commit is unknown."""
        is_written = await self._member.controller.written()
        is_last = self._decided.get(name) == end
        if is_written:
            self._settled_at[name] = end
            try:
                self._write(name, text)
            except OSError as error:  # the cluster has it all the same
                logger.error("%s cannot be written: %s; after the controller's next word again", name, error)
            else:
                if is_last:
                    self._files.ahead.pop(name, None)
        elif is_last:
            self._decided[name] = self._settled_at.get(name, 0)
            self._files.ahead.pop(name, None)  # it may be in the image after all
            self._known.pop(name, None)
            self._read_again(name)
            self.take(self._member.image)

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
