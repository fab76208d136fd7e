"""Where a script waits, so that what befalls its owner befalls it there."""

from __future__ import annotations

from pathlib import Path


class Gate:
    """A file that a script, or the tool it calls, waits for the end of: an owner that stands there
    is lost there, however busy the machine is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def __str__(self) -> str:
        """The file, for a tool."""
        return str(self._path)

    @property
    def action(self) -> list[str]:
        """For a script."""
        return ["hold", str(self)]

    def open(self) -> None:
        """Let all go on who wait, or come to wait. Harmless twice."""
        self._path.unlink(missing_ok=True)
