"""Files that all brokers of a cluster have alike: ACLs, SCRAM credentials, settings that clients have changed.

Theory of operation: such a file is changed on the controller only. It is written there when the controller's log is
sure to have its text; all other brokers find it in the image, write it to their own directory, and read it again. So a
broker that starts has the latest version it knew, until it has caught up. The settings that only the controller decides
are in the image only, and are read there.

The controller itself goes by a change from its decision on, since the next one builds on it. If the controller is
replaced before the decision is durable, it goes back to what is decided for good.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.node.announced_files import AnnouncedFiles
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.dynamic_settings import FILE as SETTINGS_FILE
from sparkonce.broker_lite.security.authorizer import ACLS_FILE, SecurityFileError
from sparkonce.broker_lite.security.credentials import CREDENTIALS_FILE

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.image import ClusterImage
    from sparkonce.broker_lite.controller.records import Record

_SHARED: Final = frozenset({ACLS_FILE, CREDENTIALS_FILE, SETTINGS_FILE})
_PRIVATE: Final = frozenset({CREDENTIALS_FILE})

logger = logging.getLogger(__name__)


class SharedFiles:
    """Keeps one broker's files as the cluster has them."""

    def __init__(self, broker: Broker, member: ClusterMember, files: AnnouncedFiles) -> None:
        self._broker = broker
        self._member = member
        self._files = files
        self._known: dict[str, str] = {}
        """The texts that are on the disk."""
        self._decided: dict[str, int] = {}
        """Up to where an image has to be to have what this controller has decided last of a file."""
        self._settled_at: dict[str, int] = {}
        """And to have the last of that which is decided for good."""
        files.announce = self._announce
        member.on_image.insert(0, self.take)  # topics go by the settings that came before them

    def take(self, image: ClusterImage) -> None:
        """Write the files as the cluster has them, and go by them.

        Raises:
            OSError: if one cannot be written. It counts all the same, and is written with the controller's next word.
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
                except OSError as error:  # who is locked out of the cluster must not get in where a disk is full
                    self._files.ahead[name] = text
                    failure = failure or error
                self._read_again(name)
        if failure is not None:
            raise failure

    def _write(self, name: str, text: str) -> None:
        self._known.pop(name, None)
        if name in _SHARED:
            path = f"{self._broker.logs.log_dir}/{name}"
            self._files.storage.write(path, text.encode(), durable=True, private=name in _PRIVATE)
        else:  # whoever can write what the cluster rests on must not write any file of its brokers
            logger.error("the cluster's file %r is ignored: brokers share %s", name, ", ".join(sorted(_SHARED)))
        self._known[name] = text

    def _announce(self, name: str, text: str) -> None:
        def decision(controller: Controller) -> tuple[list[Record], int]:
            records = controller.change_document(name, text)
            return records, controller.image.next_offset

        role = self._member.controller
        end = self._decided[name] = role.decide(decision)
        self._files.ahead[name] = text
        if role.is_written:
            self._settled(name, text, end, True)
        else:
            role.when_written(partial(self._settled, name, text, end))

    def _settled(self, name: str, text: str, end: int, is_written: bool) -> None:
        """Write what is decided for good; if it is not known to be, go back to what is."""
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
