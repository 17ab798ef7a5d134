"""The closest known name to a misspelt one, within a budget of work."""

from __future__ import annotations

from collections.abc import Iterable

_WORK_MAX = 2_000_000  # pairs of characters, over all words of a file: well under a second


def _distance(a: str, b: str, limit: int) -> int:
    """Edits (insert, delete, replace, swap of neighbours) between two words, or limit + 1."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        row = [i]
        for j, cb in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (ca != cb))
            if i > 1 and j > 1 and ca == b[j - 2] and a[i - 2] == cb:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        before, last = last, row
    return last[-1]


class Suggester:
    """Finds close names; stops looking when a file with very many mistakes used up the budget."""

    def __init__(self, work_max: int = _WORK_MAX) -> None:
        self._left = work_max

    def closest(self, word: str, names: Iterable[str]) -> str:
        """The closest name, or "" if none is close."""
        word = word[:80]
        if not word:
            return ""
        folded = word.casefold().replace("-", "_")
        limit = max(1, len(word) // 3)
        best = ""
        for name in names:
            if self._left <= 0:
                break
            self._left -= 1
            if abs(len(name) - len(word)) > limit or name == word:
                continue
            self._left -= len(folded) * len(name)
            found = _distance(folded, name.casefold().replace("-", "_"), limit)
            if found <= limit:
                best, limit = name, found - 1
                if limit < 0:
                    break
        return best

    def did_you_mean(self, word: str, names: Iterable[str]) -> str:
        """The help line, or ""."""
        found = self.closest(word, names)
        return f"did you mean '{found}'?" if found else ""
