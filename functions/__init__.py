"""Agent Turns: agent turns that survive dropped connections and killed containers.

Data flows one way: request → identity → turn → journal → wire.

- `endpoints`: one file per deployed function; request in, response out.
- `identity`: who is calling.
- `turns`: the shared module: record, lease, journal, program, runner, follow, stream.
- `wire`: events as values and their SSE form; pure.
- `agents`: the agent this package serves; the folder users edit.
- `settings`, `secrets`, `errors`, `logs`, `firestore`: what all of them stand on.
"""
