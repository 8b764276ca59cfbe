"""Page images in prompts: their token cost for each model family, and how they are attached to messages."""

import base64
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from contexture.types import Message

DEFAULT_PAGE_SIZE = (1_240, 1_754)
"""Image size in pixels assumed before a page is known, to reserve tokens: A4 at 150 dpi."""

_JPEG_SIZE_SEGMENTS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # JPEG segments that contain the image size
_JPEG_BARE_SEGMENTS = frozenset((0x01, *range(0xD0, 0xD9)))  # segments without a length


@dataclass(frozen=True, kw_only=True, slots=True)
class TileCost:
    """Cost by tiles: `base` tokens and `each` per tile, after scaling to fit `within` and the short side to `short`."""

    base: int
    each: int
    tile: int
    within: int = 0
    short: int = 0

    def tokens(self, width: int, height: int) -> int:
        """Return the token cost of an image of this size."""
        scale = min(1.0, self.within / max(width, height)) if self.within else 1.0
        if self.short:
            scale = min(scale, self.short / min(width, height))
        across, down = (math.ceil(side * scale / self.tile - 1e-9) for side in (width, height))
        return self.base + self.each * max(1, across) * max(1, down)


@dataclass(frozen=True, kw_only=True, slots=True)
class AreaCost:
    """Cost by area: one token per `pixels`, after the long side is scaled to at most `longest`."""

    pixels: int
    longest: int

    def tokens(self, width: int, height: int) -> int:
        """Return the token cost of an image of this size."""
        scale = min(1.0, self.longest / max(width, height))
        return math.ceil(width * scale * height * scale / self.pixels)


ImageCost: TypeAlias = TileCost | AreaCost

# The first pattern that matches a part of `litellm:provider/model` decides; without a match, no images are sent.
IMAGE_COSTS: tuple[tuple[str, ImageCost], ...] = (
    ("gpt-5*", TileCost(base=70, each=140, tile=512, within=2_048, short=768)),
    ("gpt-4o*", TileCost(base=85, each=170, tile=512, within=2_048, short=768)),
    ("gpt-4.1*", TileCost(base=85, each=170, tile=512, within=2_048, short=768)),
    ("o[134]*", TileCost(base=75, each=150, tile=512, within=2_048, short=768)),
    ("*claude-*", AreaCost(pixels=750, longest=1_568)),
    ("gemini-*", TileCost(base=0, each=258, tile=768)),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptImage:
    """A page image as JPEG, with the header of its source."""

    header: str
    jpeg: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels; `DEFAULT_PAGE_SIZE` if the JPEG does not contain them."""
        return read_jpeg_size(self.jpeg) or DEFAULT_PAGE_SIZE


def find_image_cost(model: str) -> ImageCost | None:
    """Return the image cost rule of a model; None if it accepts no images."""
    parts = [part for part in model.lower().replace("/", ":").split(":") if part]
    return next((cost for pattern, cost in IMAGE_COSTS if any(fnmatchcase(part, pattern) for part in parts)), None)


def read_jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height from a JPEG header; None if the data has none."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:  # noqa: PLR2004 - every segment begins with it
        kind = data[at + 1]
        if kind in _JPEG_SIZE_SEGMENTS:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return (width, height) if width and height else None
        at += 2 if kind in _JPEG_BARE_SEGMENTS else 2 + int(struct.unpack_from(">H", data, at + 2)[0])
    return None


def attach_images(messages: Sequence[Message], pictures: Sequence[PromptImage]) -> tuple[Message, ...]:
    """Append images to the question, each below its header."""
    if not pictures:
        return tuple(messages)
    *before, question = messages
    parts = [{"type": "text", "text": question["content"]}]
    shown = [part for picture in pictures for part in _content_parts(picture)]
    return (*before, {**question, "content": [*parts, *shown]})


def _content_parts(picture: PromptImage) -> list[dict[str, object]]:
    url = f"data:image/jpeg;base64,{base64.b64encode(picture.jpeg).decode()}"
    return [{"type": "text", "text": picture.header}, {"type": "image_url", "image_url": {"url": url}}]
