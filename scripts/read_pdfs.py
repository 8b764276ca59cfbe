"""Read every PDF under a folder and report failures, empty pages and times: `python scripts/read_pdfs.py FOLDER`.

A page is empty if PDFium finds a word on it and the page that was read has no text. The exit code is 1 if a file failed
with an error of this package, if a page is degraded, or if a page is empty.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pypdfium2

from contexture.adapters.documents.file_types import read_document
from contexture.documents import Page, ReadLimits
from contexture.errors import InvalidRequest

_WORD = re.compile(r"\w{3}")


def count_empty_pages(path: Path, pages: tuple[Page, ...]) -> list[int]:
    """Numbers of the pages that have words in the file, but no text after reading."""
    blank = [page.number for page in pages if not page.text.strip() and not page.furniture.strip()]
    if not blank:
        return []
    document: Any = pypdfium2.PdfDocument(path)
    return [number for number in blank if _WORD.search(document[number - 1].get_textpage().get_text_range())]


def read_folder(folder: Path) -> int:
    """Read the files, print a line for each that shows something, and return the number of faults."""
    files = sorted(folder.rglob("*.pdf"))
    refused = failed = degraded = empty = pages = 0
    seconds = 0.0
    slowest = (0.0, "")
    for path in files:
        start = time.perf_counter()
        try:
            read = read_document(path, path.name, ReadLimits(draw=False), lambda _done, _total: None)
        except InvalidRequest as refusal:
            refused += 1
            print(f"refused   {path}: {refusal}")
            continue
        except Exception:  # noqa: BLE001 - finding any error is the purpose of this script
            failed += 1
            print(f"FAILED    {path}: {traceback.format_exc(limit=-2)}")
            continue
        spent = time.perf_counter() - start
        seconds, pages = seconds + spent, pages + len(read.pages)
        slowest = max(slowest, (spent / len(read.pages), str(path)))
        notes = [page for page in read.pages if any("layout" in note for note in page.notes)]
        blank = count_empty_pages(path, read.pages)
        degraded, empty = degraded + len(notes), empty + len(blank)
        for page in notes[:3]:
            print(f"DEGRADED  {path} page {page.number}: {'; '.join(page.notes)}")
        if blank:
            print(f"EMPTY     {path} pages {blank}")
        for bad in read.bad[:3]:
            print(f"bad page  {path} page {bad.number}: {bad.reason}")
    print(f"{len(files)} files, {pages} pages, {1e3 * seconds / max(pages, 1):.1f} ms a page")
    print(f"{failed} failed, {refused} refused, {degraded} pages degraded, {empty} pages empty")
    print(f"slowest: {1e3 * slowest[0]:.0f} ms a page in {slowest[1]}")
    return failed + degraded + empty


if __name__ == "__main__":
    sys.exit(1 if read_folder(Path(sys.argv[1])) else 0)
