"""Retention and compaction beside the clients' requests: a little at a time, on the same loop.

Once a second, or as often as a setting asks for, there is a look at whether anything is due. As long as there is work,
it is done in slices of at most `HOUSEKEEPING_SLICE_MS`, with a pause at least as long in between, so that a request
waits for one slice at most.
"""

from __future__ import annotations

import asyncio
import logging

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.handlers.broker import Broker
from sparkonce.broker_lite.log.housekeeping import Housekeeping, HousekeepingSettings
from sparkonce.broker_lite.server.limits import HOUSEKEEPING_PAUSE_MS, HOUSEKEEPING_SLICE_MS

MAX_LOOK_INTERVAL_MS = 1_000
MIN_LOOK_INTERVAL_MS = 50

logger = logging.getLogger(__name__)


class Housekeeper:
    """Drives one broker's housekeeping until it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
        self._loop = loop
        self._broker = broker
        self._config = broker.config
        self._work = Housekeeping(broker.logs, housekeeping_settings(broker.config), broker.clock.monotonic_ms())
        self._timer = loop.call_later(self._look_interval_s, self._run)

    def stop(self) -> None:
        """Cancel what is under way."""
        self._timer.cancel()
        self._work.close()

    def _run(self) -> None:
        broker, clock = self._broker, self._broker.clock
        if broker.config is not self._config:  # a setting has been changed
            self._config = broker.config
            self._work.settings = housekeeping_settings(self._config)
        until_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        more = True
        try:
            while more and clock.monotonic_ms() < until_ms:
                more = self._work.step(clock.now_ms(), clock.monotonic_ms())
        except Exception:
            # Whatever it is, clients can still be served; what was under way has to be given up.
            logger.exception("housekeeping failed; it is tried again")
            self._work.close()
            more = False
        busy = more or self._work.busy
        self._timer = self._loop.call_later(HOUSEKEEPING_PAUSE_MS / 1000 if busy else self._look_interval_s, self._run)

    @property
    def _look_interval_s(self) -> float:
        settings = self._work.settings
        asked_for = min(settings.retention_check_interval_ms, settings.cleaner_backoff_ms, MAX_LOOK_INTERVAL_MS)
        return max(asked_for, MIN_LOOK_INTERVAL_MS) / 1000


def housekeeping_settings(config: BrokerConfig) -> HousekeepingSettings:
    """Return the share of the broker's settings that housekeeping goes by."""
    return HousekeepingSettings(
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        cleaner_enable=config.log_cleaner_enable,
        cleaner_backoff_ms=config.log_cleaner_backoff_ms,
        cleaner_dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        cleaner_load_factor=config.log_cleaner_io_buffer_load_factor,
        producer_id_expiration_ms=config.producer_id_expiration_ms,
        producer_id_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
    )
