"""The settings of a Kafka client among the options of a command."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping

from sparkonce.broker_lite.config import ConfigError, read_properties
from sparkonce.kafka.client.settings import read_settings
from sparkonce.options import KAFKA_PREFIX

SERVERS = f"{KAFKA_PREFIX}bootstrap.servers"


def settings_from(
    options: argparse.Namespace, check: Callable[[Mapping[str, str]], object] = read_settings
) -> dict[str, str]:
    """Return the ``kafka.*`` options of a client from what `add_kafka` declares, checked; none if nothing was given.

    Names come with or without the prefix. The command line goes before the file.

    Raises:
        ConfigError: if the file cannot be read.
        OptionError: for options that cannot be read, or that name no broker.
    """
    given: dict[str, str] = {}
    if options.command_config is not None:
        if not os.path.isfile(options.command_config):
            raise ConfigError(f"--command-config {options.command_config}: there is no such file")
        given |= read_properties(options.command_config)
    # Before they are put together: a name with the prefix and the same without it are one setting.
    named = [*given.items(), *options.kafka]
    found = {name if name.startswith(KAFKA_PREFIX) else KAFKA_PREFIX + name: value for name, value in named}
    if options.bootstrap_servers is not None:
        found[SERVERS] = options.bootstrap_servers
    if found:
        check(found)
    return found
