"""The table of calls agrees with the wire format."""

from __future__ import annotations

import pytest
from mtplx_client import calls
from mtplx_client.builds import BuildOptions, Training
from mtplx_client.errors import InvalidArgument
from mtplx_client.events import Sampler, Stats
from mtplx_client.measurements import Run
from mtplx_client.messages import decode, encode
from mtplx_proto.v1 import (
    forge_pb2,
    generation_pb2,
    models_pb2,
    sessions_pb2,
    store_pb2,
    system_pb2,
    tuning_pb2,
)

ALL = [
    calls.hello(),
    calls.fans(),
    calls.set_fans("smart"),
    calls.hold_fans("bench"),
    calls.status(),
    calls.watch(1),
    calls.shutdown(),
    calls.cancel("r"),
    calls.generate("hi", {}),
    calls.pull("a"),
    calls.ls(),
    calls.show("a"),
    calls.rm("a"),
    calls.load("a", None, None, None, False, False),
    calls.unload("a"),
    calls.measure("a", [0], 1, 1, "", {}),
    calls.tune("a", [1, "auto"], {}, suite="", quick=True),
    calls.verify("a", 0, 0, 0, [], False),
    calls.suite("", 0, None),
    calls.summarise("a", [], Sampler(), "", 0),
    calls.probe("a"),
    calls.build("a", "b", BuildOptions(overrides={"lm_head": 8}, training=Training("lora")), False),
    calls.follow(""),
    calls.resume("a", True),
    calls.runs(),
    calls.cancel_run("a"),
    calls.publish("a", "org/a", True),
    calls.sessions(),
    calls.session("a"),
    calls.rename_session("a", "b"),
    calls.remove_session("a"),
    calls.cache_stats(),
    calls.cache_verify(),
    calls.cache_prune(),
    calls.cache_clear(True),
]
MODULES = (forge_pb2, generation_pb2, models_pb2, sessions_pb2, store_pb2, system_pb2, tuning_pb2)


@pytest.mark.parametrize("call", ALL, ids=lambda call: call.path)
def test_a_call_names_a_method_with_these_messages(call: calls.Call[object]) -> None:
    methods = {
        f"/{service.full_name}/{method.name}": method
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    method = methods[call.path]
    assert call.request.DESCRIPTOR is method.input_type
    assert call.reply_class.DESCRIPTOR is method.output_type


def test_every_method_of_the_wire_has_a_call() -> None:
    wire = {
        (service.name, method.name)
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert {(call.service, call.method) for call in ALL} == wire


def test_only_what_changes_nothing_twice_is_repeated() -> None:
    assert {f"{call.service}.{call.method}" for call in ALL if call.repeat == "never"} == {
        "System.Shutdown", "System.HoldFans", "Generation.Generate", "Models.Remove", "Sessions.Remove",
        "Sessions.Rename", "Forge.Build", "Forge.Cancel", "Forge.Publish",
    }  # fmt: skip
    assert {call.method for call in ALL if call.repeat == "always"} == {"Watch"}


def test_a_run_survives_the_way_there_and_back() -> None:
    stats = Stats(tok_s=80.5, acceptance_by_position=(0.75, 0.5), depth=2, degraded=("x",))
    run = Run(prompt=3, depth=2, tokens=64, first_s=0.25, last_s=1.5, stats=stats)
    message = encode(run, tuning_pb2.Run())
    assert decode(Run, message) == run


@pytest.mark.parametrize("depth", [-1, 2**40])
def test_a_depth_the_wire_cannot_carry_is_named_as_the_user_knows_it(depth: int) -> None:
    for build in (
        lambda: calls.generate("hi", {"depth": depth}),
        lambda: calls.load("a", None, depth, None, False, False),
    ):
        with pytest.raises(InvalidArgument, match=rf"^depth cannot be used \({depth}\)") as caught:
            build()
        assert caught.value.field == "depth"
