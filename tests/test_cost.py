"""The arithmetic of docs/guides/cost.md is that of dev/bench/cost.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dev.bench.cost import Prices, Turn, reckon, table

GUIDE = (Path(__file__).parents[1] / "docs" / "guides" / "cost.md").read_text()


def measured() -> Turn:
    """The turn that the guide tells of."""
    match = re.search(r"Measured: Turn\((.+)\)", GUIDE)
    assert match is not None
    values = dict(pair.split("=") for pair in match[1].split(", "))
    return Turn(
        seconds=float(values.pop("seconds")), **{name: int(one) for name, one in values.items()}
    )


def test_the_guide_s_table_follows_from_its_turn_and_the_prices() -> None:
    """So whoever changes a price writes it anew."""
    assert table(measured(), Prices()) in GUIDE


def test_the_guide_s_rule_of_thumb_fits_the_measured_turn() -> None:
    """400 words at 50 a second are 8 s of text; one tool, two model steps."""
    turn = measured()
    rule = 3 * 8 + 0.33 * turn.seconds + 4 * 1 + 2 * 2 + 6
    assert turn.writes == pytest.approx(rule, rel=0.25)


def test_only_the_container_s_time_depends_on_how_full_it_is() -> None:
    """Twenty streams share it."""
    busy, alone = (reckon(measured(), Prices(), streams=count) for count in (20, 1))
    differ = [
        (a, b) for a, b in zip(busy.values(), alone.values(), strict=True) if a != pytest.approx(b)
    ]
    ((shared, whole),) = differ
    assert whole == pytest.approx(20 * shared)
