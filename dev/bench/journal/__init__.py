"""What the journal costs: `python -m dev.bench.journal` measures it beside plainer designs.

One module for each figure (`commit`, `writes`, `replay`, `latency`, `follow`, `takeover`) over
what they share: `processes` (the emulator and the functions), `main` (the functions under test,
with an agent whose tokens tell when they were emitted), `client`, `counting`, `baseline`, `report`.
"""
