"""The session helper refuses what Spark would pass over in silence."""

from __future__ import annotations

import pytest

from connectors.session import spark_session


def test_a_setting_without_a_dot_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'master' is not a Spark setting; .*'spark\.master'"):
        spark_session("etl", master="local[1]")
