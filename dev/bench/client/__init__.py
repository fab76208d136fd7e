"""What a fast stream costs a page: `python -m dev.bench.client` measures it in Chromium.

`server` streams tokens at a rate, `measure` runs the pages of `page/bench` and reads figures,
`report` makes the tables.
"""
