"""Make the site of these pages: `python docs/build.py FOLDER [--publish FOLDER]`, or `make docs`.

Every warning of Sphinx is an error: a link to a page or heading that is not there, a page that README.md does not
list. The site loads nothing from elsewhere, so that it works from a file system as from a server. `all_pages/` is one
page for printing. With `--publish`, the site also goes into a folder beside those of earlier versions, whose list is
made anew.
"""

from __future__ import annotations

import argparse
import html
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from packaging.version import Version

DOCS = Path(__file__).parent


def main() -> int:
    """Build; return the exit status of Sphinx."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the site goes; a site that is there is replaced")
    parser.add_argument("--publish", type=Path, metavar="FOLDER", help="the folder with a site for each version")
    options = parser.parse_args()
    for builder, folder in (("html", options.folder), ("singlehtml", options.folder / "all_pages")):
        published = ["--tag", "published"] if options.publish else []
        parsed = options.folder / ".doctrees"  # the pages are read once for both
        command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", *published, "-d", str(parsed)]
        status = subprocess.run([*command, "-b", builder, str(DOCS), str(folder)]).returncode
        if status:
            return status
    shutil.rmtree(parsed)
    whole = options.folder / "all_pages" / "index.html"
    whole.write_text(_with_distinct_anchors(whole.read_text()))
    if options.publish:
        _publish(options.folder, options.publish)
    return 0


def _with_distinct_anchors(whole: str) -> str:
    """Put the name of its page before each anchor: many pages have a heading "Limits", and Sphinx leaves them alike."""
    head, *rest = re.split(r'<span id="document-([^"]+)"></span>', whole)
    made = [_anchors_of("index", head)]
    for page, text in zip(rest[::2], rest[1::2], strict=True):
        made += [f'<span id="document-{page}"></span>', _anchors_of(page, text)]
    return "".join(made).replace('href="#document-index"', 'href="#"')


def _anchors_of(page: str, text: str) -> str:
    text = re.sub(r'<(section|span) id="([^"]+)"', rf'<\1 id="{page}--\2"', text)
    text = re.sub(r'href="#(?!document-|furo-main-content)([^"]+)"', rf'href="#{page}--\1"', text)
    return re.sub(r'href="#document-([^"#]+)#([^"]+)"', r'href="#\1--\2"', text)


def _publish(site: Path, published: Path) -> None:
    """Put the site beside those of other versions, and list them, the newest first."""
    shutil.copytree(site, published / version("sparkonce"), dirs_exist_ok=True)
    versions = [page.parent.name for page in published.glob("*/index.html")]
    versions.sort(key=Version, reverse=True)
    links = "\n".join(f'<li><a href="{html.escape(name)}/index.html">{html.escape(name)}</a></li>' for name in versions)
    (published / "versions.html").write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>sparkonce: versions of the documentation</title>"
        f"<h1>Versions of the documentation</h1>\n<ul>\n{links}\n</ul></html>\n"
    )
    newest = f"{html.escape(versions[0])}/index.html"
    (published / "index.html").write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>sparkonce</title>"
        f'<meta http-equiv=refresh content="0; url={newest}"><a href="{newest}">The newest version</a></html>\n'
    )


if __name__ == "__main__":
    sys.exit(main())
