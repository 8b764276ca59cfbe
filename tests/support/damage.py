"""Damages files of a store as a bad sector, a lost write or a careless copy would."""

from __future__ import annotations

from pathlib import Path

PAGE = 4_096
FRAME = 24 + PAGE
"""Bytes of a frame of the write-ahead log."""

_TABLE_LEAF = 0x0D
_GARBAGE = b"\xa5" * PAGE


def overwrite_leaf_page(path: Path) -> None:
    """Overwrite the page in the middle of a database that holds rows of a table."""
    data = path.read_bytes()
    leaves = [at for at in range(PAGE, len(data), PAGE) if data[at] == _TABLE_LEAF]
    overwrite_bytes(path, leaves[len(leaves) // 2], _GARBAGE)


def overwrite_bytes(path: Path, at: int, data: bytes) -> None:
    """Overwrite some bytes in place."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def cut_in_half(path: Path) -> None:
    """Cut a file to half of its pages."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 // PAGE * PAGE)


def remove_every_byte(path: Path) -> None:
    """Leave the name of a file alone, as a power failure may."""
    path.write_bytes(b"")


def zero_header(path: Path) -> None:
    """Zero the 100 bytes that tell SQLite what the file is."""
    overwrite_bytes(path, 0, bytes(100))


def zero_first_page(path: Path) -> None:
    """Zero the page that holds the header and the schema."""
    overwrite_bytes(path, 0, bytes(PAGE))
