"""`weir serve` for tests: started on a free port of the loopback interface, ended when the test ends."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from webdriver import free_port

PATIENCE = 120  # s, to load a model on a machine that is busy

# Who ends the test ends its servers too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


class WeirServer:
    """WEIR_BIN with the model WEIR_TEST_MODEL; `words` are further options. Use as a context manager."""

    def __init__(self, *words, log=None, port=None):
        self.words, self.log = words, log
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None
        self.start()

    def start(self):
        command = [os.environ["WEIR_BIN"], "serve", "-m", os.environ["WEIR_TEST_MODEL"], "--host", "127.0.0.1", "--port", str(self.port), *self.words]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
        self.process = subprocess.Popen(command, env=clean, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        end = time.monotonic() + PATIENCE
        while not self.healthy():
            if self.process.poll() is not None:
                raise RuntimeError(f"{' '.join(command)}: ended with {self.process.returncode}")
            if time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"no 200 from /health in {PATIENCE} s")
            time.sleep(0.1)

    def healthy(self):
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def get(self, path, key=None):
        """(status, headers, body)"""
        request = urllib.request.Request(self.url + path, headers={"Authorization": "Bearer " + key} if key else {})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=PATIENCE) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.headers, e.read().decode()

    def post(self, path, body):
        """The response, to be read and closed."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE)

    def busy_slots(self, key=None):
        slots = json.loads(self.get("/slots", key)[2])
        return sum(slot["state"] != "idle" for slot in (slots["slots"] if isinstance(slots, dict) else slots))

    def stop(self, how=signal.SIGTERM):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
