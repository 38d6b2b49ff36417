"""How the bodies of the four APIs name tools, calls and results, and how an answer is forced: to one call of a tool, or to one text."""
# SPDX-License-Identifier: Apache-2.0
import json


def only(value):
    return {"const": value}


def arguments_schema(arguments):
    return {"type": "object", "properties": {k: only(v) for k, v in arguments.items()}, "required": list(arguments), "additionalProperties": False}


def texts(value):
    """All texts within a value, joined."""
    if isinstance(value, str):
        return value
    return "\n".join(texts(v) for v in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else []))


class Dialect:
    """COUNT: the usage's member with the tokens of the answer; LIMIT: the body's field with the most of them."""

    @classmethod
    def generated(cls, answer):
        return answer["usage"][cls.COUNT]

    @classmethod
    def limit(cls, body, n):
        body[cls.LIMIT] = n


class Responses(Dialect):
    path = "/v1/responses"
    COUNT, LIMIT = "output_tokens", "max_output_tokens"

    @staticmethod
    def results(body):
        items = body["input"] if isinstance(body["input"], list) else []
        return [(item.get("call_id"), texts(item["output"])) for item in items if item.get("type") in ("function_call_output", "custom_tool_call_output")]

    @staticmethod
    def calls(body):
        items = body["input"] if isinstance(body["input"], list) else []
        return [(item["call_id"], item["name"], item["arguments"]) for item in items if item.get("type") == "function_call"]

    @staticmethod
    def tools(body):
        return {tool["name"]: tool for tool in body.get("tools") or [] if tool.get("type") == "function"}

    @classmethod
    def force_call(cls, body, name, arguments):
        cls.tools(body)[name]["parameters"] = arguments_schema(arguments)
        body["tool_choice"] = {"type": "function", "name": name}

    @staticmethod
    def force_text(body, text):
        if body.get("tools"):
            body["tool_choice"] = "none"
        body["text"] = dict(body.get("text") or {}, format={"type": "json_schema", "name": "answer", "schema": only(text)})


class Messages(Dialect):
    path = "/v1/messages"
    COUNT, LIMIT = "output_tokens", "max_tokens"

    @staticmethod
    def results(body):
        return [(block.get("tool_use_id"), texts(block.get("content"))) for message in body["messages"] if isinstance(message["content"], list)
                for block in message["content"] if block.get("type") == "tool_result"]

    @staticmethod
    def calls(body):
        return [(block["id"], block["name"], block["input"]) for message in body["messages"] if isinstance(message["content"], list)
                for block in message["content"] if block.get("type") == "tool_use"]

    @staticmethod
    def tools(body):
        return {tool["name"]: tool for tool in body.get("tools") or [] if "input_schema" in tool}

    @classmethod
    def force_call(cls, body, name, arguments):
        cls.tools(body)[name]["input_schema"] = arguments_schema(arguments)
        body["tool_choice"] = {"type": "tool", "name": name}

    @staticmethod
    def force_text(body, text):
        if body.get("tools"):
            body["tool_choice"] = {"type": "none"}
        body["output_config"] = dict(body.get("output_config") or {}, format={"type": "json_schema", "schema": only(text)})


class Chat(Dialect):
    path = "/v1/chat/completions"
    COUNT, LIMIT = "completion_tokens", "max_tokens"

    @classmethod
    def limit(cls, body, n):
        body.pop("max_completion_tokens", None)
        super().limit(body, n)

    @staticmethod
    def results(body):
        return [(message.get("tool_call_id"), texts(message.get("content"))) for message in body["messages"] if message["role"] == "tool"]

    @staticmethod
    def calls(body):
        return [(call.get("id"), call["function"]["name"], call["function"]["arguments"]) for message in body["messages"] for call in message.get("tool_calls") or []]

    @staticmethod
    def tools(body):
        return {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"}

    @classmethod
    def force_call(cls, body, name, arguments):
        cls.tools(body)[name]["parameters"] = arguments_schema(arguments)
        body["tool_choice"] = {"type": "function", "function": {"name": name}}

    @staticmethod
    def force_text(body, text):
        if body.get("tools"):
            body["tool_choice"] = "none"
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": only(text)}}


class Ollama(Chat):
    path = "/api/chat"

    @staticmethod
    def generated(answer):
        return answer["eval_count"]

    @staticmethod
    def limit(body, n):
        body["options"] = dict(body.get("options") or {}, num_predict=n)

    @staticmethod
    def force_text(body, text):
        if body.get("tools"):
            body["tool_choice"] = "none"
        body["format"] = only(text)


def dialect_of(path):
    """None: no request that a model answers."""
    path = path.split("?")[0]
    return next((d for d in (Responses, Messages, Chat, Ollama) if path == d.path), None)


def parts_of(body):
    """What a loop should have, and this body has: an image, a cut call, a system message behind the first user's."""
    said = body.get("messages") or body.get("input")
    said = [message for message in said if isinstance(message, dict)] if isinstance(said, list) else []
    roles = [message.get("role") for message in said]
    later = roles[roles.index("user"):] if "user" in roles else []
    parts = {"image": {"image", "input_image", "image_url"} & set(values(said, "type")) or any(message.get("images") for message in said),
             "cut call": not all(map(is_json, values(said, "arguments"))), "system message": {"system", "developer"} & set(later)}
    return {name for name, found in parts.items() if found}


def values(value, key):
    """All texts that are members of this name."""
    for name, member in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if name == key and isinstance(member, str):
            yield member
        yield from values(member, key)


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# Members whose keys are words of an agent or its user, not fields.
OPEN = {"arguments", "client_metadata", "input", "metadata"}
SCHEMAS = {"parameters", "input_schema", "schema"}


def kind_of(value):
    return "null" if value is None else {bool: "boolean", str: "string", dict: "object", list: "array"}.get(type(value), "number")


def schema_fields(schema, path):
    """Each keyword once, wherever it stands in the schema; the names of properties are left out."""
    found = set()
    for key, member in schema.items():
        found.add(f"{path}..{key} = {member}" if key in ("type", "format") and isinstance(member, str) else f"{path}..{key} {kind_of(member)}")
        if key in ("properties", "patternProperties", "$defs", "definitions") and isinstance(member, dict):
            below = member.values()
        else:
            below = member if isinstance(member, list) else [member]
        for part in below:
            if isinstance(part, dict) and key not in ("const", "default", "enum", "examples"):
                found |= schema_fields(part, path)
    return found


def fields(value, path=""):
    """The paths of all fields of a body, each with its type; of a "type" or "role" also the value. No other text of the body is in them."""
    name = path.split(".")[-1]
    if isinstance(value, dict) and name in SCHEMAS:
        return schema_fields(value, path)
    if isinstance(value, dict) and value and name not in OPEN:
        return set().union(*(fields(member, f"{path}.{key}" if path else key) for key, member in value.items()))
    if isinstance(value, list) and value:
        return set().union(*(fields(item, path + "[]") for item in value))
    return {f"{path} = {value}" if name in ("type", "role") and isinstance(value, str) else f"{path} {kind_of(value)}"}
