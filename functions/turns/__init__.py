"""The shared module of all functions: a turn's record, lease, journal, program and stream.

Letting a request in: `admission`, and `creation` for a turn that is new.
Pure deciding: `numbering`, `lease` (when it lapses), the codecs of `record`, `journal`, `steps`.
Owning a turn: `takeover` takes the lease, `runner` starts `program` over `writer`, which shows on
the `feed` and appends to the `journal`. Tool steps: `tools` declares, `ledger` runs, `transact` is
for those whose effect is a write. Taking a turn away: `cancel`. Deciding a waiting step: `decide`.
Watching a turn: `stream` replays the journal, then reads the owner's live feed or follows.
"""
