"""A registry inside a test suite or a script, in a thread.

with EmbeddedBroker() as broker, EmbeddedRegistry(broker.bootstrap_servers) as registry:
    client = SchemaRegistryClient({"url": registry.url})
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType

import uvicorn

from sparkonce.http_hosts import is_loopback
from sparkonce.registry_lite.app import make_app
from sparkonce.registry_lite.service import RegistryService
from sparkonce.registry_lite.state import State
from sparkonce.registry_lite.topic import TOPIC, RegistryStartError, SchemaTopic

STOP_TIMEOUT_S = 30.0


class EmbeddedRegistry:
    """A registry that runs from construction to `close`.

    Args:
        bootstrap_servers: the brokers with its topic.
        host: the address to listen on; loopback by default.
        port: the port; 0 for a free one.
        names: more names by which clients call it, if it listens on loopback behind a proxy.
        topic: the topic of its schemas; created if it does not exist.
        user_info: ``user:password``, if clients must log in by basic authentication.
        certificate: a file with its certificate (PEM), for TLS.
        key: a file with that certificate's key.
        client_ca: a file with the certificates of the CAs of clients' certificates; then clients need one.
        kafka: more settings of the client that reads and writes the topic, by librdkafka's names.

    Raises:
        RegistryStartError: if it cannot listen, or cannot use the topic, the certificates or the login.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Sequence[str] = (),
        topic: str = TOPIC,
        user_info: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        client_ca: str | None = None,
        kafka: Mapping[str, str] | None = None,
    ) -> None:
        _check_login(user_info)
        _check_certificates(certificate, key, client_ca)
        state = State()
        self._socket = _listen(host, port)
        try:
            reading = threading.Condition()
            self._topic = SchemaTopic(bootstrap_servers, state.apply, reading, topic, kafka or {})
        except BaseException:
            self._socket.close()
            raise
        service = RegistryService(state, self._topic.write, reading, self._topic.settle)
        any_host = not is_loopback(self._socket.getsockname()[0])
        app = make_app(service, user_info, names=(host, socket.gethostname(), *names), any_host=any_host)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ssl_certfile=certificate,
            ssl_keyfile=key,
            ssl_ca_certs=client_ca,
            ssl_cert_reqs=2 if client_ca else 0,
            timeout_graceful_shutdown=1,
        )
        try:
            config.load()  # an error in the thread would not be reported
        except OSError as error:
            self._topic.close()
            self._socket.close()
            files = ", ".join(each for each in (certificate, key, client_ca) if each is not None)
            hint = "" if key else ": without a key, the certificate's file must have it, too"
            raise RegistryStartError(f"TLS cannot use the files {files} ({error}){hint}") from None
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="registry", daemon=True
        )
        self._thread.start()
        address = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if certificate else 'http'}://{address}:{self._socket.getsockname()[1]}"
        """Its address; requests are served from now on."""

    def close(self) -> None:
        """Stop it; all its schemas are in its topic."""
        self._server.should_exit = True
        self._thread.join(STOP_TIMEOUT_S)
        self._topic.close()
        self._socket.close()

    def __enter__(self) -> EmbeddedRegistry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _check_login(user_info: str | None) -> None:
    """Raise RegistryStartError for a login without a password."""
    if user_info is not None and not user_info.partition(":")[2]:
        raise RegistryStartError("who may log in: expected user:password")


def _check_certificates(certificate: str | None, key: str | None, client_ca: str | None) -> None:
    """Check the files, as the server's thread could not report them. Raises RegistryStartError if unreadable."""
    if certificate is None:
        if key is not None or client_ca is not None:
            raise RegistryStartError("a key, or who signs clients' certificates, needs the registry's own certificate")
        return
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        files = ", ".join(each for each in (certificate, key, client_ca) if each is not None)
        raise RegistryStartError(f"{files} cannot be used for TLS: {error}") from None


def _listen(host: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(128)
    except OSError as error:
        with contextlib.suppress(OSError):
            made.close()
        raise RegistryStartError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return made
