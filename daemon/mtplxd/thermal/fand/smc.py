"""The system management controller behind IOKit: key information, reading and writing keys. Knows no key's meaning.

One structure of 80 bytes goes in and one comes out of each call of AppleSMC's method 2; `data8` says what is asked.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, byref, c_char_p, c_size_t, c_uint8, c_uint16, c_uint32, c_void_p, sizeof
from dataclasses import dataclass

from .fans import FanError

IOKIT = "/System/Library/Frameworks/IOKit.framework/IOKit"
SERVICES = (b"AppleSMCKeysEndpoint", b"AppleSMC")
"""Apple silicon's and the older name; the first that is there."""
HANDLE_KEY = 2
READ, WRITE, INFO = 5, 6, 9
NOT_FOUND = 0x84
_RESULTS = {
    0x01: "error", 0x80: "collision", 0x81: "spurious data", 0x82: "bad command", 0x83: "bad parameter",
    NOT_FOUND: "no such key", 0x85: "not readable", 0x86: "not writable", 0x87: "wrong size", 0x89: "bad argument",
}  # fmt: skip
_NOT_PRIVILEGED = 0xE00002C1


class Version(Structure):
    _fields_ = [
        ("major", c_uint8), ("minor", c_uint8), ("build", c_uint8), ("reserved", c_uint8), ("release", c_uint16),
    ]  # fmt: skip


class Limits(Structure):
    _fields_ = [
        ("version", c_uint16), ("length", c_uint16), ("cpu", c_uint32), ("gpu", c_uint32), ("memory", c_uint32),
    ]  # fmt: skip


class KeyInfo(Structure):
    _fields_ = [("size", c_uint32), ("type", c_uint32), ("attributes", c_uint8)]


class KeyData(Structure):
    """What the controller takes and gives: 80 bytes, the key's name as one big-endian number."""

    _fields_ = [
        ("key", c_uint32),
        ("version", Version),
        ("limits", Limits),
        ("info", KeyInfo),
        ("result", c_uint8),
        ("status", c_uint8),
        ("data8", c_uint8),
        ("data32", c_uint32),
        ("bytes", c_uint8 * 32),
    ]


class SmcError(FanError):
    """A call that failed; `result` is the controller's own code, 0 where it was not reached."""

    def __init__(self, text: str, result: int = 0) -> None:
        super().__init__(text)
        self.result = result


@dataclass(frozen=True)
class Info:
    """What a key holds: bytes and a type of four letters."""

    size: int
    type: str


class Smc:
    """One connection, opened when it is first needed and again after a failure of the connection itself."""

    def __init__(self, library: str = IOKIT) -> None:
        self._path = library
        self._library: ctypes.CDLL | None = None
        self._connection: int | None = None
        self._infos: dict[str, Info] = {}

    def has(self, key: str) -> bool:
        """Whether the controller knows the key. Raises SmcError where that cannot be told."""
        try:
            self.info(key)
        except SmcError as error:
            if error.result == NOT_FOUND:
                return False
            raise
        return True

    def info(self, key: str) -> Info:
        """Size and type of a key, asked once. Raises SmcError."""
        if key not in self._infos:
            found = self._call(KeyData(key=_number(key), data8=INFO), key).info
            self._infos[key] = Info(found.size, found.type.to_bytes(4, "big").decode("latin-1"))
        return self._infos[key]

    def read(self, key: str) -> bytes:
        """The value's bytes. Raises SmcError."""
        data = KeyData(key=_number(key), data8=READ)
        data.info.size = self.info(key).size
        return bytes(self._call(data, key).bytes[: data.info.size])

    def write(self, key: str, value: bytes) -> None:
        """Writes it; that the controller says yes proves nothing. Raises SmcError."""
        size = self.info(key).size
        if len(value) != size:
            raise SmcError(f"{key} holds {size} bytes, not {len(value)}")
        data = KeyData(key=_number(key), data8=WRITE)
        data.info.size = size
        data.bytes[: len(value)] = value
        self._call(data, f"{key} = {value.hex()}")

    def close(self) -> None:
        """Closes the connection; the next call opens another."""
        if self._connection is not None and self._library is not None:
            self._library.IOServiceClose(self._connection)
        self._connection = None

    def _call(self, data: KeyData, what: str) -> KeyData:
        library, connection = self._open()
        out, size = KeyData(), c_size_t(sizeof(KeyData))
        code = library.IOConnectCallStructMethod(
            connection, HANDLE_KEY, byref(data), sizeof(KeyData), byref(out), byref(size)
        )
        if code == _NOT_PRIVILEGED:
            raise SmcError(f"{what}: only root may")
        if code:
            self.close()
            raise SmcError(f"{what}: IOKit says 0x{code:08x}")
        if size.value != sizeof(KeyData):
            raise SmcError(f"{what}: {size.value} bytes came back, not {sizeof(KeyData)}")
        if out.result:
            said = _RESULTS.get(out.result, "refused")
            raise SmcError(f"{what}: {said} (0x{out.result:02x})", out.result)
        return out

    def _open(self) -> tuple[ctypes.CDLL, int]:
        if self._library is None:
            self._library = _load(self._path)
        if self._connection is None:
            self._connection = _connect(self._library)
        return self._library, self._connection


def _load(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
        library.IOServiceMatching.argtypes = [c_char_p]
        library.IOServiceMatching.restype = c_void_p
        library.IOServiceGetMatchingService.argtypes = [c_uint32, c_void_p]
        library.IOServiceGetMatchingService.restype = c_uint32
        library.IOServiceOpen.argtypes = [c_uint32, c_uint32, c_uint32, c_void_p]
        library.IOServiceOpen.restype = c_uint32
        library.IOServiceClose.argtypes = [c_uint32]
        library.IOObjectRelease.argtypes = [c_uint32]
        library.IOConnectCallStructMethod.argtypes = [
            c_uint32, c_uint32, c_void_p, c_size_t, c_void_p, c_void_p,
        ]  # fmt: skip
        library.IOConnectCallStructMethod.restype = c_uint32
    except (OSError, AttributeError) as error:
        raise SmcError(f"IOKit cannot be used ({error})") from None
    return library


def _connect(library: ctypes.CDLL) -> int:
    """The matching call consumes its dictionary; the service is released once it is open."""
    task = c_uint32.in_dll(library, "mach_task_self_")
    for name in SERVICES:
        service = library.IOServiceGetMatchingService(0, library.IOServiceMatching(name))
        if not service:
            continue
        connection = c_uint32(0)
        code = library.IOServiceOpen(service, task.value, 0, byref(connection))
        library.IOObjectRelease(service)
        if code:
            raise SmcError(f"{name.decode()} does not open, IOKit says 0x{code:08x}")
        return connection.value
    raise SmcError("this machine has no AppleSMC")


def _number(key: str) -> int:
    return int.from_bytes(key.encode("ascii"), "big")
