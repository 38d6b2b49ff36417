"""Streams of `weir serve` that can be resumed."""
# SPDX-License-Identifier: Apache-2.0
from serve import Connection


class Reader:
    """One connection to a stream: (number, data) of each event, comments left out. at: the number to go on after; None: a new request."""

    def __init__(self, server, path, body=None, at=None, key=None, query=None, room=None):
        self.connection = Connection(server, room=room)
        if body is not None:
            self.connection.request("POST", path, dict(body, stream=True, resume=True), key=key)
        else:
            headers = [] if at is None else [f"Last-Event-ID: {at}"]
            self.connection.request("GET", "/v1/streams/" + path + (f"?starting_after={query}" if query is not None else ""), headers=headers, key=key)
        self.status, self.headers = self.connection.head()
        self.id = self.headers.get("x-stream-id")
        self.source = self.read()
        self.got = []

    def read(self):
        rest = b""
        for data in self.connection.chunks():
            rest += data
            while b"\n\n" in rest:
                event, rest = rest.split(b"\n\n", 1)
                if event.startswith(b":"):
                    continue
                fields = dict(line.split(b": ", 1) for line in event.split(b"\n"))
                assert set(fields) <= {b"id", b"data"}, event
                yield int(fields[b"id"]) if b"id" in fields else None, fields[b"data"].decode()
        assert rest == b"", rest

    def take(self, n):
        while len(self.got) < n:
            self.got.append(next(self.source))
        return self.got

    def rest(self):
        self.got += self.source
        return self.got

    def leave(self):
        self.connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()


def whole(got):
    """Numbered from 1 without gaps, and ended."""
    return [number for number, _ in got] == list(range(1, len(got) + 1)) and got[-1][1] == "[DONE]"
