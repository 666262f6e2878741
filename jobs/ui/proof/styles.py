"""The style of the pictures that reports of the jobs draw too: their own rules, as a file that pages may load."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sparkonce.jobs.lab.story import drawing
from sparkonce.jobs.lab.verify.report import STYLE
from sparkonce.jobs.lab.verify.report_timeline import TIMELINE_STYLE

VARIABLES = """
:root { --commit: #2f6fdf; --kill: #b3161f }
@media (prefers-color-scheme: dark) { :root { --commit: #6ea8fe; --kill: #ff7b72 } }
"""


async def styles(_: Request) -> Response:
    """Return the rules."""
    return Response(VARIABLES + STYLE + TIMELINE_STYLE + drawing.STYLE, media_type="text/css")
