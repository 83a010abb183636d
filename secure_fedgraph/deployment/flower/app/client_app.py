"""The silo's end of the app: it carries letters to the silo's own process and answers back.

It runs in the SuperNode's processes, opens nothing but the socket, and understands no letter.
"""

import socket
import struct

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

HEAD = struct.Struct(">4sQBQ")  # magic, node id, bytes of the kind, bytes of the body
MAGIC = b"SFG1"
LARGEST = 2**31
PIECE = 2**20

app = ClientApp()


@app.train()
def carry(message: Message, context: Context) -> Message:
    """Hands one letter to the silo's process, and its answer to Flower."""
    letter = message.content.config_records["letter"]
    asked, body = letter["kind"], letter["body"]
    if not isinstance(asked, str) or not isinstance(body, bytes):
        raise RuntimeError("a message without a letter")
    path = context.node_config.get("socket")
    if not path:
        raise RuntimeError("start the SuperNode with --node-config 'socket=\"PATH\"'")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as way:
        try:
            way.connect(str(path))
        except OSError as error:
            reason = (
                f"{path} cannot be opened ({error.strerror}): start 'secure-fedgraph silo start --socket'"
            )
            raise RuntimeError(reason) from None
        kind, answer = exchange(way, context.node_id, asked, body)
    return Message(RecordDict({"letter": ConfigRecord({"kind": kind, "body": answer})}), reply_to=message)


def exchange(way: socket.socket, node: int, kind: str, body: bytes) -> tuple[str, bytes]:
    """Writes a frame and reads one; how long the silo computes is its own affair."""
    named = kind.encode()
    way.sendall(HEAD.pack(MAGIC, node, len(named), len(body)) + named)
    way.sendall(body)
    magic, _, length, size = HEAD.unpack(exactly(way, HEAD.size))
    if magic != MAGIC or size > LARGEST:
        raise RuntimeError("what listens on the socket is no silo of secure-fedgraph")
    return exactly(way, length).decode("ascii"), exactly(way, size)


def exactly(way: socket.socket, size: int) -> bytes:
    """So many bytes, and not fewer."""
    held = bytearray()
    while len(held) < size:
        piece = way.recv(min(PIECE, size - len(held)))
        if not piece:
            raise RuntimeError("the silo's process ended before it answered")
        held += piece
    return bytes(held)
