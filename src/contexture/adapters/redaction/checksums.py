"""Check digits of the numbers that carry them; each function takes the number as written, separators included."""

from __future__ import annotations

from itertools import starmap
from operator import mul

_INN_10 = (2, 4, 10, 3, 5, 9, 4, 6, 8)
_INN_11 = (7, *_INN_10)
_INN_12 = (3, *_INN_11)
_SNILS = (9, 8, 7, 6, 5, 4, 3, 2, 1)


def digits(text: str) -> tuple[int, ...]:
    """The ASCII digits of `text`, in order."""
    return tuple(int(char) for char in text if "0" <= char <= "9")


def passes_luhn(text: str) -> bool:
    """Whether the last digit is the Luhn check digit of the others; one repeated digit never is."""
    found = digits(text)[::-1]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in found[1::2])
    return len(set(found)) > 1 and (sum(found[0::2]) + doubled) % 10 == 0


def passes_mod97(text: str) -> bool:
    """Whether an IBAN leaves 1 when divided by 97, letters counted from A as 10."""
    compact = "".join(char for char in text if char.isalnum()).upper()
    turned = compact[4:] + compact[:4]
    return turned.isascii() and int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _weighed(weights: tuple[int, ...], found: tuple[int, ...]) -> int:
    return sum(starmap(mul, zip(weights, found, strict=False)))


def passes_inn(text: str) -> bool:
    """Whether a Russian taxpayer number of 10 or 12 digits has the right check digits."""
    found = digits(text)
    if not any(found):
        return False
    if len(found) == len(_INN_10) + 1:
        return _weighed(_INN_10, found) % 11 % 10 == found[9]
    if len(found) == len(_INN_12) + 1:
        return (_weighed(_INN_11, found) % 11 % 10, _weighed(_INN_12, found) % 11 % 10) == found[10:]
    return False


def passes_snils(text: str) -> bool:
    """Whether a Russian insurance number of 11 digits has the right two check digits."""
    found = digits(text)
    if len(found) != len(_SNILS) + 2 or not any(found):
        return False
    return _weighed(_SNILS, found) % 101 % 100 == 10 * found[9] + found[10]
