"""The README's picture, made from a real run: `python -m dev.survive`.

`story` plays and records it, `picture` draws what was recorded. `containers` are the processes,
`proxy` cuts the socket, `client` reads the stream, `storage` reads the documents.
"""
