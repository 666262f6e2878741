"""Secrets that are given as options come out nowhere: not in errors or their causes, not in ``repr``, not in logs."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.kafka_sink.options import KafkaBatchOptions, KafkaSinkOptions
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.reference.tables import REFERENCES, Reference
from sparkonce.connectors.session import REDACTED
from sparkonce.options import STORAGE_PREFIX, OptionError

SECRET = "s3cr3t-pl4nted"
MODULE = "org.apache.kafka.common.security"
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
STREAM = {"appId": "a", "checkpointLocation": "/c"}
Read = Callable[[Mapping[str, str]], Any]

USES: dict[str, tuple[str, Read, dict[str, str]]] = {
    "source": ("source", SourceOptions.read, {**SERVERS, "subscribe": "t"}),
    "sink": ("kafka-sink", KafkaSinkOptions.read, {**SERVERS, **STREAM, "topic": "t", "deadLetters": "table:/d"}),
    "batch": ("kafka-sink", KafkaBatchOptions.read, {**SERVERS, "topic": "t"}),
    "group": ("delta-sink", SinkOptions.read, {**SERVERS, **STREAM, "path": "/t", "offsetStore": "group:g"}),
    "letters": ("delta-sink", SinkOptions.read, {**SERVERS, **STREAM, "path": "/t", "deadLetters": "topic:d"}),
}
LOGINS = {
    "plain": {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "me", "kafka.sasl.password": SECRET},
    "line": {
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{MODULE}.scram.ScramLoginModule required username="me" password="{SECRET}";',
    },
    "tokens": {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://h/token",
        "kafka.sasl.oauthbearer.client.credentials.client.id": "me",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": SECRET,
    },
}
PLANTED = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.ssl.truststore.location": "/trust.jks",
    "kafka.ssl.truststore.password": SECRET,
    "kafka.ssl.keystore.location": "/keys.jks",
    "kafka.ssl.keystore.password": SECRET,
    "kafka.ssl.key.password": SECRET,
}
STORAGE = {f"{STORAGE_PREFIX}AWS_SECRET_ACCESS_KEY": SECRET}


def wrong(reference: Reference, use: str) -> Iterator[dict[str, str]]:
    """Yield options that are wrong in one way each: every name with what nobody can read, or with the secret itself."""
    settings = REFERENCES["source" if use in ("source", "group") else "kafka-sink"].settings
    assert settings is not None
    names = list(reference.options.settings)
    names += [
        f"kafka.{name.replace('*', 'x')}" for name in (*settings.settings, *settings.refused, *settings.elsewhere)
    ]
    for name in names:
        yield {name: "\x00?"}
        yield {name: ""}
        if secret(reference, name):
            yield {name: SECRET}
            yield {name: f'x.PlainLoginModule required password="{SECRET}'}
            yield {name: f"x.Module required {SECRET};"}
    for typed in ("kafka.sasl.pasword", "kafka.ssl.keystore.pass", "sasl.password", "kafka.password", "storag.KEY"):
        yield {typed: SECRET}
    yield {"kafka.ssl.keystore.key": SECRET, "kafka.ssl.keystore.certificate.chain": ""}
    yield {"kafka.sasl.oauthbearer.token.endpoint.url": f"https://me:{SECRET}@h/"}


def secret(reference: Reference, name: str) -> bool:
    known = dict(reference.options.settings)
    for each in REFERENCES.values():
        if each.settings is not None:
            known |= {f"kafka.{setting}": option for setting, option in each.settings.settings.items()}
    return name in known and known[name].sensitive


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("use", USES)
def test_no_error_and_no_repr_shows_a_secret(use: str, login: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reference, read, needed = USES[use]
    given = {**needed, **PLANTED, **LOGINS[login], **({} if use == "batch" else STORAGE)}
    assert SECRET not in repr(read(given))
    errors = 0
    for broken in wrong(REFERENCES[reference], use):
        try:
            found = read({**given, **broken})
        except OptionError as error:
            errors += 1
            told = "".join(traceback.format_exception(error)) + repr(error) + str(error.args)
            assert SECRET not in told, f"{broken}: {told}"
        else:
            assert SECRET not in repr(found), broken
    assert errors > 30
    assert SECRET not in caplog.text


@pytest.mark.parametrize("name", ["source", "kafka-sink"])
def test_spark_leaves_every_secret_out_of_plans(name: str) -> None:
    """By its default for names, or by the pattern that `spark_session` adds."""
    spark_s_own = re.compile(r"(?i)secret|password|token|access[.]?key|sasl\.jaas\.config")
    told = [
        entry.name
        for entry in REFERENCES[name].entries()
        if entry.sensitive and not entry.name.endswith("*")
        if not spark_s_own.search(entry.name) and not re.search(REDACTED, entry.name)
    ]
    assert told == []
    for key in ("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        assert re.search(REDACTED, f"{STORAGE_PREFIX}{key}")
