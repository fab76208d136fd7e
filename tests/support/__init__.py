"""Real faults for tests: a gRPC proxy, a TCP proxy, and a strict reader of our streams.

Nothing here replaces a part of the product. `firestore_proxy` loses, delays and refuses real calls
to the emulator, `tcp_proxy` cuts and stalls real connections, and `sse` keeps what really arrived.
"""
