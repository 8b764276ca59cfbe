"""What a sensitive value is replaced with: a placeholder that can be undone, a mask, or a salted hash."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from contexture.types import Span

LITERAL = "LITERAL"
_PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]{0,63}_[0-9]{1,9}>")
_NOT_IN_NAMES = re.compile("[^A-Z0-9]+")
_LONGEST_NAME = 48
_HASH_LENGTH = 12


class Operator(Protocol):
    """Decides what stands in the place of a value."""

    def hide(self, label: str, value: str) -> str:
        """The text to show instead; equal values of one label give equal texts."""
        ...

    def lookalikes(self, text: str) -> Sequence[Span]:
        """Stretches of untrusted `text` that could pass for something this operator wrote."""
        ...


class Placeholders:
    """Replaces values with `<EMAIL_1>` and puts them back; the same value always gets the same placeholder.

    The values live in this object only. It cannot be pickled, copied or turned into JSON, and prints as counts, so
    that it never leaves the process. Text that already contains something like `<EMAIL_1>` gets a placeholder of its
    own for it: nobody can write a placeholder and be given the value behind it.

    hidden = Placeholders()
    hidden.hide("EMAIL", "anna@example.org")     # '<EMAIL_1>'
    hidden.restore("mail <EMAIL_1> today")       # 'mail anna@example.org today'
    """

    __slots__ = ("_counts", "_issued", "_values")

    def __init__(self) -> None:
        self._issued: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def hide(self, label: str, value: str) -> str:
        """The placeholder of this value."""
        known = self._issued.get((label, value))
        if known is not None:
            return known
        name = _name(label)
        self._counts[name] = self._counts.get(name, 0) + 1
        placeholder = f"<{name}_{self._counts[name]}>"
        self._issued[label, value] = placeholder
        self._values[placeholder] = value
        return placeholder

    def restore(self, text: str) -> str:
        """`text` with every placeholder issued here replaced by its value, in one pass."""
        return _PLACEHOLDER.sub(lambda match: self._values.get(match[0], match[0]), text)

    def lookalikes(self, text: str) -> Sequence[Span]:
        """Everything in `text` that has the form of a placeholder."""
        if "<" not in text:
            return ()
        return [Span(match.start(), match.end(), LITERAL) for match in _PLACEHOLDER.finditer(text)]

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        counts = ", ".join(f"{label}: {count}" for label, count in sorted(self._counts.items()))
        return f"Placeholders({counts})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the values behind placeholders never leave the process")


def _name(label: str) -> str:
    """A redactor's label in the letters that `restore` looks for, whoever wrote the redactor."""
    name = _NOT_IN_NAMES.sub("_", label.upper()).strip("_")[:_LONGEST_NAME]
    return name if name and name[0].isalpha() else f"VALUE_{name}".rstrip("_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Masked:
    """Replaces a value with `****` and its last `keep` characters; short values are hidden whole.

    Masked().hide("CARD", "4111111111111111")    # '****1111'
    """

    keep: int = 4

    def hide(self, label: str, value: str) -> str:
        """Four stars, and the end of a value at least three times as long as what is kept."""
        del label
        return "****" + (value[-self.keep :] if self.keep and len(value) >= 3 * self.keep else "")

    def lookalikes(self, text: str) -> Sequence[Span]:
        """None: a mask stands for nothing that could be had back."""
        del text
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Hashed:
    """Replaces a value with a keyed hash, equal across builds that share the salt: `<EMAIL:5a1e…>`.

    The salt keeps others from hashing likely values until one fits; keep it secret.
    """

    salt: bytes = field(repr=False)

    def hide(self, label: str, value: str) -> str:
        """The label and the first hexadecimal digits of an HMAC."""
        message = f"{label}\0{value}".encode("utf-8", "surrogatepass")
        return f"<{label}:{hmac.new(self.salt, message, hashlib.sha256).hexdigest()[:_HASH_LENGTH]}>"

    def lookalikes(self, text: str) -> Sequence[Span]:
        """None: a hash stands for nothing that could be had back."""
        del text
        return ()
