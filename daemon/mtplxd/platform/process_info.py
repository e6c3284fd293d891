"""What macOS tells a process of the machine's heat: NSProcessInfo's thermal state, through the Objective-C runtime.

No program is run and nobody need be root. Reads, judges nothing.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_long, c_void_p
from functools import cache

OBJC = "/usr/lib/libobjc.A.dylib"
FOUNDATION = "/System/Library/Frameworks/Foundation.framework/Foundation"
STATES = ("nominal", "fair", "serious", "critical")


def read_thermal_state(objc: str = OBJC, foundation: str = FOUNDATION) -> str:
    """One of `STATES`, empty where this is no Mac or the runtime does not answer; in some microseconds."""
    runtime = _load(objc, foundation)
    if runtime is None:
        return ""
    info = _send(runtime, runtime.objc_getClass(b"NSProcessInfo"), b"processInfo", c_void_p)
    found = _send(runtime, info, b"thermalState", c_long) if info else None
    return STATES[found] if found is not None and 0 <= found < len(STATES) else ""


@cache
def _load(objc: str, foundation: str) -> ctypes.CDLL | None:
    """The runtime, with the framework that has the class in it."""
    try:
        ctypes.CDLL(foundation)
        runtime = ctypes.CDLL(objc)
        runtime.objc_getClass.restype = c_void_p
        runtime.objc_getClass.argtypes = [c_char_p]
        runtime.sel_registerName.restype = c_void_p
        runtime.sel_registerName.argtypes = [c_char_p]
        ctypes.cast(runtime.objc_msgSend, c_void_p)
    except (OSError, AttributeError):
        return None
    return runtime


def _send(runtime: ctypes.CDLL, target: int | None, name: bytes, result: type) -> int | None:
    """A message without arguments. The one entry has the type of what is called, as on arm64 it must."""
    if not target:
        return None
    entry = ctypes.CFUNCTYPE(result, c_void_p, c_void_p)(("objc_msgSend", runtime))
    found: int | None = entry(target, runtime.sel_registerName(name))
    return found
