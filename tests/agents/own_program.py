"""Packages that a short program of ours makes an agent: programs/SCRIPT, with two tools and the packages' own variables."""
# SPDX-License-Identifier: Apache-2.0
FILES = {}


def environment(url):
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "any", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any", "OLLAMA_HOST": url,
            "LANGCHAIN_TRACING_V2": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_API_BASE": f"{url}/v1", "LITELLM_MODEL": "anthropic/local", "OPENAI_AGENTS_API": "responses"}


def read(path):
    return "read_file", {"path": path}


def edit(path, old, new):
    return "edit_file", {"path": path, "old": old, "new": new}


def words(turn, again, prompt, image):
    return [prompt] + [image] * turn
