"""How long something took, over many times; kept in three numbers, told in one log line."""

from __future__ import annotations


class Durations:
    """Counts, sums up and keeps the longest. Not thread safe."""

    def __init__(self) -> None:
        self.count = 0
        self._total = 0.0
        self._most = 0.0

    def add(self, seconds: float) -> None:
        """It took so long this time."""
        self.count += 1
        self._total += seconds
        self._most = max(self._most, seconds)

    def fields(self, name: str) -> dict[str, float]:
        """The mean as `{name}Seconds` and the longest as `{name}SecondsMost`; nothing if it never
        took place.
        """
        if not self.count:
            return {}
        return {
            f"{name}Seconds": round(self._total / self.count, 4),
            f"{name}SecondsMost": round(self._most, 4),
        }
