"""Continue's command line `cn`, pointed at weir by its configuration file."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import tempfile

from checks import BASE, MODEL, busy_slots, main, test, until

home = tempfile.TemporaryDirectory()
ENV = {**os.environ, "HOME": home.name, "CONTINUE_GLOBAL_DIR": home.name, "CONTINUE_CLI_ENABLE_TELEMETRY": "0", "CONTINUE_METRICS_ENABLED": "0"}
QUIET = ("--exclude", "*")  # without the agent's tools


def config(name, base, key="any"):
    model = {"name": "weir", "provider": "openai", "model": MODEL, "apiBase": base, "apiKey": key, "roles": ["chat", "edit"],
             "defaultCompletionOptions": {"temperature": 0, "maxTokens": 24}}
    path = os.path.join(home.name, name + ".yaml")
    with open(path, "w") as f:
        json.dump({"name": "weir", "version": "0.0.1", "schema": "v1", "models": [model]}, f)  # JSON is YAML
    return path


PLAIN = config("plain", BASE)


def cn(*words, path=PLAIN, code=0, stdin=""):
    command = [os.path.join(os.environ["WEIR_CLIENTS"], "node", "node_modules", ".bin", "cn"), "--config", path, *words]
    done = subprocess.run(command, capture_output=True, text=True, input=stdin, timeout=300, env=ENV, cwd=home.name)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout.strip() or done.stderr.strip()


@test
def a_prompt():
    assert cn(*QUIET, "-p", "Name three rivers.") == cn(*QUIET, "-p", "Name three rivers.") != ""


@test
def json_for_scripts():
    said = json.loads(cn(*QUIET, "--format", "json", "-p", "Name three rivers."))
    assert said["status"] == "success" and said["response"], said


@test
def text_from_a_pipe():
    assert cn(*QUIET, "-p", "Repeat the text.", stdin="The weir holds water.\n")


@test
def a_conversation_goes_on():
    cn(*QUIET, "-p", "My name is Ada.")
    assert cn(*QUIET, "--resume", "-p", "What is my name?")


@test
def errors_are_told():
    assert "a request holds at most" in cn(*QUIET, "-p", "word " * 20000, code=1)
    wrong = config("wrong", os.environ["WEIR_KEYED_URL"] + "/v1", "wrong")
    assert "API key" in cn(*QUIET, "-p", "Hello!", path=wrong, code=1)


@test
def a_key():
    assert cn(*QUIET, "-p", "Hello!", path=config("keyed", os.environ["WEIR_KEYED_URL"] + "/v1", "s3cret"))


@test
def nothing_runs_on():
    until(lambda: busy_slots() == 0, "idle slots")


main()
