"""Check table cells against a list that was written by hand: `python scripts/check_table_cells.py FOLDER CELLS.tsv`.

Each line of the list has a file, a page, a label, words of the column's header, and the value as it is printed. A cell
holds if the page's text has a table row with this label and the value in a column whose header has these words. The
exit code is 1 if a cell does not hold.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from contexture.adapters.documents.file_types import read_document
from contexture.documents import ReadLimits

_CURRENCY = re.compile(r"^[(]?[$€£¥]\s?")


def normalize(text: str) -> str:
    """The text in lower case, with single spaces and one kind of apostrophe."""
    return " ".join(text.replace("’", "'").casefold().split())


def read_tables(markdown: str) -> list[list[list[str]]]:
    """The cells of each Markdown table, header first."""
    tables: list[list[list[str]]] = [[]]
    for line in markdown.split("\n"):
        if not line.startswith("|"):
            tables.append([])
        elif not re.fullmatch(r"[|\s:-]+", line):
            tables[-1].append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return [table for table in tables if table]


def has_cell(markdown: str, label: str, header: str, value: str) -> bool:
    """Whether a row with the label has the value in a column with these words in its header."""
    words = normalize(header).split()
    for head, *rows in read_tables(markdown):
        columns = [at for at, cell in enumerate(head) if all(word in normalize(cell) for word in words)]
        for row in rows:
            if normalize(row[0]).endswith(normalize(label)) and any(
                _CURRENCY.sub("", row[at]) == value for at in columns if at < len(row)
            ):
                return True
    return False


def check_cells(folder: Path, listed: Path) -> int:
    """Print the cells that do not hold and the total; return how many do not hold."""
    with listed.open(encoding="utf-8") as source:
        cells = list(csv.reader(source, delimiter="\t", quoting=csv.QUOTE_NONE))
    pages = {
        (name, page.number): page.text
        for name in sorted({cell[0] for cell in cells})
        for page in read_document(folder / name, name, ReadLimits(draw=False), lambda _done, _total: None).pages
    }
    missing = [cell for cell in cells if not has_cell(pages[cell[0], int(cell[1])], *cell[2:])]
    for cell in missing:
        print("missing  ", " | ".join(cell))
    print(f"{len(cells) - len(missing)} of {len(cells)} cells are in a row with their label and header")
    return len(missing)


if __name__ == "__main__":
    sys.exit(1 if check_cells(Path(sys.argv[1]), Path(sys.argv[2])) else 0)
