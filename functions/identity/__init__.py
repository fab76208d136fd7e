"""Who is calling: the genuine app (App Check), and on whose behalf (Firebase Auth).

- `caller`: the gate of every function, and who owns a turn.
- `app_check`, `auth`: the tokens, as verified in production.
- `sdk`, `sdk_app_check`, `sdk_auth`: the Admin SDK under our bounds; imported at first use.
- `local_app_check`: the stand-in for App Check on the Emulator Suite, and where that is.
- `tokens`: the form of a JWT, read without trusting it.
"""
