"""The demo page's bundle: `python3 -m dev.page` builds `page/` into `public/assets`.

`make dev` does it before the suite starts, and `firebase deploy` before it uploads the page.
"""

from __future__ import annotations

import sys

from dev import command, node, progress
from dev.project import ROOT

ASSETS = ROOT / "public" / "assets"
LOCAL = ASSETS / "local.json"
"""Tells the page of a local stack where its control server listens."""


def build() -> None:
    """Build the page anew, from installed packages.

    Raises:
        ProblemError: its source has an error.
    """
    progress.run(
        "Building the demo page",
        [node.locate(), "build.mjs", str(ASSETS)],
        cwd=node.PAGE,
        on_failure="The demo page could not be built; the reason is above.",
    )


def main() -> int:
    """Install and build, as before a deployment; return an exit status."""
    node.ensure_packages(node.CLIENT, "the client's packages")
    node.ensure_packages(node.PAGE, "the demo page's packages")
    build()
    return 0


if __name__ == "__main__":
    sys.exit(command.status(main))
