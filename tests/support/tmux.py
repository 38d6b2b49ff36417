"""A program in tmux, as a person sees and uses it."""
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess
import tempfile
import time

import checks
from checks import PATIENCE, check

scratch = tempfile.TemporaryDirectory()
n_sockets = 0


def environment(**more):
    clean = {k: v for k, v in checks.environment(HOME=scratch.name, LC_ALL="C.UTF-8").items()
             if not k.startswith(("XDG_", "TMUX")) and k not in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")}
    clean.update(more)
    return clean


def missing():
    if shutil.which("tmux") is None:
        print("note: no tmux")
        return True
    return False


class Tmux:
    """A shell's command in a window of its own; the shell reports its exit code, and whether the terminal's settings are unchanged."""

    def __init__(self, columns, rows, command, **env):
        global n_sockets
        n_sockets += 1
        self.socket = os.path.join(scratch.name, f"tmux{n_sockets}")
        assignments = [f"{k}={v}" for k, v in environment(TERM="screen-256color", **env).items() if k != "PATH"]
        script = f'before=$(stty -g); {command}; echo ended with $?; [ "$(stty -g)" = "$before" ] && echo as before; sleep 1000'
        self.run("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows), "env", "-i", f"PATH={os.environ['PATH']}", *assignments,
                 "bash", "--norc", "-c", script)

    def run(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, *words], capture_output=True, text=True, env=environment()).stdout

    def keys(self, *keys):
        self.run("send-keys", *keys)

    def type(self, text):
        self.run("send-keys", "-l", text)

    def paste(self, text):
        """As a terminal pastes: newlines as carriage returns, marked where the program has asked for it."""
        self.run("set-buffer", text)
        self.run("paste-buffer", "-p")

    def resize(self, columns, rows):
        self.run("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self, styled=False):
        return self.run("capture-pane", "-p", *(["-e"] if styled else []))

    def wait(self, name, condition):
        """Until condition(screen) holds."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            screen = self.screen()
            if condition(screen):
                return check(name, True)
            time.sleep(0.05)
        return check(name, False, self.screen())

    def close(self):
        self.run("kill-server")


def last(screen):
    lines = [line for line in screen.split("\n") if line.strip()]
    return lines[-1] if lines else ""
