"""The shared module of all functions: a turn's record, lease, journal, program and stream.

Pure deciding: `numbering`, `lease` (when it lapses), the codecs of `record`, `journal`, `steps`.
Owning a turn: `runner` starts `program` over `writer`, which appends to `journal` under `lease`.
Watching one: `stream` replays the journal, then reads the owner's live feed or follows.
"""
