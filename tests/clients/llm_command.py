"""The `llm` command line, pointed at weir by its own configuration file."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import tempfile

from checks import BASE, MODEL, main, test

home = tempfile.TemporaryDirectory()
with open(os.path.join(home.name, "extra-openai-models.yaml"), "w") as f:
    json.dump([{"model_id": "weir", "model_name": MODEL, "api_base": BASE, "supports_schema": True, "supports_tools": True}], f)  # JSON is YAML


def llm(*words, code=0):
    done = subprocess.run([sys.executable, "-m", "llm", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300,
                          env={**os.environ, "LLM_USER_PATH": home.name})
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


@test
def knows_the_model():
    assert "weir" in llm("models").stdout


@test
def a_prompt_with_and_without_streaming():
    words = ("-m", "weir", "-s", "You are brief.", "-o", "temperature", "0", "-o", "max_tokens", "24", "Name three rivers.")
    streamed, whole = llm(*words).stdout, llm(*words, "--no-stream").stdout
    assert streamed.strip() and streamed == whole


@test
def a_conversation_goes_on():
    llm("-m", "weir", "-o", "max_tokens", "16", "My name is Ada.")
    assert llm("-c", "-o", "max_tokens", "16", "What is my name?").stdout.strip()
    logged = json.loads(llm("logs", "--json", "-n", "2").stdout)
    assert len({entry["conversation_id"] for entry in logged}) == 1


@test
def a_schema():
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
              "required": ["name", "age"], "additionalProperties": False}
    given = json.loads(llm("-m", "weir", "-o", "max_tokens", "200", "--schema", json.dumps(schema), "Invent a person.").stdout)
    assert set(given) == {"name", "age"} and 0 <= given["age"] <= 150


@test
def a_tool_is_offered():
    # A model of this size may or may not call it; the server has to understand the request.
    assert llm("-m", "weir", "-o", "max_tokens", "48", "-o", "temperature", "0", "-T", "llm_version", "Which version is this?").returncode == 0


@test
def an_error_is_told():
    done = llm("-m", "weir", "word " * 20000, code=1)  # longer than the context
    assert "Error" in done.stderr, done.stderr


main()
