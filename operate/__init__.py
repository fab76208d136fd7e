"""The operator's command line: what became of a turn, which turns need somebody, what they cost.

    venv/bin/python -m operate --help

Not uploaded. `reading` asks Firestore; `timeline`, `lists` and `cost` make lines of what it found,
and are pure; `annotate` writes an operator's note, and `delete` calls the package's own deletion.
"""
