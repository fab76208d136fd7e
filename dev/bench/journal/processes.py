"""The functions that are measured, with the benchmark's own agent; and what measures them."""

from __future__ import annotations

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from dev import containers, java
from dev.containers import Container

SERVED = Path(__file__).with_name("served.py")
THREADS = 64


def emulator_version() -> str:
    """Return what the emulator's jar calls itself, such as "cloud-firestore-emulator 1.19.9"."""
    words = subprocess.run(
        [java.locate(), "-jar", containers.jar(), "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    return words.stdout.strip().splitlines()[-1]


def function(
    name: str, storage: str, *, lease_seconds: float = 9
) -> AbstractContextManager[Container]:
    """Serve one function of the benchmark's `main`; `storage` is its FIRESTORE_EMULATOR_HOST."""
    settings = {
        "THREADS": str(THREADS),
        "LEASE_SECONDS": str(lease_seconds),
        # Empty means the default, whatever the caller of the benchmark has set.
        "FLUSH_SECONDS": "",
        "HEARTBEAT_SECONDS": "",
    }
    return containers.function(name, storage, settings, SERVED)
