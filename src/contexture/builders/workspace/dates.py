"""Due dates as a user means them: a day has its own beginning and end, where the user is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from contexture.workspace import Block, due_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """The moments from `start` to `end`, exclusive; without a start, everything before the end."""

    end: datetime
    start: datetime | None = None

    @property
    def latest(self) -> datetime:
        """A moment that nothing in it is due at or behind, wherever the user is."""
        return self.end + timedelta(days=1)

    def holds(self, due: datetime) -> bool:
        """Whether a due moment is in it."""
        return due < self.end and (self.start is None or due >= self.start)


def due_in(block: Block, zone: tzinfo) -> datetime | None:
    """The moment at which a block becomes overdue: a day that is named without a time ends where the user is."""
    due = due_of(block)
    if due is not None and due.time() == time.max:
        return datetime.combine(due.date(), time.max, zone)
    return due


def overdue(now: datetime) -> Span:
    """Everything that was due before now."""
    return Span(end=now)


def days(now: datetime, zone: tzinfo, first: int, count: int) -> Span:
    """`count` days, beginning `first` days after today."""
    begin = now.astimezone(zone).date() + timedelta(days=first)
    return Span(start=_begin(begin, zone), end=_begin(begin + timedelta(days=count), zone))


def week(now: datetime, zone: tzinfo, ahead: int) -> Span:
    """The week from Monday to Sunday that is `ahead` weeks after this one."""
    return days(now, zone, 7 * ahead - now.astimezone(zone).weekday(), 7)


def _begin(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time.min, zone).astimezone(UTC)
