"""Play the story, tell it on the terminal, and draw it: `python -m dev.survive --svg FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dev import command
from dev.survive import picture, story


def main() -> int:
    """Play it once; 1 if the client's text is not the journal's."""
    parser = argparse.ArgumentParser(prog="python -m dev.survive", description=__doc__)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the run to this file")
    options = parser.parse_args()
    run = story.play()
    if options.svg is not None:
        options.svg.parent.mkdir(parents=True, exist_ok=True)
        options.svg.write_text(picture.draw(run), "utf-8")
        print(f"Drawn to {options.svg}.")
    return 0 if run.check.passed else 1


if __name__ == "__main__":
    sys.exit(command.status(main))
