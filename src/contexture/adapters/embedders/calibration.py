"""Unit vectors, and the maps from their cosines to similarities that mean the same for every embedder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contexture.types import Vector


@dataclass(frozen=True, slots=True)
class Calibration:
    """A rising piecewise-linear map from cosines to the range 0 to 1.

    Each knot pairs a cosine with its similarity. Cosines beyond the first and last knots
    keep the outer similarities, so the answer is always within them.
    """

    knots: tuple[tuple[float, float], ...]

    def __call__(self, cosine: Vector) -> Vector:
        """The calibrated similarity of every cosine, in the same shape."""
        cosines, similarities = zip(*self.knots, strict=True)
        return np.interp(cosine, cosines, similarities).astype(np.float32)


# For embedders whose cosines nobody has looked at: negative ones are nothing, the rest stays as it is.
UNFITTED = Calibration(((0.0, 0.0), (1.0, 1.0)))


def unit(vector: Vector) -> Vector:
    """The vector at length 1; a vector of zeros becomes the first axis, so that every text has a direction."""
    length = np.float32(np.linalg.norm(vector))
    if length > 0:
        return vector / length
    axis = np.zeros_like(vector)
    axis[0] = 1.0
    return axis
