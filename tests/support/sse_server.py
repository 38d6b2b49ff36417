"""A server with OpenAI's streaming API for tests, on the loopback interface. What it does is the first part of the path:
http://127.0.0.1:PORT/cut/v1/chat/completions cuts connections. Requests are kept in `seen` in the order of their arrival."""
# SPDX-License-Identifier: Apache-2.0
import asyncio
import json
import threading


class Server:
    def __init__(self):
        self.seen = []      # (path, headers, body)
        self.tries = {}     # prompts, how often they came
        self.left = 0       # connections that the client closed before the end
        self.open = 0
        self.most_open = 0
        self.n_pieces = 0   # of answers
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda loop, context: None)  # clients that go are no news
        ready = threading.Event()

        def serve():
            asyncio.set_event_loop(self.loop)
            server = self.loop.run_until_complete(asyncio.start_server(self.connection, "127.0.0.1", 0, backlog=2048))
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            self.loop.run_forever()
        threading.Thread(target=serve, daemon=True).start()
        ready.wait()

    def url(self, mode):
        return f"http://127.0.0.1:{self.port}/{mode}"

    def reset(self):
        self.seen, self.tries, self.left, self.most_open, self.n_pieces = [], {}, 0, 0, 0

    def prompts(self):
        return [body["prompt"] if "prompt" in body else body["messages"][0]["content"] for _, _, body in self.seen]

    async def connection(self, reader, writer):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while await self.request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left += 1
        finally:
            self.open -= 1
            writer.close()

    async def request(self, reader, writer):
        line = await reader.readline()
        if not line:
            return False
        path, headers = line.split()[1].decode(), {}
        while (line := (await reader.readline()).strip()):
            key, value = line.decode().split(":", 1)
            headers[key.lower()] = value.strip()
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.seen.append((path, headers, body))
        answer = Answer(self, writer, body, path.endswith("/chat/completions"))
        gone = asyncio.ensure_future(reader.read(1))  # a client sends nothing while it is answered
        work = asyncio.ensure_future(getattr(answer, path.split("/")[1])())
        await asyncio.wait([gone, work], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            self.left += 1
            return False
        await work
        if answer.close:
            writer.transport.abort() if answer.abort else None
            return False
        gone.cancel()
        try:
            await gone
        except asyncio.CancelledError:
            pass
        return True


class Answer:
    def __init__(self, server, writer, body, chat):
        self.server, self.writer, self.body, self.chat = server, writer, body, chat
        self.close = self.abort = False
        self.prompt = body["messages"][0]["content"] if chat else body["prompt"]

    async def send(self, data):
        self.writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self.writer.drain()

    async def head(self, kind="text/event-stream"):
        self.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % kind.encode("latin-1"))
        if self.chat:
            await self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]})

    async def event(self, value):
        await self.send(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")

    async def piece(self, text, finish=None):
        content = {"delta": {"content": text} if text is not None else {}} if self.chat else {"text": text or ""}
        await self.event({"choices": [{"index": 0, "finish_reason": finish, **content}]})

    async def tail(self, finish="length", usage=True, done=True, n=None):
        if finish:
            await self.piece(None, finish)
        if usage:
            words = len(self.prompt.split())
            await self.event({"choices": [], "usage": {"prompt_tokens": words + 10, "completion_tokens": n or self.body["max_tokens"],
                                                       "prompt_tokens_details": {"cached_tokens": 7}}})
        if done:
            await self.event(b"[DONE]")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    async def pieces(self, n=None, pause=0.0):
        for i in range(n or self.body["max_tokens"]):
            await self.piece(" w")
            self.server.n_pieces += 1
            await asyncio.sleep(pause)

    async def status(self, line, body, more=b""):
        self.writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s" % (line, len(body), more, body))
        await self.writer.drain()

    # ---- prefixes of paths

    async def ok(self):
        await self.head()
        await self.pieces()
        await self.tail()

    async def steady(self):
        await self.head()
        await self.pieces(pause=0.02)
        await self.tail()

    async def crowd(self):
        """Begins when 300 connections are open, or after a minute, when they never will be."""
        await self.head()
        for _ in range(6000):
            if self.server.most_open >= 300:
                break
            await asyncio.sleep(0.01)
        await self.pieces()
        await self.tail()

    async def silent(self):
        await self.head()
        await asyncio.sleep(60)

    async def pause(self):
        """One gap of 2 s in the middle."""
        await self.head()
        await self.pieces(2)
        await asyncio.sleep(2)
        await self.pieces(2)
        await self.tail(n=4)

    async def bytewise(self):
        """Each byte in a chunk of its own, lines end as all three kinds."""
        await self.head()
        choice = b'{"choices":[{"index":0,"finish_reason":%s,"delta":{"content":"\xc3\xa9"}}]}'
        text = b"\n: hello\r\nid: 1\rdata: " + choice % b"null" + b"\r\r" + b"data: " + choice % b'"stop"' + b"\r\n\r\ndata:[DONE]\n\n"
        for byte in text:
            await self.send(bytes([byte]))
        await self.tail(finish=None, usage=False, done=False)

    async def uncounted(self):
        await self.head()
        await self.pieces()
        await self.tail(usage=False)

    async def cut(self):
        await self.head()
        await self.pieces(3)
        self.close = self.abort = True

    async def cut_clean(self):
        await self.head()
        await self.pieces(3)
        await self.tail(done=False)

    async def half_event(self):
        await self.head()
        await self.piece(" w", "stop")
        await self.send(b'data: {"choices"')
        self.writer.write(b"0\r\n\r\n")

    async def no_json(self):
        await self.head()
        await self.event(b"{oops")
        await self.tail()

    async def no_field(self):
        await self.head()
        await self.send(b"oops\n\n")
        await self.tail()

    async def no_utf8(self):
        await self.head()
        await self.send(b"data: \xff\n\n")
        await self.tail()

    async def no_finish(self):
        await self.head()
        await self.pieces(2)
        await self.tail(finish=None)

    async def after_done(self):
        await self.head()
        await self.pieces(2)
        await self.piece(None, "stop")
        await self.event(b"[DONE]")
        await self.piece(" w")
        await self.tail(finish=None, usage=False, done=False)

    async def endless_line(self):
        await self.head()
        for _ in range(40):
            await self.send(b"data: " * 10000)
        await asyncio.sleep(5)

    async def html(self):
        await self.head("text/html")
        await self.tail()

    async def odd_type(self):
        await self.head("\xff\xfe/\x1b[31m")
        await self.tail()

    async def odd_error(self):
        await self.status(b"404 No", b"\xff\x00\xfe" * 50)

    async def error_event(self):
        await self.head()
        await self.pieces(1)
        await self.event({"error": {"code": 500, "message": "the slot is gone", "type": "server_error"}})
        await self.tail()

    async def bad(self):
        await self.status(b"400 Bad Request", b'{"error":{"code":400,"message":"no such field"}}')

    async def broken(self):
        await self.status(b"500 Oops", b"<html>")

    async def busy(self):
        """The first two tries of each request are refused."""
        n = self.server.tries[self.prompt] = self.server.tries.get(self.prompt, 0) + 1
        if n > 2:
            return await self.ok()
        await self.status(b"429 Too Many Requests", b'{"error":{"message":"later"}}', b"Retry-After: 1\r\n")

    async def json_answer(self):
        """Every second answer is JSON."""
        self.server.tries["n"] = n = self.server.tries.get("n", 0) + 1
        await self.head()
        await self.piece('{"a":')
        await self.piece("1}" if n % 2 else "")
        await self.tail(finish="stop", n=2)
