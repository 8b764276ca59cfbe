"""Pictures of pages for models that see: what each costs, by the rules of the model's family."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from contexture.types import Message

PAGE = (1_240, 1_754)
"""The size in pixels for which room is kept before a page is known: A4 at 150 dots an inch."""

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG segments that tell the size
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # segments without a length


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiles:
    """`base` tokens, and `each` for every tile of the picture once it fits `within` and its short side `short`."""

    base: int
    each: int
    tile: int
    within: int = 0
    short: int = 0

    def tokens(self, width: int, height: int) -> int:
        """What a picture of this size costs."""
        scale = min(1.0, self.within / max(width, height)) if self.within else 1.0
        if self.short:
            scale = min(scale, self.short / min(width, height))
        across, down = (math.ceil(side * scale / self.tile - 1e-9) for side in (width, height))
        return self.base + self.each * max(1, across) * max(1, down)


@dataclass(frozen=True, kw_only=True, slots=True)
class Area:
    """One token for every `pixels` of the picture once its long side is at most `longest`."""

    pixels: int
    longest: int

    def tokens(self, width: int, height: int) -> int:
        """What a picture of this size costs."""
        scale = min(1.0, self.longest / max(width, height))
        return math.ceil(width * scale * height * scale / self.pixels)


Cost: TypeAlias = Tiles | Area

# The first pattern that fits a part of `litellm:provider/model` decides; a model that fits none sees no pictures.
SEEING: tuple[tuple[str, Cost], ...] = (
    ("gpt-5*", Tiles(base=70, each=140, tile=512, within=2_048, short=768)),
    ("gpt-4o*", Tiles(base=85, each=170, tile=512, within=2_048, short=768)),
    ("gpt-4.1*", Tiles(base=85, each=170, tile=512, within=2_048, short=768)),
    ("o[134]*", Tiles(base=75, each=150, tile=512, within=2_048, short=768)),
    ("*claude-*", Area(pixels=750, longest=1_568)),
    ("gemini-*", Tiles(base=0, each=258, tile=768)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A page as a JPEG, under the header of its source."""

    header: str
    jpeg: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels; those of a page where the file does not say."""
        return jpeg_size(self.jpeg) or PAGE


def cost_of(model: str) -> Cost | None:
    """What pictures cost for a model; None when it sees none."""
    parts = [part for part in model.lower().replace("/", ":").split(":") if part]
    return next((cost for pattern, cost in SEEING if any(fnmatchcase(part, pattern) for part in parts)), None)


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Width and height that a JPEG says it has."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:  # noqa: PLR2004 - every segment begins with it
        kind = data[at + 1]
        if kind in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return (width, height) if width and height else None
        at += 2 if kind in _ALONE else 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return None


def with_pictures(messages: Sequence[Message], pictures: Sequence[Picture]) -> tuple[Message, ...]:
    """The prompt with pictures behind the question, each under its header."""
    if not pictures:
        return tuple(messages)
    *before, question = messages
    parts = [{"type": "text", "text": question["content"]}]
    shown = [part for picture in pictures for part in _parts(picture)]
    return (*before, {**question, "content": [*parts, *shown]})


def _parts(picture: Picture) -> list[dict[str, object]]:
    url = f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
    return [{"type": "text", "text": picture.header}, {"type": "image_url", "image_url": {"url": url}}]
