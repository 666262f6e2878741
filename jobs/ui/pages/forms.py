"""What forms that change a cluster share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from sparkonce.jobs.shared.arguments import whole_number
from sparkonce.jobs.ui.page import RefusedError
from sparkonce.jobs.ui.site import Site

NOT_ALLOWED = "These pages may change nothing: start them with --allow-changes."


def changeable(site: Site) -> Mapping[str, str]:
    """Return the client's options, if pages may change the cluster. Raises RefusedError if not."""
    if not site.given.allow_changes:
        raise RefusedError(NOT_ALLOWED)
    return options_of(site)


def options_of(site: Site) -> Mapping[str, str]:
    """Return the client's options. Raises RefusedError without brokers."""
    if site.cluster is None:
        raise RefusedError("No brokers were named.")
    return site.cluster.options


def number_of(form: Mapping[str, str], name: str) -> int | None:
    """Return a whole number that a form has; None if the field is empty. Raises RefusedError if it is none."""
    text = form.get(name, "").strip()
    try:
        return whole_number(text) if text else None
    except argparse.ArgumentTypeError as error:
        raise RefusedError(f"{error}.") from error
