"""The examples of the guides, run as their readers would.

A fenced block with a name behind its language is one: ```sh NAME holds commands, and ```text NAME after it what they print, where …
stands for anything. A block of another language whose name has a dot (```python rag.py) is a file in the folder where the commands
run. A block of commands that begins with `weir serve` starts a server, which the later ones of the page ask instead of the one at
127.0.0.1:8080."""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import shlex
import subprocess

from checks import PATIENCE, check, environment
from serve import Server

ADDRESS = "127.0.0.1:8080"  # in the guides


def blocks(path):
    """(language, name, text) of each named block."""
    with open(path, encoding="utf-8") as f:
        return re.findall(r"^```(\w+) ([\w.-]+)\n(.*?)^```$", f.read(), re.S | re.M)


def matches(expected, printed):
    """Whether a text has these lines, in this order and without others between them, … standing for anything."""
    pattern = re.escape(expected.strip()).replace("…", ".*")
    return re.search(pattern, printed, re.S) is not None


class Guide:
    """A page that is read from its beginning. folder: an empty one, for its files; env: further variables."""

    def __init__(self, path, folder, weir, model, env):
        self.name, self.folder, self.weir, self.model = os.path.basename(path), str(folder), weir, model
        self.blocks, self.env, self.server, self.printed = blocks(path), env, None, {}

    def address(self):
        return f"127.0.0.1:{self.server.port}" if self.server else ADDRESS

    def serve(self, text):
        self.stop()
        words = shlex.split(text.replace("\\\n", " "), comments=True)[2:]
        here = os.getcwd()
        os.chdir(self.folder)
        try:
            self.server = Server(self.weir, *words, model=self.model, env=dict(environment(), **self.env))
        finally:
            os.chdir(here)

    def stop(self):
        if self.server:
            self.server.stop()
            self.server = None

    def run(self, name, text):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text.replace(ADDRESS, self.address())], cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE * 4, env=dict(environment(), **self.env))
        self.printed[name] = done.stdout + done.stderr
        check(f"{self.name}: {name}", done.returncode == 0, done.returncode, done.stdout, done.stderr)

    def play(self):
        """All of it."""
        try:
            for language, name, text in self.blocks:
                if "." in name and language != "sh":
                    with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
                        f.write(text.replace(ADDRESS, self.address()))
                elif language == "sh" and text.startswith("weir serve"):
                    self.serve(text)
                elif language == "sh":
                    self.run(name, text)
                elif language == "text":
                    printed = self.printed.get(name, "").replace(self.address(), ADDRESS)
                    check(f"{self.name}: what {name} prints", matches(text, printed), printed)
        finally:
            self.stop()
