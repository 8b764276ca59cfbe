"""A page store over a workbench: the real index, search and region encoder, with small embedders."""

from __future__ import annotations

from pathlib import Path

from contexture.adapters.pages.regions import RegionEncoder
from contexture.pages.images import PageImages
from contexture.pages.store import PageStore, VisualSearch
from contexture.pages.visual import VisualPages
from contexture.testing.workbench import Parts, Workbench
from contexture.text.language import detect_language


def looks_over(bench: Workbench) -> VisualPages:
    """The search over what pages show."""
    return VisualPages(index=bench.index, encoder=RegionEncoder(Parts().encoders, detect_language))


def pages_over(bench: Workbench, folder: Path, visual: VisualSearch | None = None) -> PageStore:
    """A page store whose pictures lie in `folder`."""
    return PageStore(
        index=bench.index,
        preparer=bench.preparer,
        search=bench.search,
        rules=Parts().redactor.rules,
        images=PageImages(folder),
        counters=[Parts().counter],
        visual=visual or looks_over(bench),
    )
