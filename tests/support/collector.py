"""A collector of OpenTelemetry on this machine, which keeps the spans that a server sends."""
# SPDX-License-Identifier: Apache-2.0
import http.server
import json
import threading
import time

from checks import PATIENCE

# The environment of a server that sends its spans soon.
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_EXPORTER_OTLP_TIMEOUT": "300000", "NO_PROXY": "*"}


class Collector:
    """Keeps the bodies that it gets; statuses: of its answers, the last one stays."""

    def __init__(self, statuses=(200,), answer=b"{}"):
        collector = self
        self.statuses, self.bodies, self.heads, self.changed = list(statuses), [], [], threading.Condition()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with collector.changed:
                    status = collector.statuses.pop(0) if len(collector.statuses) > 1 else collector.statuses[0]
                    collector.heads.append((self.path, dict(self.headers)))
                    if status == 200:
                        collector.bodies.append(json.loads(body))
                    collector.changed.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def spans(self):
        with self.changed:
            return [span for body in self.bodies for r in body["resourceSpans"] for s in r["scopeSpans"] for span in s["spans"]]

    def wait(self, condition):
        """The spans, as soon as the condition holds for them; the last ones if it never does."""
        end = time.monotonic() + PATIENCE
        while not condition(self.spans()) and time.monotonic() < end:
            with self.changed:
                self.changed.wait(1)
        return self.spans()

    def requests(self, n):
        """The spans, once there are n of requests."""
        return self.wait(lambda spans: sum(s["kind"] == 2 for s in spans) >= n)

    def close(self):
        self.http.shutdown()
        self.http.server_close()
