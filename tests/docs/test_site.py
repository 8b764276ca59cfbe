"""The documentation as a site: it builds without a warning and asks nobody for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//([^\"'/ >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built in a process of its own; it and its theme would both write to ours."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # noqa: TID251 - a process needs one
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_becomes_one_of_the_site(site):
    """No page is left out, and none has a link that leads nowhere."""
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}

    assert {path for path in pages if path.name != "README.html"} <= built


def test_pages_fetch_nothing_from_elsewhere(site):
    """Scripts, styles, fonts and pictures are the site's own, so that it can be read offline."""
    hosts = {host for page in site.rglob("*.html") for host in FETCHED.findall(page.read_text())}

    assert hosts == set()


def test_the_page_of_public_names_tells_what_they_are(site):
    """Each name stands there with its docstring."""
    page = (site / "api.html").read_text()

    assert ":::" not in page
    assert "Open a store and everything around it." in page
