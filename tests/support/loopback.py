"""Imported into functions as they are deployed: their Admin SDK finds Google on loopback.

The product has no switch for that: the SDK's own addresses are changed before the first request.
"""

from __future__ import annotations

import os

from firebase_admin import _token_gen, _user_mgt, app_check, functions

from functions.identity import sdk, sdk_app_check

_google = os.environ["GOOGLE_ON_LOOPBACK"]
app_check._AppCheckService._JWKS_URL = f"{_google}/jwks"
app_check._AppCheckService._VERIFY_URL_FORMAT = f"{_google}/use?project={{project_id}}"
_token_gen.ID_TOKEN_CERT_URI = f"{_google}/certs"
_user_mgt.UserManager.ID_TOOLKIT_URL = f"{_google}/users?of="
functions._CLOUD_TASKS_API_URL_FORMAT = (
    f"{_google}/tasks?queue=" + functions._CLOUD_TASKS_API_RESOURCE_PATH
)
if seconds := os.environ.get("GOOGLE_CALL_SECONDS"):
    for module in (sdk, sdk_app_check):
        vars(module)["CALL_SECONDS"] = float(seconds)
