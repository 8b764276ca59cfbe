"""Progress is for people who watch."""

from __future__ import annotations

import io

from rich.console import Console

from contexture.cli import _output as output

TERMINAL = {"TERM": "xterm"}
"""Whatever this process was started in."""


def test_a_terminal_sees_a_bar_for_each_task(monkeypatch):
    """Tasks are named, and an unknown total does not stop them."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=60, _environ=TERMINAL)
    monkeypatch.setattr(output, "console", lambda *, err: terminal)
    with output.show_progress(as_json=False) as show:
        assert show is not None
        show("loading", 1, 2)
        show("loading", 2, 2)
        show("searching", 5, 0)

    assert "loading" in screen.getvalue()
    assert "searching" in screen.getvalue()


def test_a_task_that_is_done_in_one_step_has_a_rate(monkeypatch):
    """As the pages of a file have, which are written together."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, _environ=TERMINAL)
    monkeypatch.setattr(output, "console", lambda *, err: terminal)
    with output.show_progress(as_json=False) as show:
        assert show is not None
        show("writing pages", 0, 14)
        show("writing pages", 14, 14)

    assert "/s" in screen.getvalue()


def test_scripts_see_nothing(monkeypatch):
    """With `--json`, and where there is no terminal, nobody is told."""
    monkeypatch.setattr(output, "console", lambda *, err: Console(file=io.StringIO(), force_terminal=True))
    with output.show_progress(as_json=True) as json_show:
        assert json_show is None
    monkeypatch.setattr(output, "console", lambda *, err: Console(file=io.StringIO()))
    with output.show_progress(as_json=False) as piped_show:
        assert piped_show is None
