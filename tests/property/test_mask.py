"""The promises of masking known secret values."""

from __future__ import annotations

from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from contexture.pipeline.masking import (
    SecretMask,
    StreamingSecretMask,
    expand_secrets,
    mask_secrets,
    secret_placeholder,
)

VALUES = st.text(alphabet="abX", max_size=5)
KNOWN = st.dictionaries(st.sampled_from(["K1", "K2", "K3", "K4"]), VALUES, max_size=4)
TEXTS = st.lists(st.text(alphabet="abX ", max_size=6) | st.sampled_from(["§§secret(K1)", "§§sec", "§"])).map("".join)


def cut(text: str, data: st.DataObject) -> list[str]:
    """The text in pieces, some of them empty."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@given(KNOWN, TEXTS, st.data())
def test_any_cutting_gives_the_masked_whole(known, text, data) -> None:
    """However a stream is cut, its joined output is the text masked at once."""
    stream = StreamingSecretMask(known)
    shown = "".join([*map(stream.feed, cut(text, data)), stream.flush()])

    assert mask_secrets(text, known) == shown


LONG_KNOWN = st.dictionaries(
    st.sampled_from(["K1", "K2"]), st.text(alphabet="abX %é\n", min_size=6, max_size=9), max_size=2
)


@given(LONG_KNOWN, st.data())
def test_any_cutting_gives_the_masked_whole_of_encoded_values(known, data) -> None:
    """Also where a cut goes through an escape, a line end or base64."""
    values = [value for value in known.values() if value] or ["abXabX"]
    value = st.sampled_from(values)
    written = st.one_of(
        value,
        value.map(str.upper),
        value.map(lambda text: quote(text, safe="")),
        value.map(lambda text: f"{text[:3]}\n {text[3:]}"),
        value.map(lambda text: b64encode(text.encode()).decode()),
        st.text(alphabet="abX %4\n\\", max_size=4),
    )
    text = "".join(data.draw(st.lists(written, max_size=4)))
    stream = StreamingSecretMask(known)
    shown = "".join([*map(stream.feed, cut(text, data)), stream.flush()])

    assert mask_secrets(text, known) == shown


@given(st.dictionaries(st.sampled_from(["K1", "K2"]), st.text(max_size=12), max_size=2), st.text())
def test_any_text_is_masked(known, text) -> None:
    """Whatever characters values and texts have, masking ends and finds the values as they are."""
    mask = SecretMask(known)
    shown = mask.mask(text + "".join(known.values()))

    assert isinstance(mask.mask_passage(text), str)
    assert not [value for value in known.values() if len(value) > 20 and value in shown]


@given(KNOWN, TEXTS)
@example({"K1": "ab", "K2": "abX"}, "aabXab")
def test_no_known_value_remains(known, text) -> None:
    """Outside placeholders the output holds no known value."""
    shown = mask_secrets(text, known)
    for key in known:
        shown = shown.replace(secret_placeholder(key), "\0")

    assert not [value for value in known.values() if value and value in shown]


@given(KNOWN, TEXTS)
def test_masking_twice_changes_nothing(known, text) -> None:
    """Placeholders of known keys are left alone."""
    once = mask_secrets(text, known)

    assert once == mask_secrets(once, known)


@given(KNOWN, TEXTS, st.data())
def test_nothing_is_held_back_without_need(known, text, data) -> None:
    """What a stream holds back is always the beginning of something known, and shorter than it."""
    forms = [*filter(None, known.values()), *map(secret_placeholder, known)]
    rest = ""
    for piece in cut(text, data):
        _, rest = SecretMask(known).mask_settled_part(rest + piece)
        folded = rest.lower()
        assert not rest or any(form.lower().startswith(folded) and len(form) > len(rest) for form in forms)


@pytest.mark.parametrize(
    ("known", "text", "shown"),
    [
        ({"DB": "hunter2"}, "use hunter2 now", "use §§secret(DB) now"),
        ({"A": "tok", "B": "token"}, "token tok", "§§secret(B) §§secret(A)"),
        ({"B": "same", "A": "same"}, "same", "§§secret(A)"),
        ({"A": ""}, "empty values are ignored", "empty values are ignored"),
        ({}, "nothing known", "nothing known"),
        ({"A": "a.c"}, "abc a.c", "abc §§secret(A)"),
        ({"A": "secret"}, "§§secret(A)", "§§secret(A)"),
        ({"A": "hunter2"}, "§§secret(hunter2)", "§§secret(§§secret(A))"),
    ],
)
def test_values_are_shown_as_their_keys(known: dict[str, str], text: str, shown: str) -> None:
    """The longest value wins, letter for letter, and a made-up placeholder hides nothing."""
    assert shown == mask_secrets(text, known)


def test_a_stream_shows_what_is_safe_at_once() -> None:
    """Only an end that may begin a value waits; a value cut in two is still masked."""
    stream = StreamingSecretMask({"DB": "hunter2"})

    assert ["say hello ", "", "§§secret(DB)!", ""] == [
        stream.feed("say hello hun"),
        stream.feed("ter"),
        stream.feed("2!"),
        stream.flush(),
    ]


def test_a_flushed_stream_starts_afresh() -> None:
    """What was held back is shown by `flush`, and does not leak into the next text."""
    stream = StreamingSecretMask({"DB": "hunter2"})
    stream.feed("hunt")

    assert "hunt" == stream.flush()
    assert "er2" == stream.feed("er2")


def test_masking_never_expands_a_placeholder() -> None:
    """A placeholder in a text stays a placeholder."""
    assert "§§secret(DB)" == mask_secrets("§§secret(DB)", {"DB": "hunter2"})


def test_only_expand_puts_values_in() -> None:
    """Known keys are expanded once; unknown ones stay."""
    known = {"DB": "§§secret(OTHER)", "OTHER": "value"}

    assert "§§secret(OTHER) value §§secret(NO)" == expand_secrets("§§secret(DB) §§secret(OTHER) §§secret(NO)", known)
