"""A proxy between an agent and weir that makes the model follow a script, since a model that fits a test edits no files.

It changes a body in one respect: it narrows the answer to the script's next call or text, by tool_choice and a schema, which weir
enforces. Before that weir gets the agent's own body, unchanged, so that no refusal is hidden; what weir refuses is noted and,
if it names a field, that field is left out, so that one run finds all that is refused.
"""
# SPDX-License-Identifier: Apache-2.0
import http.client
import http.server
import json
import re
import threading
import urllib.parse

from dialects import dialect_of, fields, parts_of, texts

AGENT_KEEPS = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}
WEIR_KEEPS = {"content-length", "connection", "transfer-encoding"}
CUT_TOKENS = 120  # more than what ends a call has, with its white space, and fewer than a path of the script


class Answer:
    """weir's reply to one request; its connection closes with close(), which ends the request in weir, too."""

    def __init__(self, weir, method, path, headers, body):
        self.connection = http.client.HTTPConnection(urllib.parse.urlsplit(weir).netloc, timeout=120)
        self.connection.request(method, path, body, headers)
        self.reply = self.connection.getresponse()
        self.status, self.headers = self.reply.status, self.reply.headers

    def close(self):
        self.connection.close()


def take(body, param):
    """Removes the member that a refusal names from the body, and returns it. LookupError: there is none."""
    *above, last = [int(part) if part.isdigit() else part for part in re.split(r"[/.\[\]]+", param.strip("/]"))]
    try:
        for step in above:
            body = body[step]
        return body.pop(last)
    except (TypeError, AttributeError) as error:
        raise LookupError(param) from error


def parsed(arguments):
    """The dialects have them as JSON or as its text. None: the text is none."""
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return None


class Script:
    """turns: what the user says, the calls (name of the tool, arguments) and the text after them. The place in it follows from the body alone:
    what the user has said, and the results of these calls. So a request that is sent again gets the same answer. cut, breaks: the places of
    the call whose answer ends at its limit of tokens, within the arguments, and of the one whose connection closes within its first bytes;
    each once. None: none does."""

    def __init__(self, turns, cut=None, breaks=None):
        self.turns, self.cut, self.breaks = turns, cut, breaks

    def is_own(self, name, arguments):
        """An agent may add arguments."""
        given = parsed(arguments)
        return isinstance(given, dict) and any(name == own and given == dict(given, **asked) for _, calls, _ in self.turns for own, asked in calls)

    def other_calls(self, dialect, body):
        """The calls in the body's history that are none of these: the one that was cut, as it came or as the client mended it."""
        return [call for call in dialect.calls(body) if not self.is_own(*call[1:])]

    def narrow(self, dialect, body):
        """Makes the body's answer the next line. For the record: the number of results that the body has, and what was forced."""
        others = {number for number, *_ in self.other_calls(dialect, body)}
        done = sum(number not in others for number, _ in dialect.results(body))
        said, tools = texts(body), dialect.tools(body)
        turn = max((i for i, (prompt, _, _) in enumerate(self.turns) if prompt in said), default=0)
        calls = [call for _, calls, _ in self.turns[:turn + 1] for call in calls]
        if done < len(calls) and calls[done][0] in tools:
            dialect.force_call(body, *calls[done])
            return done, calls[done][0]
        dialect.force_text(body, self.turns[turn][2])
        return done, "text" if done >= len(calls) else f"text: {calls[done][0]} is not among {', '.join(tools) or 'no tools'}"


class Proxy(http.server.ThreadingHTTPServer):
    """script: None changes nothing, and only notes. prompts: all that the user says. The record: requests (what narrow said of each), cut
    and broken (that of the answer that was cut, and of the one that broke off), cut_answer (its bytes), ended (which of the two ended a turn),
    refusals (of bodies, once each), hints (what weir does not enforce), fields and parts (of all bodies), results (of tools), others (other
    answers from 400 on)."""
    daemon_threads = True

    def __init__(self, weir, script, prompts=()):
        super().__init__(("127.0.0.1", 0), Handler)
        self.weir, self.script, self.prompts = weir, script, prompts
        self.cut, self.broken, self.cut_answer = None, None, b""
        self.requests, self.refusals, self.ended = [], [], set()
        self.hints, self.fields, self.parts, self.results, self.others = set(), set(), set(), set(), set()
        self.lock = threading.Lock()  # all of the above
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def read(self, dialect, body):
        """Notes what a client's body has."""
        results, said = {text for _, text in dialect.results(body)}, texts(body)
        with self.lock:
            self.fields |= {f"{dialect.path} {field}" for field in fields(body)}
            self.results |= results
            self.parts |= parts_of(body) | ({"call"} if results else set())
            if self.script and self.script.other_calls(dialect, body):
                self.parts.add("cut call")
            if self.prompts and all(prompt in said for prompt in self.prompts):
                self.parts.add("second turn")

    def note(self, step):
        """Notes what narrow said of a request. "cut" or "broken": its answer is the one for that."""
        with self.lock:
            self.requests.append(step)
            if self.script is None or step[1].startswith("text"):
                return None
            if self.cut is None and step[0] == self.script.cut:
                self.cut = step
                return "cut"
            if self.broken is None and step[0] == self.script.breaks:
                self.broken = step
                return "broken"
            return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def ask(self, body):
        headers = {k: v for k, v in self.headers.items() if k.lower() not in AGENT_KEEPS}
        return Answer(self.server.weir, self.command, self.path, headers, body)

    def refused(self, body):
        """Sends the body as it is. None where weir takes it, else its error."""
        answer = self.ask(json.dumps(body).encode())
        try:
            with self.server.lock:
                self.server.hints |= {hint for hint in (answer.headers.get("X-Weir-Relaxed") or "").split("; ") if hint}
            if answer.status < 400:
                return None
            error = json.loads(answer.reply.read())["error"]
            return {"status": answer.status, "param": error.get("param"), "message": error["message"]}
        finally:
            answer.close()

    def mend(self, body):
        """Notes all that weir refuses in the body, and takes it out."""
        named = True
        while named and (error := self.refused(body)) is not None:
            try:
                error["value"] = take(body, error["param"] or "")
            except LookupError:
                named = False
            with self.server.lock:
                if error not in self.server.refusals:
                    self.server.refusals.append(error)

    def do_GET(self):
        self.pass_on(self.ask(None))

    do_HEAD = do_DELETE = do_GET

    def do_POST(self):
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        dialect, end = dialect_of(self.path), None
        if dialect:
            body = json.loads(data)
            self.server.read(dialect, body)
            self.mend(body)
            end = self.server.note(self.server.script.narrow(dialect, body) if self.server.script else (0, "text"))
            if end == "cut":
                self.shorten(dialect, body)
            data = json.dumps(body).encode()
        self.pass_on(self.ask(data), end)

    def shorten(self, dialect, body):
        """Limits the answer so that it ends within the call's arguments; a token is a byte."""
        answer = self.ask(json.dumps({name: value for name, value in dict(body, stream=False).items() if name != "stream_options"}).encode())
        try:
            dialect.limit(body, dialect.generated(json.loads(answer.reply.read())) - CUT_TOKENS)
        finally:
            answer.close()

    def pass_on(self, answer, end=None):
        try:
            if answer.status >= 400:
                with self.server.lock:
                    self.server.others.add(f"{answer.status} {self.command} {self.path.split('?')[0]}")
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in WEIR_KEEPS:
                    self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            if self.command == "HEAD":
                return
            while data := answer.reply.read1(65536):
                if end == "broken":
                    data = data[:len(data) // 2]
                elif end == "cut":
                    self.server.cut_answer += data
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                if end == "broken":
                    return
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the agent has left
        finally:
            answer.close()
