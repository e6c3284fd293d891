"""A generation: what is sent, and what comes back as events or as a reply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mtplx_client import Client, Final, Progress, Text
from mtplx_client.errors import Internal, InvalidArgument
from support.fake_daemon import FakeDaemon, final, text


def test_events_come_typed_and_end_with_one_final(client: Client) -> None:
    events = list(client.generate("Name three rivers."))
    assert [type(event) for event in events] == [Progress, Text, Text, Text, Final]
    assert events[0] == Progress("prefill", 12, 12, "tokens")
    assert events[1] == Text("The Rhine,", (11, 12, 13))
    assert events[2] == Text("", (14,))
    last = events[-1]
    assert isinstance(last, Final)
    assert (last.finish_reason, last.stop_origin, last.model) == ("stop", "eos", "smollm2-135m")
    assert last.stats.acceptance_by_position == (0.75, 0.5)
    assert last.sampler.seed == 7


def test_a_reply_joins_text_tokens_and_numbers(client: Client) -> None:
    reply = client.complete("Name three rivers.")
    assert reply.text == "The Rhine, the Elbe."
    assert reply.tokens == [11, 12, 13, 14, 15, 16]
    assert reply.usage.completion_tokens == 9
    assert reply.stats.depth == 2
    assert reply.finish_reason == "stop"


def test_every_option_reaches_the_daemon(client: Client, daemon: FakeDaemon) -> None:
    client.complete(
        "hi",
        model="smollm2-135m",
        system="Be brief.",
        temperature=0.5,
        top_p=0.25,
        top_k=40,
        min_p=0.125,
        seed=2**64 - 1,
        max_tokens=9,
        stop=["a", "b"],
        ignore_eos=True,
        depth=0,
        raw=True,
        plain=True,
        force=True,
    )
    (asked,) = daemon.requests("Generate")
    assert (asked.prompt, asked.model, asked.system) == ("hi", "smollm2-135m", "Be brief.")
    sampler = asked.sampler
    assert (sampler.temperature, sampler.top_p, sampler.top_k, sampler.min_p) == (0.5, 0.25, 40, 0.125)
    assert sampler.seed == 2**64 - 1
    assert (asked.max_tokens, list(asked.stop), asked.ignore_eos) == (9, ["a", "b"], True)
    assert asked.depth.WhichOneof("choice") == "fixed"
    assert (asked.depth.fixed, asked.raw, asked.plain, asked.force) == (0, True, True, True)


def test_absent_options_stay_absent(client: Client, daemon: FakeDaemon) -> None:
    client.complete("hi", temperature=None, seed=None)
    (asked,) = daemon.requests("Generate")
    assert not asked.HasField("sampler")
    assert not asked.HasField("depth")
    assert not asked.HasField("max_tokens")


def test_zero_is_not_absent(client: Client, daemon: FakeDaemon) -> None:
    client.complete("hi", temperature=0, seed=0, max_tokens=0)
    (asked,) = daemon.requests("Generate")
    assert asked.sampler.HasField("temperature")
    assert asked.sampler.HasField("seed")
    assert asked.HasField("max_tokens")


def test_messages_and_tokens_are_inputs_too(client: Client, daemon: FakeDaemon) -> None:
    client.complete(messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
    client.complete(tokens=[1, 2, 3])
    chat, ids = daemon.requests("Generate")
    assert [(message.role, message.content) for message in chat.chat.messages] == [
        ("user", "hi"),
        ("assistant", "ho"),
    ]
    assert list(ids.tokens.ids) == [1, 2, 3]


def test_an_empty_conversation_is_still_a_conversation(client: Client, daemon: FakeDaemon) -> None:
    client.complete(messages=[])
    assert daemon.requests("Generate")[0].WhichOneof("input") == "chat"


@pytest.mark.parametrize("stop", ["END", ""])
def test_one_stop_string_is_one_stop_string(client: Client, daemon: FakeDaemon, stop: str) -> None:
    """An empty one too: it is the daemon's to refuse, not ours to drop."""
    client.complete("hi", stop=stop)
    assert list(daemon.requests("Generate")[0].stop) == [stop]


@pytest.mark.parametrize(
    "given",
    [{}, {"prompt": "a", "messages": []}, {"messages": [], "tokens": []}],
    ids=["none", "two", "two more"],
)
def test_exactly_one_input_is_needed(client: Client, daemon: FakeDaemon, given: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="exactly one of prompt, messages and tokens"):
        client.generate(**given)  # type: ignore[arg-type]
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", -1), ("max_tokens", -1), ("depth", 2**32), ("top_k", 2**31), ("temperature", "warm")],
)
def test_what_the_wire_cannot_carry_is_refused_by_name(client: Client, field: str, value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.generate("hi", **{field: value})  # type: ignore[arg-type]
    assert caught.value.field in (field, "fixed")
    assert caught.value.fix


def test_text_that_is_no_unicode_is_refused_without_showing_it(client: Client) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.generate("secret \udcff")
    assert "secret" not in str(caught.value)


def test_an_unknown_option_is_a_type_error_that_lists_the_known(client: Client) -> None:
    with pytest.raises(TypeError, match=r"temprature.*temperature"):
        client.generate("hi", temprature=1)  # type: ignore[call-arg]


def test_a_message_with_other_keys_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="role and content"):
        client.generate(messages=[{"role": "user", "text": "hi"}])


def test_a_model_given_as_a_path_is_made_absolute(
    client: Client, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("./pack", "org/name", "smollm2-135m", tmp_path / "pack"):
        client.complete("hi", model=name)  # type: ignore[arg-type]
    assert [request.model for request in daemon.requests("Generate")] == [
        str(tmp_path / "pack"),
        "org/name",
        "smollm2-135m",
        str(tmp_path / "pack"),
    ]


def test_closing_the_stream_cancels_the_request(client: Client, daemon: FakeDaemon) -> None:
    def endless(_request: object, _context: object) -> Any:
        yield text("a", 1)
        daemon.cancelled.wait(10)
        yield final()

    daemon.answer = endless
    events = client.generate("hi")
    assert isinstance(next(events), Text)
    events.close()
    assert daemon.cancelled.wait(10)


def test_an_answer_that_failed_midway_says_why(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter(
        [text("half", 1), final("error", "non_finite", message="the target gave no number")]
    )
    reply = client.complete("hi")
    assert (reply.text, reply.finish_reason, reply.stop_origin) == ("half", "error", "non_finite")
    assert reply.message == "the target gave no number"


def test_a_stream_without_its_final_event_is_an_error(client: Client, daemon: FakeDaemon) -> None:
    daemon.answer = lambda *_: iter([text("half", 1)])
    with pytest.raises(Internal, match="without its result"):
        client.complete("hi")


def test_an_auto_depth_is_the_models_own(client: Client, daemon: FakeDaemon) -> None:
    client.complete("hi", depth="auto")
    assert daemon.requests("Generate")[-1].depth.WhichOneof("choice") == "auto"
    with pytest.raises(InvalidArgument, match="or auto"):
        client.complete("hi", depth="deep")
