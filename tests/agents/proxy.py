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

from dialects import dialect_of, fields, parts_of

AGENT_KEEPS = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}
WEIR_KEEPS = {"content-length", "connection", "transfer-encoding"}


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


class Script:
    """turns: for each of the user's, the calls (name of the tool, arguments) and the text after them. The place in it follows from the body
    alone: the results that it has. So a request that is sent again gets the same answer. continues: a turn's bodies have those before."""

    def __init__(self, turns, continues=True):
        self.turns, self.continues, self.turn = turns, continues, 0  # the turn that runs

    def narrow(self, dialect, body):
        """Makes the body's answer the next line. For the record: the number of results that the body has, and what was forced."""
        done, known = len(dialect.results(body)), self.turns[0 if self.continues else self.turn:self.turn + 1]
        calls, tools = [call for calls, _ in known for call in calls], dialect.tools(body)
        if done < len(calls) and calls[done][0] in tools:
            dialect.force_call(body, *calls[done])
            return done, calls[done][0]
        dialect.force_text(body, self.turns[self.turn][1])
        return done, "text" if done >= len(calls) else f"text: {calls[done][0]} is not among {', '.join(tools) or 'no tools'}"


class Proxy(http.server.ThreadingHTTPServer):
    """script: None changes nothing, and only notes. cut: the place of the answer, among those of the script's calls, that breaks off within its first bytes; None:
    none does.
    The record: requests (what narrow said of each), broken (that of the answer that broke off), refusals (of bodies, once each), hints (what weir does not enforce), fields and parts (of
    all bodies), results (of tools), others (other answers from 400 on)."""
    daemon_threads = True

    def __init__(self, weir, script, cut=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.weir, self.script, self.cut, self.broken = weir, script, cut, None
        self.requests, self.refusals = [], []
        self.hints, self.fields, self.parts, self.results, self.others = set(), set(), set(), set(), set()
        self.lock = threading.Lock()  # all of the above
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def breaks_off(self, step):
        """Notes what narrow said of a request. Whether its answer is the one that breaks off."""
        with self.lock:
            self.requests.append(step)
            n_calls = sum(not forced.startswith("text") for _, forced in self.requests)
            if self.broken or n_calls - 1 != self.cut or step[1].startswith("text"):
                return False
            self.broken = step
            return True


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
        dialect, cut = dialect_of(self.path), False
        if dialect:
            body = json.loads(data)
            with self.server.lock:
                self.server.fields |= {f"{dialect.path} {field}" for field in fields(body)}
                self.server.parts |= parts_of(body)
                self.server.results |= set(dialect.results(body))
            self.mend(body)
            cut = self.server.breaks_off(self.server.script.narrow(dialect, body) if self.server.script else (0, "text"))
            data = json.dumps(body).encode()
        self.pass_on(self.ask(data), cut)

    def pass_on(self, answer, cut=False):
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
                if cut:
                    data = data[:len(data) // 2]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                if cut:
                    return
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass  # the agent has left
        finally:
            answer.close()
