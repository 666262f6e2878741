"""The brokers and the registry named on the command line, and a file of settings for both."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sparkonce.broker_lite.config import ConfigError, read_properties
from sparkonce.jobs.shared.arguments import key_value
from sparkonce.options import KAFKA_PREFIX, SettingTable

if TYPE_CHECKING:
    from sparkonce.connectors.schema_registry.client import Registry

SERVERS = f"{KAFKA_PREFIX}bootstrap.servers"
_REGISTRY_PREFIXES = ("schemaRegistry.", "schema.registry.")


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a registry; the file of `add_kafka` may name it, too."""
    parser.add_argument(
        "--registry",
        metavar="URL,…",
        help="a schema registry, by whose schemas Avro, Protobuf and JSON Schema are decoded",
    )
    parser.add_argument(
        "--registry-option",
        metavar="NAME=VALUE",
        type=key_value,
        action="append",
        default=[],
        help="an option schemaRegistry.NAME, such as ssl.ca.location=ca.pem; repeatable. Passwords are better left to "
        "the file of --command-config",
    )


def kafka_and_registry(options: argparse.Namespace) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the Kafka client and of the registry, with their prefixes; empty if not given.

    The command line takes precedence over the file.

    Raises:
        ConfigError: the file cannot be read.
    """
    given: dict[str, str] = {}
    if options.command_config is not None:
        if not os.path.isfile(options.command_config):
            raise ConfigError(f"--command-config {options.command_config}: there is no such file")
        given = dict(read_properties(options.command_config))
    registry = {_registry_name(name): text for name, text in given.items() if name.startswith(_REGISTRY_PREFIXES)}
    registry |= {_registry_name(name): text for name, text in options.registry_option}
    if options.registry is not None:
        registry[_registry_name("url")] = options.registry
    named = [*((name, text) for name, text in given.items() if not name.startswith(_REGISTRY_PREFIXES)), *options.kafka]
    kafka = {name if name.startswith(KAFKA_PREFIX) else KAFKA_PREFIX + name: text for name, text in named}
    if options.bootstrap_servers is not None:
        kafka[SERVERS] = options.bootstrap_servers
    return kafka, registry


def open_registry(name: str, given: Mapping[str, str], kafka: Mapping[str, str]) -> Registry | None:
    """Return the registry's client, None if unnamed; ``name`` is for messages. Raises OptionError if one is invalid."""
    if not given:
        return None
    from sparkonce.connectors.schema_registry.client import Registry
    from sparkonce.connectors.schema_registry.settings import REGISTRY_SETTINGS, read_registry

    table = SettingTable(name, REGISTRY_SETTINGS, "source", passed_through=(f"{KAFKA_PREFIX}*",))
    table.check(given)
    settings = read_registry(table, {**given, **kafka})
    return None if settings is None else Registry(settings)


def _registry_name(name: str) -> str:
    for prefix in _REGISTRY_PREFIXES:
        name = name.removeprefix(prefix)
    return f"{_REGISTRY_PREFIXES[0]}{name}"
