"""Writes records into a store in PostgreSQL until it is killed, and says each that was acknowledged."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from pathlib import Path

from contexture import Record, Settings
from contexture.types import PUBLIC
from support.service import small_engine


async def main(url: str, folder: str) -> None:
    """Write for ever."""
    async with small_engine(Settings(home=Path(folder), store=url)) as engine:
        for number in count():
            name = f"r{number:04}"
            await engine.add([Record(id=name, text=f"The pump {name} leaks.", acl=(PUBLIC,))])
            sys.stdout.write(f"{name}\n")
            sys.stdout.flush()


asyncio.run(main(*sys.argv[1:]))
