"""Valid Unicode: texts from JSON and file names may hold surrogates, which UTF-8 cannot encode."""


def is_valid_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def repair_text(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    return text if is_valid_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
