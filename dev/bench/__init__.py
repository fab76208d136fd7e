"""Benchmarks: each is a package of its own, run as `python -m dev.bench.NAME`."""
