"""The production path: real RS256 keys, Google's side on loopback, functions-framework processes.

Each token comes to its status; what keeps Google away is 503, and never a bad token.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Serve
from tests.identity.conftest import LET_IN, ORIGIN, UNKNOWN, Answer, asked, call, warmed
from tests.support.client import app_check as local_app_check
from tests.support.client import id_token as local_id_token
from tests.support.client import new_turn_id
from tests.support.google import KID, PROJECT, Google, User
from tests.support.server import FunctionServer
from tests.support.sse import RawStream

pytestmark = pytest.mark.emulator

GENUINE_APP = (401, "app_check_failed")
SIGN_IN_FAILED = (401, "sign_in_failed")
UNAVAILABLE = (503, "identity_unavailable")
NOT_CONFIGURED = (503, "not_configured")

HELLO = b'{"prompt": "[]"}'

Make = Callable[[Google], str]


@pytest.fixture(scope="module")
def google() -> Iterator[Google]:
    """Google, in order."""
    with Google() as google:
        yield google


@pytest.fixture(scope="module")
def deployed(
    module_serve: Serve, google: Google, tmp_path_factory: pytest.TempPathFactory
) -> FunctionServer:
    """A deployed `resume_turn`."""
    folder = tmp_path_factory.mktemp("deployed")
    server = module_serve("resume_turn", **google.environ(folder), REQUIRE_AUTH="true")
    return warmed(server, lambda server: ask(server, google))


def ask(server: FunctionServer, google: Google, **given: Any) -> Answer:
    """Resume a turn that nobody has, with genuine tokens but for what is given."""
    tokens = {"app": google.app_check_token(), "bearer": google.id_token()}
    return call(server, **{**tokens, **given})


APP_CHECK: dict[str, tuple[Make, tuple[int, str]]] = {
    "genuine": (lambda g: g.app_check_token(), UNKNOWN),
    "expired within the skew": (lambda g: g.app_check_token(exp=g.now() - 30), UNKNOWN),
    "made within the skew": (lambda g: g.app_check_token(iat=g.now() + 30), UNKNOWN),
    "without iat": (lambda g: g.app_check_token(iat=None), UNKNOWN),
    "missing": (lambda _g: "", GENUINE_APP),
    "garbage": (lambda _g: "garbage", GENUINE_APP),
    "three parts of garbage": (lambda _g: "a.b.c", GENUINE_APP),
    "too long": (lambda g: g.app_check_token(more="x" * 4000), GENUINE_APP),
    "a debug secret": (lambda _g: "0b1f7c3e-5a52-4a6f-9a51-0d7f1a2b3c4d", GENUINE_APP),
    "of the local stand-in": (lambda _g: local_app_check(project=PROJECT), GENUINE_APP),
    "an ID token": (lambda g: g.id_token(), GENUINE_APP),
    "expired": (lambda g: g.app_check_token(exp=g.now() - 90), GENUINE_APP),
    "from the future": (lambda g: g.app_check_token(iat=g.now() + 600), GENUINE_APP),
    "not valid before": (lambda g: g.app_check_token(nbf=g.now() + 600), GENUINE_APP),
    "without exp": (lambda g: g.app_check_token(exp=None), GENUINE_APP),
    "exp is a word": (lambda g: g.app_check_token(exp="soon"), GENUINE_APP),
    "exp is no time": (lambda g: g.app_check_token(exp=10**30), GENUINE_APP),
    "iat is a list": (lambda g: g.app_check_token(iat=[1]), GENUINE_APP),
    "of another project": (lambda g: g.app_check_token(aud=["projects/other"]), GENUINE_APP),
    "aud is a string": (lambda g: g.app_check_token(aud=f"projects/{PROJECT}"), GENUINE_APP),
    "without aud": (lambda g: g.app_check_token(aud=None), GENUINE_APP),
    "without iss": (lambda g: g.app_check_token(iss=None), GENUINE_APP),
    "iss is a number": (lambda g: g.app_check_token(iss=7), GENUINE_APP),
    "another issuer": (lambda g: g.app_check_token(iss="https://evil.example/1"), GENUINE_APP),
    "without sub": (lambda g: g.app_check_token(sub=None), GENUINE_APP),
    "sub is empty": (lambda g: g.app_check_token(sub=""), GENUINE_APP),
    "sub is a list": (lambda g: g.app_check_token(sub=["x"]), GENUINE_APP),
    "forged under our kid": (lambda g: g.app_check_token(key="another"), GENUINE_APP),
    "of an unknown kid": (lambda g: g.app_check_token(header={"kid": "b-key"}), GENUINE_APP),
    "without kid": (lambda g: g.app_check_token(header={"kid": None}), GENUINE_APP),
    "kid is a number": (lambda g: g.app_check_token(header={"kid": 7}), GENUINE_APP),
    "without typ": (lambda g: g.app_check_token(header={"typ": None}), GENUINE_APP),
    "HS256": (lambda g: g.app_check_token(header={"alg": "HS256"}), GENUINE_APP),
    "alg none": (lambda g: g.app_check_token(header={"alg": "none"}), GENUINE_APP),
    "alg is a list": (lambda g: g.app_check_token(header={"alg": ["RS256"]}), GENUINE_APP),
    "signature cut off": (lambda g: g.app_check_token().rpartition(".")[0] + ".", GENUINE_APP),
    "claims changed": (lambda g: changed(g.app_check_token()), GENUINE_APP),
}


def in_utf_16(token: str) -> str:
    """The token with its two objects in another encoding of JSON."""
    header, claims, signature = token.split(".")
    parts = (base64.urlsafe_b64decode(f"{part}===").decode() for part in (header, claims))
    said = ".".join(
        base64.urlsafe_b64encode(part.encode("utf-16")).rstrip(b"=").decode() for part in parts
    )
    return f"{said}.{signature}"


def changed(token: str) -> str:
    """The token with one character of its claims replaced."""
    header, claims, signature = token.split(".")
    other = "A" if claims[20] != "A" else "B"
    return f"{header}.{claims[:20]}{other}{claims[21:]}.{signature}"


@pytest.mark.parametrize("name", APP_CHECK)
def test_an_app_check_token_comes_to_its_status(
    deployed: FunctionServer, google: Google, name: str
) -> None:
    """Only Google's, for this project, in their time; a bad one is never used up."""
    make, expected = APP_CHECK[name]
    used = 0

    def answer() -> Answer:
        nonlocal used
        used = google.asked["use"]
        return ask(deployed, google, app=make(google))

    assert asked(answer).outcome == expected
    assert google.asked["use"] - used == (expected == UNKNOWN)


def test_an_app_check_token_is_good_for_one_call(deployed: FunctionServer, google: Google) -> None:
    """The second is told to fetch a fresh one."""
    token = ""

    def first() -> Answer:
        nonlocal token
        token = google.app_check_token()
        return ask(deployed, google, app=token)

    assert asked(first).outcome == UNKNOWN
    assert ask(deployed, google, app=token).outcome == GENUINE_APP


ID_TOKENS: dict[str, tuple[Make, tuple[int, str]]] = {
    "genuine": (lambda g: g.id_token(), UNKNOWN),
    "expired within the skew": (lambda g: g.id_token(exp=g.now() - 30), UNKNOWN),
    "made within the skew": (lambda g: g.id_token(iat=g.now() + 30), UNKNOWN),
    "missing": (lambda _g: "", (401, "sign_in_required")),
    "garbage": (lambda _g: "garbage", SIGN_IN_FAILED),
    "unsigned, of the Auth emulator": (
        lambda _g: local_id_token("ada", project=PROJECT),
        SIGN_IN_FAILED,
    ),
    "an App Check token": (lambda g: g.app_check_token(), SIGN_IN_FAILED),
    "expired": (lambda g: g.id_token(exp=g.now() - 90), SIGN_IN_FAILED),
    "from the future": (lambda g: g.id_token(iat=g.now() + 600), SIGN_IN_FAILED),
    "without exp": (lambda g: g.id_token(exp=None), SIGN_IN_FAILED),
    "without iat": (lambda g: g.id_token(iat=None), SIGN_IN_FAILED),
    "exp is a word": (lambda g: g.id_token(exp="soon"), SIGN_IN_FAILED),
    "of another project": (lambda g: g.id_token(aud="other"), SIGN_IN_FAILED),
    "another issuer": (
        lambda g: g.id_token(iss="https://securetoken.google.com/other"),
        SIGN_IN_FAILED,
    ),
    "without sub": (lambda g: g.id_token(sub=None), SIGN_IN_FAILED),
    "sub is empty": (lambda g: g.id_token(""), SIGN_IN_FAILED),
    "sub is a number": (lambda g: g.id_token(sub=7), SIGN_IN_FAILED),
    "sub is too long": (lambda g: g.id_token("x" * 129), SIGN_IN_FAILED),
    "forged under our kid": (lambda g: g.id_token(key="another"), SIGN_IN_FAILED),
    "of an unknown kid": (lambda g: g.id_token(header={"kid": "b-key"}), SIGN_IN_FAILED),
    "without kid": (lambda g: g.id_token(header={"kid": None}), SIGN_IN_FAILED),
    "kid is a list": (lambda g: g.id_token(header={"kid": [KID]}), SIGN_IN_FAILED),
    "kid is an object": (lambda g: g.id_token(header={"kid": {"a": 1}}), SIGN_IN_FAILED),
    "of a legacy form that is none": (
        lambda g: g.id_token(header={"alg": "HS256", "kid": None}, v=0, d=7),
        SIGN_IN_FAILED,
    ),
    "in UTF-16": (lambda g: in_utf_16(g.id_token()), SIGN_IN_FAILED),
    "HS256": (lambda g: g.id_token(header={"alg": "HS256"}), SIGN_IN_FAILED),
    "alg none": (lambda g: g.id_token(header={"alg": "none"}), SIGN_IN_FAILED),
    "claims changed": (lambda g: changed(g.id_token()), SIGN_IN_FAILED),
    "of a tenant": (lambda g: g.id_token(firebase={"tenant": "t1"}), SIGN_IN_FAILED),
    "firebase is a word": (lambda g: g.id_token(firebase="x"), UNKNOWN),
}


@pytest.mark.parametrize("name", ID_TOKENS)
def test_an_id_token_comes_to_its_status(
    deployed: FunctionServer, google: Google, name: str
) -> None:
    """And a refused one leaves the App Check token unused."""
    make, expected = ID_TOKENS[name]
    used = 0

    def answer() -> Answer:
        nonlocal used
        used = google.asked["use"]
        return ask(deployed, google, bearer=make(google) or None)

    assert asked(answer).outcome == expected
    assert google.asked["use"] - used == (expected == UNKNOWN)


def test_revoked_disabled_and_deleted_users_are_out_at_once_if_asked_for(
    module_serve: Serve, google: Google, tmp_path: Path
) -> None:
    """CHECK_REVOKED=true looks each ID token up; without it they are in until it expires."""
    google.users |= {
        "ada": User(),
        "revoked": User(valid_since=google.now() + 60),
        "disabled": User(disabled=True),
    }
    environ = google.environ(tmp_path)
    checking = module_serve("resume_turn", **environ, CHECK_REVOKED="true")
    outcomes = {
        uid: ask(checking, google, bearer=google.id_token(uid)).outcome
        for uid in ("ada", "revoked", "disabled", "deleted")
    }
    assert outcomes.pop("ada") in LET_IN
    assert set(outcomes.values()) == {SIGN_IN_FAILED}
    google.break_("users", "500")
    assert ask(checking, google).outcome == UNAVAILABLE
    google.mend()
    assert ask(checking, google).outcome in LET_IN
    assert_nothing_secret(checking)


def test_a_cold_process_fetches_the_keys_once_for_ten_parallel_requests(
    module_serve: Serve, tmp_path: Path
) -> None:
    """Of App Check and of ID tokens; all ten are answered, later ones fetch none."""
    with Google() as google:
        cold = module_serve("resume_turn", **google.environ(tmp_path))
        assert {answer.outcome for answer in at_once(cold, google, 10)} <= LET_IN
        assert ask(cold, google).outcome in LET_IN
        assert (google.asked["keys"], google.asked["certs"]) == (1, 1)


NO_KEYS = ["hang", "drop", "500", "404", "html", "binary", "null"]


@pytest.mark.parametrize(
    ("place", "ways"), [("keys", [*NO_KEYS, "list", "empty"]), ("certs", NO_KEYS)]
)
def test_while_keys_cannot_be_fetched_calls_are_503_and_then_served(
    module_serve: Serve, tmp_path: Path, place: str, ways: list[str]
) -> None:
    """Whatever comes instead of keys; nothing is used up, and the next to ask tries again."""
    with Google() as google:
        cold = module_serve("resume_turn", **google.environ(tmp_path, patient=False))
        for how in ways:
            google.break_(place, how)
            before = google.asked[place]
            # Who comes just after a failure shares it: ask until somebody fetched again.
            while google.asked[place] == before:
                answer = ask(cold, google)
                assert answer.outcome == UNAVAILABLE, how
                assert int(answer.headers["retry-after"]) > 0
        assert google.asked["use"] == 0
        google.mend()
        until_served(cold, google)
        assert_nothing_secret(cold)


def test_ten_callers_share_the_wait_for_keys_that_do_not_come(
    module_serve: Serve, tmp_path: Path
) -> None:
    """Not one after the other: that would hold every thread for half a minute."""
    with Google() as google:
        google.break_("keys", "hang")
        cold = module_serve("resume_turn", **google.environ(tmp_path, patient=False))
        assert {answer.outcome for answer in at_once(cold, google, 10)} == {UNAVAILABLE}
        assert google.asked["keys"] < 7, "a busy machine comes late to share a failure"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("drop", UNAVAILABLE),
        ("500", UNAVAILABLE),
        ("503", UNAVAILABLE),
        ("html", UNAVAILABLE),
        ("list", UNAVAILABLE),
        ("null", UNAVAILABLE),
        ("403", NOT_CONFIGURED),
        ("404", NOT_CONFIGURED),
        ("400", GENUINE_APP),
    ],
)
def test_what_using_a_token_up_answers_comes_to_its_status(
    deployed: FunctionServer, google: Google, how: str, expected: tuple[int, str]
) -> None:
    """It is asked once: a call that may have arrived is not sent again."""
    google.break_("use", how)
    used = google.asked["use"]
    try:
        answer = ask(deployed, google)
    finally:
        google.mend()
    assert answer.outcome == expected
    assert ("retry-after" in answer.headers) == (expected == UNAVAILABLE)
    assert google.asked["use"] == used + 1
    assert ask(deployed, google).outcome in LET_IN


def test_a_token_that_google_does_not_answer_for_is_503(
    module_serve: Serve, google: Google, tmp_path: Path
) -> None:
    """It is asked once: the token would count as used."""
    server = module_serve("resume_turn", **google.environ(tmp_path, patient=False))
    until_served(server, google)
    google.break_("use", "hang")
    used = google.asked["use"]
    try:
        assert ask(server, google).outcome == UNAVAILABLE
    finally:
        google.mend()
    assert google.asked["use"] == used + 1
    until_served(server, google)


def test_a_token_that_is_over_by_googles_clock_is_401(
    deployed: FunctionServer, google: Google
) -> None:
    """Google answers as to a deployment that may not ask: 403."""
    google.break_("use", "403")
    try:
        late = google.app_check_token(exp=google.now() - 30)
        assert ask(deployed, google, app=late).outcome == GENUINE_APP
        assert ask(deployed, google).outcome == NOT_CONFIGURED
    finally:
        google.mend()


def test_without_credentials_calls_are_503_and_then_served(
    module_serve: Serve, tmp_path: Path
) -> None:
    """None, a malformed file, a refusal: the next call tries the initialisation again."""
    with Google() as google:
        google.break_("credentials", "500")
        refused = module_serve("resume_turn", **google.environ(tmp_path / "a"))
        none = module_serve("resume_turn", **google.environ(tmp_path / "b"))
        account = (tmp_path / "b" / "account.json").rename(tmp_path / "account.json")
        assert ask(refused, google).outcome == UNAVAILABLE
        assert ask(none, google).outcome == UNAVAILABLE
        for text in ("{", "{}", '{"type": "service_account", "private_key": "x"}'):
            (tmp_path / "b" / "account.json").write_text(text)
            assert ask(none, google).outcome == UNAVAILABLE
        google.mend()
        account.rename(tmp_path / "b" / "account.json")
        until_served(refused, google)
        until_served(none, google)


def test_monitor_logs_what_it_would_refuse_and_lets_it_pass(
    module_serve: Serve, google: Google, tmp_path: Path
) -> None:
    """With a good token, a bad one or none, and while Google is away, a turn stays its owner's."""
    environ = {**google.environ(tmp_path), "APP_CHECK": "monitor", "REQUIRE_AUTH": "false"}
    starter, watched = (
        warmed(module_serve(name, **environ), lambda server: call(server, body=HELLO))
        for name in ("start_turn", "resume_turn")
    )
    turn_id = new_turn_id()
    good = google.app_check_token()
    assert call(starter, app=good, turn_id=turn_id, body=HELLO).status == 200
    assert call(watched, app=good, turn_id=turn_id).status == 200
    assert call(watched, app=None, turn_id=turn_id).status == 200
    google.break_("use", "500")
    assert call(watched, app=google.app_check_token(), turn_id=turn_id).status == 200
    google.mend()
    assert call(watched, app=google.app_check_token(), turn_id=turn_id).status == 200
    assert call(watched, bearer="garbage").outcome == SIGN_IN_FAILED
    told = [
        (line["code"], line["reason"])
        for line in watched.log_lines()
        if line["message"] == "App Check would refuse"
    ]
    assert told[-3:] == [
        ("app_check_failed", "the App Check token was already used"),
        ("app_check_failed", "X-Firebase-AppCheck is missing"),
        ("identity_unavailable", "what verifies tokens did not answer in time"),
    ]


def test_every_refusal_can_be_read_by_a_page_and_no_token_is_in_a_log(
    deployed: FunctionServer, google: Google
) -> None:
    """`call` looks at each answer's CORS headers; a preflight asks for no token."""
    for more in ({"app": "x"}, {"bearer": None}, {"bearer": "x"}):
        for origin in (ORIGIN, "https://evil.example", "null"):
            assert ask(deployed, google, origin=origin, **more).status == 401
    asked = dict(google.asked)
    preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}
    with RawStream(deployed.url, "OPTIONS", preflight) as stream:
        assert stream.status == 204
    assert dict(google.asked) == asked
    assert_nothing_secret(deployed)


def assert_nothing_secret(server: FunctionServer) -> None:
    """Its log has no token, no secret and no answer of Google's."""
    text = server.output()
    assert "eyJ" not in text
    assert "sk-" not in text
    assert server.log_lines()


def until_served(server: FunctionServer, google: Google) -> None:
    """Ask until the shared failure is over."""
    while (outcome := ask(server, google).outcome) not in LET_IN:
        assert outcome == UNAVAILABLE


def at_once(server: FunctionServer, google: Google, count: int) -> list[Answer]:
    """What so many parallel calls are answered."""
    answers: list[Answer] = []
    tokens = [google.app_check_token() for _ in range(count)]

    def one(token: str) -> None:
        answers.append(ask(server, google, app=token))

    threads = [threading.Thread(target=one, args=(token,)) for token in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == count
    return answers
