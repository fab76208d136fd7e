"""The Gemini agent: the real `google-genai` client against a local server of Gemini's format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
from pydantic_ai.providers.google import GoogleProvider

from functions.agents import gemini
from functions.pydantic_ai import durable
from functions.turns.owners import Owners
from functions.turns.program import Agent
from functions.turns.takeover import Taken
from functions.wire import sse
from functions.wire.fold import fold
from tests.support.gemini import Gemini, Reply, call, cut_off, part, refuses, says
from tests.support.patience import wait_until
from tests.turns.conftest import Create, load, settings
from tests.turns.test_writer import stored

pytestmark = [pytest.mark.emulator, pytest.mark.usefixtures("storage")]

SOON = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}
LIMITED = refuses(429, "RESOURCE_EXHAUSTED", "slow down", SOON)
ORDER = {"order": "A-17", "cents": 1900}


@pytest.fixture(scope="module", name="model")
def _model() -> Iterator[Gemini]:
    """The server that the agent of this process asks."""
    with pytest.MonkeyPatch.context() as patch, Gemini() as server:
        patch.setenv("GOOGLE_GEMINI_BASE_URL", server.url)
        patch.setenv("GEMINI_API_KEY", "a-key")
        gemini.agent.cache_clear()
        gemini.agent()
        yield server


@pytest.fixture
def taken(create: Create) -> Taken:
    """A turn of this process, with a lease that lasts the test."""
    return create("What of order A-17?", lease_seconds=30)


def run(taken: Taken, agent: Agent) -> list[sse.Frame]:
    """Run a turn until it has ended, or waits; the frames of its journal."""
    served = replace(agent, version=taken.turn.agent_version)
    Owners(lambda: served, settings(lease_seconds=30)).own(taken)
    wait_until(lambda: load(taken).status != "running")
    return list(sse.decode(stored(taken)))


def tools(frames: list[sse.Frame]) -> list[Any]:
    """What became of the tool calls, by position."""
    ends = sorted(
        (frame.data for frame in frames if frame.type == "tool_end"), key=lambda end: end["step"]
    )
    return [(end["tool"], end["status"], end["result"]) for end in ends]


def test_text_streams_in_pieces_as_it_comes(model: Gemini, taken: Taken) -> None:
    """One event for each chunk of the model's; thinking is not told; what was used is."""
    thought = {"text": "hidden", "thought": True}
    model.say(says(thought, "Order ", "A-17 ", "is 🌍."))
    frames = run(taken, gemini.agent())
    assert [frame.data for frame in frames[:-1]] == ["Order ", "A-17 ", "is 🌍."]
    assert frames[-1].type == "done"
    assert frames[-1].data == {
        "reason": "stop",
        "usage": {"inputTokens": 10, "outputTokens": 5, "requests": 1},
    }
    (asked,) = model.asked
    assert asked.body["contents"] == [{"role": "user", "parts": [part("What of order A-17?")]}]
    names = [one["name"] for one in asked.body["tools"][0]["functionDeclarations"]]
    assert names == ["slow_query", "open_ticket", "charge", "refund"]


def test_calls_of_one_response_run_side_by_side_in_its_order(model: Gemini, taken: Taken) -> None:
    """Each at its position, also twice the same; the model is told their results in that order."""
    look_up = call("slow_query", order="A-17", seconds=0)
    model.say(
        says("I look. ", look_up, call("open_ticket", subject="A-17"), look_up),
        says("A fence."),
    )
    frames = run(taken, gemini.agent())
    assert [(name, status) for name, status, _ in tools(frames)] == [
        ("slow_query", "ok"),
        ("open_ticket", "ok"),
        ("slow_query", "ok"),
    ]
    assert fold(frames).text == "I look. \n\nA fence."
    answers = [one["functionResponse"] for one in model.asked[1].body["contents"][-1]["parts"]]
    assert [one["name"] for one in answers] == ["slow_query", "open_ticket", "slow_query"]
    assert "a fence" in json.dumps(answers[0]["response"])


def test_a_refund_waits_for_a_person(model: Gemini, taken: Taken) -> None:
    """The response ends with the question; its other calls have run."""
    model.say(says(call("refund", **ORDER), call("open_ticket", subject="refund")))
    frames = run(taken, gemini.agent())
    assert load(taken).status == "waiting"
    assert frames[-1].type == "tool_pending"
    assert frames[-1].data["tool"] == "refund"
    assert [name for name, _, _ in tools(frames)] == ["open_ticket"]


@pytest.mark.parametrize(
    "broken",
    [
        LIMITED,
        refuses(503, "UNAVAILABLE", "The model is overloaded.", SOON),
        refuses(500, "INTERNAL", "oops", SOON),
        refuses(503, "UNAVAILABLE", "busy", Retry_After="0"),
        says("damaged", headers={"Content-Encoding": "gzip"}),
    ],
    ids=["429", "503", "500", "header", "bytes"],
)
def test_limits_and_overload_pass(model: Gemini, taken: Taken, broken: Reply) -> None:
    """The model is asked again after the time it names, and nothing shows."""
    model.say(broken, broken, says("Here."))
    frames = run(taken, gemini.agent())
    assert [frame.type for frame in frames] == ["token", "done"]
    assert len(model.asked) == 3


def test_a_stream_that_breaks_off_is_withdrawn_and_asked_again(model: Gemini, taken: Taken) -> None:
    """Also one that named a tool: the withdrawn call has no effect."""
    model.say(
        cut_off("Half of ", call("open_ticket", subject="never")),
        says("All of it.", call("open_ticket", subject="once")),
        says("Done."),
    )
    frames = run(taken, gemini.agent())
    assert fold(frames).text == "All of it.\n\nDone."
    assert [frame.type for frame in frames].count("rewind") == 1
    assert [result["subject"] for _, _, result in tools(frames)] == ["once"]
    assert len(model.asked) == 3


@pytest.mark.parametrize("pieces", [0, 1])
def test_a_clean_end_before_that_of_a_response_is_a_cut_too(
    model: Gemini, taken: Taken, pieces: int
) -> None:
    """Gemini's last chunk says why it ended: a stream without it is not whole."""
    whole = says("Half of ", "it, never sent")
    model.say(Reply(whole.chunks[:pieces]), says("All of it."))
    frames = run(taken, gemini.agent())
    assert fold(frames).text == "All of it."
    assert len(model.asked) == 2


_KEPT: list[object] = []
"""Agents of a test alone: their connections are dropped with this process."""


def test_a_silence_in_the_midst_of_a_response_is_a_time_out(model: Gemini, taken: Taken) -> None:
    """Withdrawn, and asked again, as a stream that breaks off is."""
    model.say(says("Half of ", "it", seconds=3), says("All of it."))
    asked = PydanticAgent(
        GoogleModel(
            "gemini-2.5-flash",
            provider=GoogleProvider(api_key="a-key", base_url=model.url),
            settings=GoogleModelSettings(timeout=1),
        ),
        name="impatient",
    )
    _KEPT.append(asked)
    frames = run(taken, durable(asked))
    assert fold(frames).text == "All of it."
    assert len(model.asked) >= 2, "again, and once more where this machine takes a second to answer"


BAD_KEY = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
}
DAILY = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
TOO_LONG = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (refuses(400, "INVALID_ARGUMENT", "API key not valid.", BAD_KEY), "model_auth"),
        (refuses(403, "PERMISSION_DENIED", "leaked"), "model_auth"),
        (refuses(404, "NOT_FOUND", "models/x is not found"), "model_auth"),
        (refuses(400, "INVALID_ARGUMENT", TOO_LONG), "context_overflow"),
        (refuses(400, "INVALID_ARGUMENT", "no such field"), "model_refused"),
        (refuses(429, "RESOURCE_EXHAUSTED", "tomorrow", DAILY), "model_unavailable"),
        (refuses(429, "RESOURCE_EXHAUSTED", "wait", Retry_After="3600"), "model_unavailable"),
        (says(finish="SAFETY"), "model_refused"),
        (Reply([{"promptFeedback": {"blockReason": "SAFETY"}}]), "model_refused"),
        (says(finish="MALFORMED_FUNCTION_CALL"), "bad_model_response"),
        (says(call("no_such_tool")), "bad_model_response"),
        (says({"functionCall": {"name": "refund", "args": [1]}}), "bad_model_response"),
    ],
    ids=[
        "key",
        "forbidden",
        "model",
        "overflow",
        "400",
        "daily",
        "later",
        "safety",
        "prompt",
        "malformed",
        "tool",
        "arguments",
    ],
)
def test_what_does_not_pass_ends_the_turn_by_a_code(
    model: Gemini, taken: Taken, reply: Reply, code: str
) -> None:
    """And by words of ours: the provider's may quote a prompt, or a key. So may its client's, when
    a response is not of the form that it knows.
    """
    model.say(reply)
    frames = run(taken, gemini.agent())
    assert frames[-1].type == "error"
    assert frames[-1].data["code"] == code
    said = frames[-1].data["message"]
    assert not any(word in said for word in ("leaked", "API key not valid", "exceeds"))


def test_a_block_in_the_midst_of_a_text_withdraws_it(model: Gemini, taken: Taken) -> None:
    """What a provider takes back is not left on the page."""
    model.say(says("Something ", finish="SAFETY"))
    frames = run(taken, gemini.agent())
    assert frames[-1].data["code"] == "model_refused"
    assert fold(frames).text == ""


def test_an_answer_that_had_to_stop_short_says_so(model: Gemini, taken: Taken) -> None:
    """`done {reason: length}`; its text stays."""
    model.say(says("As long as ", "it may be", finish="MAX_TOKENS"))
    frames = run(taken, gemini.agent())
    assert frames[-1].data["reason"] == "length"
    assert fold(frames).text == "As long as it may be"


def test_arguments_that_do_not_fit_are_an_outcome(model: Gemini, taken: Taken) -> None:
    """Recorded, and told to the model, which may do better."""
    model.say(
        says(call("open_ticket", topic="no such parameter")),
        says(call("open_ticket", subject="fits")),
        says("There."),
    )
    frames = run(taken, gemini.agent())
    assert [(name, status) for name, status, _ in tools(frames)] == [
        ("open_ticket", "error"),
        ("open_ticket", "ok"),
    ]
    assert "topic" in json.dumps(model.asked[1].body["contents"][-1])


def test_the_budget_counts_what_the_model_says_it_took(model: Gemini, create: Create) -> None:
    """A model that calls for ever ends by the agent's tokens or steps, and says which."""
    taken = create("go on", lease_seconds=30)
    model.say(says(call("slow_query", order="A-17", seconds=0)))
    frames = run(taken, gemini.agent())
    assert frames[-1].data["code"] == "budget_exceeded"
    assert "20 model steps" in frames[-1].data["message"]
    assert len(model.asked) == 20
