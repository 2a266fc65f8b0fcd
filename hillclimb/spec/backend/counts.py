"""Counts in sentences: one engine, two engines."""


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, which has an s unless the number is one."""
    return f"{number:g} {noun}{either(number, '', 's')}"


def either(number: float, one: str, many: str) -> str:
    """Return the word for one of something, or the word for any other number."""
    return one if number == 1 else many
