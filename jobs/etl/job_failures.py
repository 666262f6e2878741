"""How the example jobs end when they cannot go on: one line that says what, where and what to do, and exit status 1.

Spark wraps what went wrong in Python into an exception of the JVM's, which comes back as another of Python's: hundreds
of lines around one. So what can be asked before Spark is started is asked then, the topics above all, and of what
comes later the innermost error is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkonce.broker_lite.protocol.errors import KafkaError
from sparkonce.connectors.kafka_client.client import KafkaUnreachableError, MissingTopicError
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner

_TRACEBACK = "Traceback (most recent call last):"
_MODULE = re.compile(r"^(?:[a-z_]\w*\.)+(?=[A-Z]\w*(?::|$))")
_TRY = "Name another with --bootstrap-servers HOST:PORT, or try the job without a Kafka: --sample 20000"


class JobError(RuntimeError):
    """A job that cannot do its work; the message says what, where and what to do."""


def check_topics(kafka: Mapping[str, str]) -> None:
    """Ask the brokers for the topics that a job reads; ``kafka`` holds its source's options.

    Raises:
        OptionError: for an option of ``[kafka]`` that cannot be used.
        JobError: if no broker answers, or a topic is missing or may not be read.
    """
    options = SourceOptions.read(kafka)
    options.for_stream()
    planner = Planner(options)
    try:
        planner.refresh()
    except KafkaUnreachableError as error:
        raise JobError(f"{error} {_TRY}") from error
    except (MissingTopicError, PermissionError, KafkaError) as error:
        raise JobError(f"{error} (asked of Kafka at {options.settings.servers_text})") from error
    except OSError as error:
        raise JobError(f"cannot talk to Kafka at {options.settings.servers_text}: {error}") from error
    finally:
        planner.close()


def reason(error: BaseException) -> str:
    """Return the line of an error with its cause: of tracebacks in its text, that of the last."""
    text = str(error).strip()
    if _TRACEBACK in text:
        tail = text.rpartition(_TRACEBACK)[2].splitlines()
        said = next((line for line in tail if line.strip() and not line[0].isspace()), "")
        if said:
            return _MODULE.sub("", said)
    first = text.partition("\n")[0].strip()
    return first if isinstance(error, JobError) else f"{type(error).__name__}{': ' if first else ''}{first}"
