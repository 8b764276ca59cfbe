"""Helpers shared by embedders: encodable texts, unit vectors, and the calibration from cosine to similarity."""

from dataclasses import dataclass

import numpy as np

from contexture.types import Vector


@dataclass(frozen=True, slots=True)
class Calibration:
    """Increasing piecewise-linear map from cosines to the range 0 to 1.

    Each knot pairs a cosine with its similarity. Cosines beyond the first and last knots
    are clamped to the outer similarities.
    """

    knots: tuple[tuple[float, float], ...]

    def __call__(self, cosine: Vector) -> Vector:
        """Calibrated similarity of every cosine, in the same shape."""
        cosines, similarities = zip(*self.knots, strict=True)
        return np.interp(cosine, cosines, similarities).astype(np.float32)


# For embedders without a fitted calibration: negative cosines become 0, others are unchanged.
DEFAULT_CALIBRATION = Calibration(((0.0, 0.0), (1.0, 1.0)))


def normalize_vector(vector: Vector) -> Vector:
    """Vector scaled to length 1; a zero vector becomes the first unit axis, so that every text has a direction."""
    length = np.float32(np.linalg.norm(vector))
    if length > 0:
        return vector / length
    axis = np.zeros_like(vector)
    axis[0] = 1.0
    return axis


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates by `?`, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def truncate_at_space(text: str, characters: int) -> str:
    """First `characters` of a text, cut at white space if there is any in the last tenth."""
    if len(text) <= characters:
        return text
    cut = text[:characters]
    edge = max(cut.rfind(" "), cut.rfind("\n"))
    return cut[:edge] if edge >= characters * 9 // 10 else cut
