"""What the demo draws while it runs."""

from __future__ import annotations

import io

from rich.console import Console

from sparkonce.jobs.demo.show import progress
from tests.cases import each_case


@each_case("width", [60, 80, 120])
def test_a_bar_keeps_its_numbers_whole(width: int) -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=width, color_system=None)
    with progress(console, "Spark job, to be killed at source.offsets-planned@12", 336_776) as update:
        update(123_456)
    assert "123456/336776 0:" in drawn.getvalue()
    assert "Spark job" in drawn.getvalue()
