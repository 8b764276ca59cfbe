"""Pictures of pages as JPEG, large and small; the only file that speaks Pillow's own language."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from contexture.errors import InvalidRequest

LARGEST = 1_600
"""Pixels of a picture's longer side."""

_THUMB = 240
_QUALITY = 72
_PIXELS = 80_000_000  # a bomb unpacks to more


def jpegs(picture: Image.Image) -> tuple[bytes, bytes]:
    """A page's picture and its small one, as JPEG files."""
    page = picture if picture.mode in {"L", "RGB"} else picture.convert("RGB")
    page = _within(page, LARGEST)
    return _jpeg(page), _jpeg(_within(page, _THUMB))


def opened(path: Path) -> list[Image.Image]:
    """The frames of an image file, upright, without transparency."""
    try:
        with Image.open(path) as image:
            frames = int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1
            if image.width * image.height > _PIXELS:
                raise InvalidRequest(f"the picture has {image.width} x {image.height} points: more than {_PIXELS}")
            return [_frame(image, at) for at in range(frames)]
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as failure:
        raise InvalidRequest(f"the picture cannot be read: {failure}") from failure


def _frame(image: Image.Image, at: int) -> Image.Image:
    image.seek(at)
    upright = ImageOps.exif_transpose(image)
    if upright.mode in {"L", "RGB"}:
        return upright.copy()
    over = upright.convert("RGBA")
    page = Image.new("RGB", over.size, "white")
    page.paste(over, mask=over.getchannel("A"))
    return page


def _within(picture: Image.Image, side: int) -> Image.Image:
    share = side / max(picture.size)
    if share >= 1:
        return picture
    return picture.resize(
        (max(int(picture.width * share), 1), max(int(picture.height * share), 1)), Image.Resampling.BILINEAR
    )


def _jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=_QUALITY)
    return out.getvalue()
