"""ZeroMQ's protocol on a plain socket: a router that can also do wrong."""
# SPDX-License-Identifier: Apache-2.0
import os
import socket
import struct

from checks import PATIENCE

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
END = b"\xff" * 8


def frame(body, more=False, command=False):
    flags = more | 4 * command
    return (struct.pack("!BB", flags, len(body)) if len(body) < 256 else struct.pack("!BQ", flags | 2, len(body))) + body


def ready(kind):
    return frame(b"\x05READY" + b"\x0bSocket-Type" + struct.pack("!I", len(kind)) + kind, command=True)


class Router:
    """A connection of type SUB or DEALER. room: unread bytes that the kernel may keep."""

    def __init__(self, path, kind=b"DEALER", greet=True, room=None, timeout=PATIENCE):
        self.sock = socket.socket(socket.AF_UNIX if path.startswith("/") else socket.AF_INET)
        self.sock.settimeout(timeout)
        if room:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.sock.connect(path if path.startswith("/") else ("127.0.0.1", int(path)))
        self.buffer = bytearray()
        if greet:
            self.sock.sendall(GREETING + ready(kind))
            greeting = self.exactly(64)
            assert greeting[:1] == b"\xff" and greeting[9:11] == b"\x7f\x03", greeting
            flags, body = self.read_frame()
            assert flags & 4 and body.startswith(b"\x05READY"), body

    def exactly(self, n):
        while len(self.buffer) < n:
            data = self.sock.recv(1 << 20)
            if not data:
                raise ConnectionError("closed")
            self.buffer += data
        data = bytes(self.buffer[:n])
        del self.buffer[:n]
        return data

    def read_frame(self):
        flags, n = self.exactly(2)
        if flags & 2:
            n = struct.unpack("!Q", bytes([n]) + self.exactly(7))[0]
        return flags, self.exactly(n)

    def read(self):
        """The parts of the next message."""
        parts, flags = [], 1
        while flags & 1:
            flags, body = self.read_frame()
            if not flags & 4:
                parts.append(body)
            else:
                flags = 1
        return parts

    def subscribe(self, topic=b"kv@"):
        self.sock.sendall(frame(b"\x01" + topic))

    def ask(self, number=0):
        self.sock.sendall(frame(b"", more=True) + frame(struct.pack("!Q", number)))

    def replay(self, number=0):
        """(number, payload) of a whole replay."""
        self.ask(number)
        messages = []
        while True:
            empty, topic, at, payload = self.read()
            assert empty == b""
            if at == END:
                assert topic == b"" and payload == b""
                return messages
            assert topic.startswith(b"kv@"), topic
            messages.append((int.from_bytes(at, "big"), payload))

    def closed(self):
        """Whether the other side closes, after whatever else it sends."""
        try:
            while self.sock.recv(1 << 20):
                pass
            return True
        except (socket.timeout, TimeoutError):
            return False
        except OSError:
            return True

    def close(self):
        self.sock.close()
