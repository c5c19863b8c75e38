"""The legal form nearest to a schedule expression that is none."""

import re
from difflib import get_close_matches
from unicodedata import normalize

__all__ = ["nearest_form"]

_TIME = re.compile(r"(\d{1,2})(?:\s*[:.h]\s*(\d{2}))?\s*([ap]\.?m\b)?", re.ASCII)
_WEEKDAYS = {
    "mon": "1",
    "tue": "2",
    "wed": "3",
    "thu": "4",
    "fri": "5",
    "sat": "6",
    "sun": "0",
    "weekday": "1-5",
    "workday": "1-5",
    "weekend": "0,6",
    "weekly": "1",
    "week": "1",
}
_FORMS = (
    "every 30 minutes",
    "every minute",
    "every 2 hours",
    "every hour",
    "daily at 07:00",
    "every day at 07:00",
    "0 7 * * 1-5",
)


def nearest_form(text: str) -> str:
    """A legal expression that `text` may have meant.

    It is a guess for people to judge; nothing acts on it.
    """
    plain = " ".join(normalize("NFKC", text[:200]).lower().split())
    number = int(found.group()) if (found := re.search(r"\d{1,4}", plain, re.ASCII)) else 1
    if found := re.search(r"\b(month|mon|tue|wed|thu|fri|sat|sun|week|workday)[a-z]*", plain):
        hour, minute = _time_of_day(plain)
        if found[1] == "month":
            return f"{minute} {hour} 1 * *"
        days = _WEEKDAYS.get(found[0]) or _WEEKDAYS.get(found[0].rstrip("s")) or _WEEKDAYS[found[1]]
        return f"{minute} {hour} * * {days}"
    if re.search(r"\bat\b|\bdaily\b|\bday\b|\bnoon\b|midnight|\d:\d|\d\s*[ap]m\b", plain):
        hour, minute = _time_of_day(plain)
        return f"daily at {hour:02}:{minute:02}"
    if re.search(r"\bdays\b|\d\s*d\b", plain):
        return "daily at 07:00" if number < 2 else f"every {24 * min(number, 365)} hours"
    if re.search(r"hour|\bhr|\d\s*h\b", plain):
        return "every hour" if number < 2 else f"every {min(number, 8760)} hours"
    if re.search(r"\bsec|\d\s*s\b", plain):
        return "every minute" if number < 120 else f"every {number // 60} minutes"
    if re.search(r"min|\d\s*m\b", plain):
        return "every minute" if number < 2 else f"every {number} minutes"
    return get_close_matches(plain, _FORMS, n=1, cutoff=0.0)[0]


def _time_of_day(plain: str) -> tuple[int, int]:
    if "noon" in plain:
        return 12, 0
    if "midnight" in plain:
        return 0, 0
    found = _TIME.search(plain)
    if found is None:
        return 7, 0
    hour, minute = int(found[1]), int(found[2] or 0)
    if found[3]:
        hour = hour % 12 + (12 if found[3].startswith("p") else 0)
    return hour % 24, min(minute, 59)
