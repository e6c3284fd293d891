"""A proxy that stands for https://huggingface.co: it ends TLS with a certificate of our own before a `HubServer`.

Tests of what really goes over the wire to the Hub itself set `HTTPS_PROXY` to it and `SSL_CERT_FILE` to `CERTIFICATE`.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "data" / "hub"
CERTIFICATE = FOLDER / "cert.pem"


class TlsHub:
    """`hosts` are the names that clients asked to be connected to."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATE, FOLDER / "key.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve_one(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            asked = b""
            while not asked.endswith(b"\r\n\r\n"):
                asked += connection.recv(1)
            self.hosts.append(asked.split()[1].decode())
            connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            with (
                self._context.wrap_socket(connection, server_side=True) as client,
                socket.create_connection(("127.0.0.1", self._port)) as server,
            ):
                answers = threading.Thread(target=_pump, args=(server, client), daemon=True)
                answers.start()
                _pump(client, server)
                answers.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def tls_hub(url: str) -> Iterator[TlsHub]:
    """Serves as https://huggingface.co in front of the server at `url`."""
    hub = TlsHub(int(url.rpartition(":")[2]))
    threading.Thread(target=hub.serve, daemon=True).start()
    try:
        yield hub
    finally:
        hub.close()
