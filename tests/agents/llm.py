"""The command llm, by chat completions."""
# SPDX-License-Identifier: Apache-2.0
import json
import os

from own_program import edit, environment, read  # noqa: F401

PROGRAM = "bin/llm"
CUT = 1
FILES = {".config/io.datasette.llm/extra-openai-models.yaml": json.dumps([  # JSON is YAML
    {"model_id": "local", "model_name": "local", "api_base": "{url}/v1", "supports_tools": True, "vision": True}])}
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "tools.py")


def words(turn, prompt, image, home):
    # Only an answer that is no stream is asked for again.
    more = ["-c", "-a", image] if turn else ["-s", "You edit files.", "--no-stream"]
    return ["-m", "local", "--functions", TOOLS, *more, prompt]
