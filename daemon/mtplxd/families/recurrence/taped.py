"""Makes a layer of mlx-lm tell, while it runs its own code, what taking a forward back needs.

A layer gets a class derived from its own whose methods see a recording update in place of mlx-lm's; its parameters stay
where they are, and on any cache but a StateCache it does what it always did. mlx-lm's own classes are left alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from mtplxd.families.caches.state import Slots, StateCache
from mtplxd.families.recurrence.replays import Rerun, Tape
from mtplxd.families.recurrence.update import Call, Update
from mtplxd.platform.mlx import Array, nn

SHORT = 32
"""Positions up to which a forward leaves a tape; longer ones, such as a prefill's, leave the layer's input alone."""


class Recorder:
    """Where the running forward of a kind of layer leaves what it computes; one forward at a time, on one thread.

    `by_tape` off makes every forward leave its input only.
    """

    def __init__(self, update: Update | None, *, by_tape: bool) -> None:
        self.update = update
        self.by_tape = by_tape
        self._tape: Tape | None = None

    @contextmanager
    def recording(self, tape: Tape | None) -> Iterator[None]:
        """Everything computed meanwhile goes onto `tape`."""
        self._tape = tape
        try:
            yield
        finally:
            self._tape = None

    def note_convolution(self, seen: Array) -> None:
        """A convolution is about to run over `seen`."""
        if self._tape:
            self._tape.convolved.append(seen)

    def wrap_update(self, update: Update, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, leaving its arguments on the tape where there is one."""
        signature = inspect.signature(function)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self._tape is None:
                return function(*args, **kwargs)
            arguments = dict(signature.bind(*args, **kwargs).arguments)
            call = Call(update, function, arguments, self._tape.in_steps)
            outputs, state, self._tape.trace = call.run()
            return outputs, state

        return recorded


class _TapedConv(nn.Conv1d):  # type: ignore[misc]
    """A convolution that notes what it sees."""

    recorder: Recorder

    def __call__(self, seen: Array) -> Array:
        self.recorder.note_convolution(seen)
        return super().__call__(seen)


def tape_layer(layer: Any, taped: type) -> None:
    """Turns a layer into one of the derived class `taped`, and its convolutions into ones that note what they see."""
    for module in layer.modules():
        if type(module) is nn.Conv1d:
            module.__class__ = _TapedConv
            module.recorder = taped.recorder  # type: ignore[attr-defined]
    layer.__class__ = taped


def derive_taped(stock: type, recorder: Recorder) -> type:
    """A class of layers that do as `stock` does, and tell a StateCache how to go back.

    Raises LookupError where no method of `stock` calls the recorder's update.
    """
    names = list(inspect.signature(stock.__call__).parameters)
    own_input = names[1]
    methods = _rebound(stock, recorder)
    run: Any = methods.get("__call__", stock.__call__)
    bind = inspect.signature(run).bind
    from mlx_lm.models.cache import ArraysCache

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = bind(self, *args, **kwargs).arguments
        cache = arguments.get("cache")
        if not isinstance(cache, StateCache):
            return run(**arguments)
        inputs, before = arguments[own_input], cache.slots
        count = inputs.shape[1]
        tape = Tape(count, in_steps=count == cache.width) if recorder.by_tape and 1 < count <= SHORT else None
        with recorder.recording(tape):
            outputs, slots = on_slots(arguments, inputs, before)
        if tape and tape.is_whole(len(slots)):
            cache.advance(count, slots, tape)
        else:
            again = Rerun(lambda some, begin: on_slots(arguments, some, begin)[1], inputs)
            cache.advance(count, slots, again if count > 1 else None)
        return outputs

    def on_slots(arguments: dict[str, Any], inputs: Array, slots: Slots) -> tuple[Any, Slots]:
        stand_in = ArraysCache(len(slots))
        stand_in.cache = list(slots)
        outputs = run(**(arguments | {own_input: inputs, "cache": stand_in}))
        return outputs, stand_in.cache

    return type(f"Taped{stock.__name__}", (stock,), {**methods, "__call__": call, "recorder": recorder})


def _rebound(stock: type, recorder: Recorder) -> dict[str, Any]:
    """The methods of `stock` that call the recorder's update, made to call a recording one."""
    update = recorder.update
    if update is None:
        return {}
    methods = {
        name: _with_global(method, update.name, recorder.wrap_update(update, method.__globals__[update.name]))
        for name, method in vars(stock).items()
        if isinstance(method, FunctionType) and update.name in method.__code__.co_names
    }
    if not methods:
        raise LookupError(update.name)
    return methods


def _with_global(function: FunctionType, name: str, value: Any) -> FunctionType:
    """The same code, reading one global name as `value`."""
    scope = function.__globals__ | {name: value}
    copy = FunctionType(
        function.__code__, scope, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
