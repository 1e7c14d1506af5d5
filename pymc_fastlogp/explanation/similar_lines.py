"""Variables whose lines are alike, as one entry: names and numbers that differ become ranges."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

# Names in front of one sentence: a model may have hundreds of likelihoods that are alike.
MOST_NAMES = 5
NUMBER, WORD = re.compile(r"(\d+)"), re.compile(r"(\w+)")

type Line = tuple[str, ...]


def join_names(names: list[str]) -> str:
    """Return names with commas; of more than :data:`MOST_NAMES` the first ones, and a count."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def natural_order(name: str) -> list[int | str]:
    """Return a key by which ``y_2`` comes before ``y_10``."""
    return [int(x) if x.isdecimal() else x for x in NUMBER.split(name)]


def name_range(names: list[str], kind: str) -> str:
    """Return the first and the last of many names that differ in numbers alone, with their count; else an empty string."""
    if len(names) <= MOST_NAMES or len({*map(_without_numbers, names)}) > 1:
        return ""
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{names[0]} ... {names[-1]}, each of {len(names)} {plural}"


def _without_numbers(text: str) -> str:
    return NUMBER.sub("#", text)


def group_similar(
    said: Mapping[str, tuple[str, Sequence[Line]]],
) -> Iterator[tuple[list[str], str, list[Line]]]:
    """Yield variables of a kind with the same lines; of many variables, names and lines may differ in numbers.

    Parameters
    ----------
    said : mapping of str to (str, sequence of tuple of str)
        Kind and lines of each variable.

    Yields
    ------
    names : list of str
    kind : str
    lines : list of tuple of str
        Lines of all of these variables, with ranges for numbers that differ.
    """
    patterns = {name: _without_numbers(f"{name} {lines}") for name, lines in said.items()}
    counts = Counter(patterns.values())
    groups: dict[str, list[str]] = {}
    for name, pattern in patterns.items():
        key = pattern if counts[pattern] > MOST_NAMES else repr(said[name])
        groups.setdefault(key, []).append(name)
    for names in groups.values():
        names.sort(key=natural_order)
        by_line = zip(*(said[name][1] for name in names), strict=True)
        lines = [tuple(map(_merged, zip(*line, strict=True))) for line in by_line]
        yield names, said[names[0]][0], lines


def _merged(texts: Iterable[str]) -> str:
    """Return texts that differ in numbers as one: ``y_0 has 40 rows`` and others as ``y_0 ... y_9 has 37 to 44 rows``."""
    return "".join(map(_merged_word, zip(*(WORD.split(text) for text in texts), strict=True)))


def _merged_word(words: tuple[str, ...]) -> str:
    if len({*words}) == 1:
        return words[0]
    if all(word.isdecimal() for word in words):
        return f"{min(words, key=int)} to {max(words, key=int)}"
    return f"{words[0]} ... {words[-1]}"
