"""Reads image files, one page per frame, with words by OCR.

Decodes images and encodes page images as JPEG with Pillow.
"""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError

from contexture.adapters.documents.ocr import read_words
from contexture.adapters.documents.pdf.layout import RawPage, Rectangle, Word
from contexture.adapters.documents.pdf.pages import build_pages
from contexture.documents import Page, ReadDocument, ReadLimits
from contexture.errors import InvalidRequest, SourceUnavailable

_PAGE_WIDTH = 595.0  # points: the width of A4 paper


class ImageReader:
    """Implements `DocumentReader` for image files."""

    extensions = ("png", "jpg", "jpeg", "tif", "tiff", "webp", "bmp")

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read an image file, one page per frame; raises `InvalidRequest` if it cannot be decoded."""
        frames = load_frames(path)[: limits.pages]
        pages: list[Page] = []
        for number, frame in enumerate(frames, start=1):
            pages.append(_build_page(frame, number, draw=limits.draw))
            progress(number, len(frames))
        return ReadDocument(pages=tuple(pages))


def _build_page(frame: Image.Image, number: int, *, draw: bool) -> Page:
    height = _PAGE_WIDTH * frame.height / frame.width
    words, notes = _read_words_or_note(frame)
    sheet = RawPage(number, _PAGE_WIDTH, height, words, [], [Rectangle(0, 0, _PAGE_WIDTH, height)])
    image, thumb = encode_jpegs(frame) if draw else (b"", b"")
    page = build_pages([sheet])[0]
    return replace(page, image=image, thumb=thumb, scanned=True, notes=(*notes, *page.notes))


def _read_words_or_note(frame: Image.Image) -> tuple[list[Word], tuple[str, ...]]:
    try:
        return read_words(frame, _PAGE_WIDTH), ()
    except SourceUnavailable as missing:
        return [], (f"there is no text layer, and {missing}",)


MAX_IMAGE_SIDE = 1_600
"""Maximum pixels of the longer side of a page image."""

_THUMBNAIL_SIDE = 240
_JPEG_QUALITY = 72
_MAX_PIXELS = 80_000_000  # protects against decompression bombs


def encode_jpegs(picture: Image.Image) -> tuple[bytes, bytes]:
    """Page image and thumbnail as JPEG files."""
    page = picture if picture.mode in {"L", "RGB"} else picture.convert("RGB")
    page = _shrink_to(page, MAX_IMAGE_SIDE)
    return _encode_jpeg(page), _encode_jpeg(_shrink_to(page, _THUMBNAIL_SIDE))


def load_frames(path: Path) -> list[Image.Image]:
    """Frames of an image file, upright and without transparency; raises `InvalidRequest`."""
    try:
        with Image.open(path) as image:
            frames = int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1
            if image.width * image.height > _MAX_PIXELS:
                raise InvalidRequest(
                    f"the picture has {image.width} x {image.height} pixels; the limit is {_MAX_PIXELS} in all"
                )
            return [_load_frame(image, at) for at in range(frames)]
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError) as failure:
        raise InvalidRequest(f"the picture cannot be read: {failure}") from failure


def _load_frame(image: Image.Image, at: int) -> Image.Image:
    image.seek(at)
    upright = ImageOps.exif_transpose(image)
    if upright.mode in {"L", "RGB"}:
        return upright.copy()
    over = upright.convert("RGBA")
    page = Image.new("RGB", over.size, "white")
    page.paste(over, mask=over.getchannel("A"))
    return page


def _shrink_to(picture: Image.Image, side: int) -> Image.Image:
    share = side / max(picture.size)
    if share >= 1:
        return picture
    return picture.resize(
        (max(int(picture.width * share), 1), max(int(picture.height * share), 1)), Image.Resampling.BILINEAR
    )


def _encode_jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=_JPEG_QUALITY)
    return out.getvalue()
