"""On the Emulator Suite: unsigned tokens, and the guard that keeps them there."""

from __future__ import annotations

import pytest

from dev import token
from functions.errors import SignInRequired
from functions.identity.caller import Caller
from tests.conftest import Serve
from tests.identity.conftest import LET_IN, UNKNOWN, Answer, asked, call, warmed
from tests.support.client import app_check, id_token
from tests.support.server import FunctionServer

pytestmark = pytest.mark.emulator


def resumed(server: FunctionServer) -> Answer:
    """A call that is let in."""
    return call(server, app=app_check(), bearer=id_token("ada"))


@pytest.fixture(scope="module")
def strict(module_serve: Serve) -> FunctionServer:
    """`resume_turn` as deployed by default: a user must be signed in."""
    return warmed(module_serve("resume_turn", REQUIRE_AUTH="true"), resumed)


@pytest.fixture(scope="module")
def loose(module_serve: Serve) -> FunctionServer:
    """`resume_turn` with REQUIRE_AUTH=false."""
    return warmed(module_serve("resume_turn", REQUIRE_AUTH="false"), resumed)


def answer(server: FunctionServer, authorization: str | None) -> tuple[int, str]:
    """The status and code of a resume of a turn that nobody has."""
    return asked(lambda: call(server, app=app_check(), authorization=authorization)).outcome


FAILED, REQUIRED = (401, "sign_in_failed"), (401, "sign_in_required")


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        (f"Bearer {id_token('ada')}", UNKNOWN),
        (f"bearer  {id_token('ada')}", UNKNOWN),
        (f"Bearer {id_token('ünï')}", UNKNOWN),
        (f"Bearer {id_token('ada', ttl=-90)}", FAILED),  # and older, when it is sent
        (f"Bearer {id_token('ada', project='demo-other')}", FAILED),
        (f"Bearer {id_token('')}", FAILED),
        (f"Bearer {id_token('x' * 129)}", FAILED),
        (f"Bearer {id_token(chr(0xD800))}", FAILED),
        ("Bearer", FAILED),
        ("Bearer garbage", FAILED),
        ("Bearer a.b.c", FAILED),
        ("Bearer e30.e30.", FAILED),
        ("Bearer W10.W10.", FAILED),
        (f"Bearer {'x' * 6000}", FAILED),
        (f"Bearer {token.encode({'sub': 'ada'})}", FAILED),
        (f"Bearer {token.encode({'aud': [], 'exp': 'x'})}", FAILED),
        ("Basic YWRhOnB3", FAILED),
        (f"Token {id_token('ada')}", FAILED),
        (id_token("ada"), FAILED),
    ],
)
def test_what_is_sent_is_verified_whether_required_or_not(
    strict: FunctionServer, loose: FunctionServer, authorization: str, expected: tuple[int, str]
) -> None:
    """A bad ID token never passes for none, and never is a 500."""
    assert answer(strict, authorization) == expected
    assert answer(loose, authorization) == expected


def test_clocks_may_differ_a_little(strict: FunctionServer) -> None:
    """A token that is just over is taken."""
    assert answer(strict, f"Bearer {id_token('ada', ttl=-30)}") == UNKNOWN


def test_no_id_token_is_refused_where_one_is_required(
    strict: FunctionServer, loose: FunctionServer
) -> None:
    """And nowhere else; an empty header is none."""
    for missing in (None, ""):
        assert answer(strict, missing) == REQUIRED
        assert answer(loose, missing) == UNKNOWN


def test_a_refused_sign_in_uses_no_app_check_token_up(strict: FunctionServer) -> None:
    """The client refreshes its ID token, and tries again with the same App Check token."""

    def refused_then_served() -> Answer:
        app = app_check()
        assert call(strict, app=app, bearer=id_token("ada", ttl=-90)).outcome == FAILED
        return call(strict, app=app, bearer=id_token("ada"))

    assert asked(refused_then_served).outcome == UNKNOWN


def test_what_only_a_user_has_asks_for_one_before_the_token_is_used_up(
    module_serve: Serve,
) -> None:
    """Also where REQUIRE_AUTH=false lets others in elsewhere."""
    sessions, starter = module_serve("turn_sessions"), module_serve("start_turn")
    in_session = b'{"prompt": "[]", "sessionId": "a"}'

    def look() -> Answer:
        app = app_check()
        assert call(sessions, app=app).outcome == REQUIRED
        return call(sessions, app=app, bearer=id_token("ada"))

    def begin() -> Answer:
        app = app_check()
        assert call(starter, app=app, body=in_session).outcome == REQUIRED
        return call(starter, app=app, body=b'{"prompt": "[]"}')

    assert asked(look).status == 200
    assert asked(begin).status == 200


@pytest.mark.parametrize(
    "environ",
    [
        {"FUNCTIONS_EMULATOR": "false"},
        {"GCLOUD_PROJECT": "real-project"},
        {"K_SERVICE": "start-turn"},
        {"K_SERVICE": "start-turn", "K_REVISION": "start-turn-00001-abc"},
        {"K_SERVICE": "x", "K_REVISION": "1", "K_CONFIGURATION": "x"},
    ],
)
def test_no_unsigned_token_passes_outside_the_emulator(
    module_serve: Serve, environ: dict[str, str]
) -> None:
    """Neither the stand-in's nor, where FIREBASE_AUTH_EMULATOR_HOST is set by mistake, a user's."""
    without = {**environ, "FIREBASE_AUTH_EMULATOR_HOST": ""}
    ada = f"Bearer {id_token('ada')}"
    assert answer(module_serve("resume_turn", **without), ada) == (401, "app_check_failed")
    assert answer(module_serve("resume_turn", **environ), ada) == (503, "not_configured")


def test_without_the_auth_emulator_an_id_token_is_not_configured(module_serve: Serve) -> None:
    """It says so, rather than ask Google about unsigned tokens; others are served."""
    server = module_serve("resume_turn", FIREBASE_AUTH_EMULATOR_HOST="")
    assert answer(server, f"Bearer {id_token('ada')}") == (503, "not_configured")
    assert answer(server, None) in LET_IN


def test_a_users_turns_belong_to_the_user_from_every_app() -> None:
    """Without a user they belong to the app and whoever knows the turn id; the kinds never meet."""
    assert Caller("web", "ada").owner_of("t1") == Caller("ios", "ada").owner_of("t2") == "uid:ada"
    assert Caller("web").owner_of("t1") == "app:web:t1"
    assert Caller("web", "ada").require_uid() == "ada"
    with pytest.raises(SignInRequired):
        Caller("web").require_uid()
