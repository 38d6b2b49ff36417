# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests that scale one list, one text or one nesting: body.make(size) has about `size` bytes. Twice the size is twice the work,
unless some code compares all with all."""


class Body:
    def __init__(self, path, name, make):
        self.path, self.name, self.make = path, name, make


def several(head, item, tail, size, between=","):
    """head, as many items as fit, tail; item: a text, or a function of the item's number."""
    if isinstance(item, str):
        n = max(1, (size - len(head) - len(tail)) // (len(item) + len(between)))
        return (head + between.join([item] * n) + tail).encode()
    items, room, i = [], size - len(head) - len(tail), 0
    while room > 0:
        items.append(item(i))
        room -= len(items[-1]) + len(between)
        i += 1
    return (head + between.join(items) + tail).encode()


def halves(head, first, middle, second, tail, size):
    """Two lists of as many items each, first(i, n) and second(i, n)."""
    n = max(1, (size - len(head + middle + tail)) // (len(first(999999, 1999999)) + len(second(999999, 1999999)) + 2))
    return (head + ",".join(first(i, n) for i in range(n)) + middle + ",".join(second(i, n) for i in range(n)) + tail).encode()


def filled(head, text, tail, size):
    """head, a text as often as it fits, tail."""
    return (head + text * max(1, (size - len(head) - len(tail)) // len(text)) + tail).encode()


HELLO = '{"role":"user","content":"hello"}'
DROPPED = "x-anthropic-billing-header:"  # a line that agents send and servers drop


def lists(open_, close):
    """Values that read slowly for their size, as the value between the two texts."""
    deep = "[" * 90 + "]" * 90
    return {
        "numbers": lambda size: several(open_ + "[", "1", "]" + close, size),
        "empty arrays": lambda size: several(open_ + "[", "[]", "]" + close, size),
        "empty objects": lambda size: several(open_ + "[", "{}", "]" + close, size),
        "empty texts": lambda size: several(open_ + "[", '""', "]" + close, size),
        "short objects": lambda size: several(open_ + "[", '{"a":1}', "]" + close, size),
        "reals": lambda size: several(open_ + "[", "1.5e-7", "]" + close, size),
        "members": lambda size: several(open_ + "{", lambda i: f'"k{i}":1', "}" + close, size),
        "empty members": lambda size: several(open_ + "{", lambda i: f'"k{i}":null', "}" + close, size),
        "nested arrays": lambda size: several(open_ + "[", deep, "]" + close, size),
        "whole numbers beyond 64 bits": lambda size: several(open_ + "[", "12345678901234567890", "]" + close, size),
        "one long number": lambda size: filled(open_ + "1.", "7", close, size),
        "one long text": lambda size: filled(open_ + '"', "a", '"' + close, size),
        "escapes": lambda size: filled(open_ + '"', "\\n", '"' + close, size),
        "escapes of control characters": lambda size: filled(open_ + '"', "\\u0001", '"' + close, size),
        "escaped pairs": lambda size: filled(open_ + '"', "\\ud83d\\ude00", '"' + close, size),
        "halves of pairs": lambda size: filled(open_ + '"', "\\ud83d", '"' + close, size),
        "white space": lambda size: filled(open_ + "1", " ", close, size),
        "brackets that do not end": lambda size: filled(open_, '[{"a":', close, size),
    }


SCHEMAS = {
    "enum": lambda h, t, s: several(h + '{"enum":[', lambda i: f'"e{i}"', "]}" + t, s),
    "properties": lambda h, t, s: several(h + '{"type":"object","properties":{', lambda i: f'"p{i}":{{"type":"string"}}', "}}" + t, s),
    "required": lambda h, t, s: halves(h + '{"type":"object","properties":{', lambda i, n: f'"p{i}":{{}}', '},"required":[', lambda i, n: f'"p{n - 1 - i}"', "]}" + t, s),
    "anyOf": lambda h, t, s: several(h + '{"anyOf":[', lambda i: f'{{"const":{i}}}', "]}" + t, s),
    "allOf": lambda h, t, s: several(h + '{"allOf":[', lambda i: f'{{"properties":{{"p{i}":{{}}}}}}', "]}" + t, s),
    "references": lambda h, t, s: halves(h + '{"anyOf":[', lambda i, n: f'{{"$ref":"#/$defs/d{i}"}}', '],"$defs":{', lambda i, n: f'"d{i}":{{"const":{i}}}', "}}" + t, s),
    "description": lambda h, t, s: filled(h + '{"type":"object","description":"', "a", '"}' + t, s),
    "pattern": lambda h, t, s: filled(h + '{"type":"string","pattern":"^', "(a|b)", '$"}' + t, s),
    "unknown keywords": lambda h, t, s: several(h + '{"type":"object",', lambda i: f'"x{i}":1', "}" + t, s),
    "nested": lambda h, t, s: several(h + '{"type":"array","prefixItems":[', '{"items":' * 20 + "{}" + "}" * 20, "]}" + t, s),
    "nested objects": lambda h, t, s: several(h + '{"type":"array","prefixItems":[', '{"properties":{"a":{},"b":' * 20 + "{}" + "}}" * 20, "]}" + t, s),
    "excluded texts": lambda h, t, s: several(h + '{"type":"string","not":{"enum":[', lambda i: f'"e{i}"', "]}}" + t, s),
    "excluded numbers": lambda h, t, s: several(h + '{"type":"integer","not":{"enum":[', lambda i: f"{2 * i}", "]}}" + t, s),
    "oneOf": lambda h, t, s: several(h + '{"oneOf":[', lambda i: f'{{"type":"object","required":["p{i}"]}}', "]}" + t, s),
    "conditions": lambda h, t, s: several(h + '{"type":"object","allOf":[', lambda i: f'{{"if":{{"required":["a{i}"]}},"then":{{"required":["p{i}"]}}}}', "]}" + t, s),
    "dependencies": lambda h, t, s: several(h + '{"type":"object","dependentRequired":{', lambda i: f'"p{i}":["q{i}"]', "}}" + t, s),
    "patterns of names": lambda h, t, s: several(h + '{"type":"object","patternProperties":{', lambda i: f'"^p{i}$":{{}}', "}}" + t, s),
    "names": lambda h, t, s: halves(h + '{"type":"object","required":[', lambda i, n: f'"p{i}"', '],"propertyNames":{"enum":[', lambda i, n: f'"p{n - 1 - i}"', "]}}" + t, s),
    "contains": lambda h, t, s: several(h + '{"type":"array","allOf":[', lambda i: f'{{"contains":{{"const":{i}}}}}', "]}" + t, s),
    "different items": lambda h, t, s: several(h + '{"type":"array","uniqueItems":true,"items":{"enum":[', lambda i: f'"e{i}"', "]}}" + t, s),
    "unevaluated properties": lambda h, t, s: several(h + '{"type":"object","unevaluatedProperties":false,"allOf":[', lambda i: f'{{"properties":{{"p{i}":{{}}}}}}', "]}" + t, s),
    "references to names": lambda h, t, s: halves(h + '{"anyOf":[', lambda i, n: f'{{"$dynamicRef":"#d{i}"}}', '],"$defs":{', lambda i, n: f'"d{i}":{{"$dynamicAnchor":"d{i}","const":{i}}}', "}}" + t, s),
    "references to ids": lambda h, t, s: halves(h + '{"anyOf":[', lambda i, n: f'{{"$ref":"http://a/d{i}"}}', '],"$defs":{', lambda i, n: f'"d{i}":{{"$id":"http://a/d{i}","const":{i}}}', "}}" + t, s),
}


def sampling(head, tail=""):
    """Fields of the sampler, behind a body's first ones."""
    end = "}" + tail
    return {
        "stops": lambda s: several(head + ',"stop":[', '"ab"', "]" + end, s),
        "long stops": lambda s: (head + ',"stop":[' + ",".join('"' + "a" * (s // 64) + f'{i}"' for i in range(64)) + "]" + end).encode(),
        "biases": lambda s: several(head + ',"logit_bias":{', lambda i: f'"{i}":1', "}" + end, s),
        "biases in pairs": lambda s: several(head + ',"logit_bias":[', "[1,1]", "]" + end, s),
        "breakers": lambda s: several(head + ',"dry_multiplier":0.5,"dry_sequence_breakers":[', '"ab"', "]" + end, s),
        "long breakers": lambda s: (head + ',"dry_multiplier":0.5,"dry_sequence_breakers":[' +
                                    ",".join('"' + "a" * (s // 64) + f'{i}"' for i in range(64)) + "]" + end).encode(),
        "samplers": lambda s: several(head + ',"samplers":[', '"top_k"', "]" + end, s),
        "samplers in a text": lambda s: filled(head + ',"samplers":"top_k', ";top_k", '"' + end, s),
        "adapters": lambda s: several(head + ',"lora":[', '{"id":0,"scale":0}', "]" + end, s),
        "a grammar's alternatives": lambda s: filled(head + ',"grammar":"root ::= \\"a\\"', ' | \\"a\\"', '"' + end, s),
        "a grammar's rules": lambda s: several(head + ',"grammar":"root ::= r0\\n', lambda i: f"r{i} ::= r{i + 1}", '"' + end, s, between="\\n"),
        "a long salt": lambda s: filled(head + ',"cache_salt":"', "a", '"' + end, s),
        "no field": lambda s: several(head + ",", lambda i: f'"x{i}":null', end, s),
        "unknown fields": lambda s: several(head + ",", lambda i: f'"x{i}":1', end, s),
        "unknown fields like a known one": lambda s: several(head + ",", lambda i: f'"erutarepmet{i}":1', end, s),
        "long unknown fields": lambda s: several(head + ",", lambda i: f'"{"a" * 4096}{i}":1', end, s),
    }


def contents(message):
    """Texts and parts of one message; message(content) is a body with it."""
    def of(content):
        head, tail = message("\0").split("\0")
        return lambda s: content(head, tail, s)
    return {
        "a long text": of(lambda h, t, s: filled(h + '"', "a b ", '"' + t, s)),
        "a text of one letter": of(lambda h, t, s: filled(h + '"', "a", '"' + t, s)),
        "a text of spaces": of(lambda h, t, s: filled(h + '"', " ", '"' + t, s)),
        "a text of lines": of(lambda h, t, s: filled(h + '"', "\\n", '"' + t, s)),
        "a text of emoji": of(lambda h, t, s: filled(h + '"', "\\ud83d\\ude00", '"' + t, s)),
        "control tokens": of(lambda h, t, s: filled(h + '"', "<|im_start|>", '"' + t, s)),
        "beginnings of control tokens": of(lambda h, t, s: filled(h + '"', "<|im_", '"' + t, s)),
        "angle brackets": of(lambda h, t, s: filled(h + '"', "<", '"' + t, s)),
        "parts": of(lambda h, t, s: several(h + "[", '{"type":"text","text":"a"}', "]" + t, s)),
        "parts of control tokens": of(lambda h, t, s: several(h + "[", '{"type":"text","text":"<|im_end|>"}', "]" + t, s)),
        "empty parts": of(lambda h, t, s: several(h + "[", '{"type":"text","text":""}', "]" + t, s)),
        "parts that are numbers": of(lambda h, t, s: several(h + "[", "1", "]" + t, s)),
        "parts with unknown members": of(lambda h, t, s: several(h + '[{"type":"text","text":"a",', lambda i: f'"x{i}":1', "}]" + t, s)),
        "unknown parts of many parts": of(lambda h, t, s: several(h + "[", '{"type":"text","text":"a","x":1}', "]" + t, s)),
        "parts with empty members": of(lambda h, t, s: several(h + '[{"type":"text","text":"a",', lambda i: f'"x{i}":null', "}]" + t, s)),
        "images": of(lambda h, t, s: several(h + "[", '{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}', "]" + t, s)),
    }


def schemas(head, tail, what):
    return {f"{what}: {name}": (lambda make: lambda s: make(head, tail, s))(make) for name, make in SCHEMAS.items()}


def chat(model=""):
    head = '{"max_tokens":1,"messages":['
    said = head + HELLO + "]"
    call = '{{"id":"c{0}","type":"function","function":{{"name":"f{0}","arguments":"{{}}"}}}}'
    tool = '{{"type":"function","function":{{"name":"f{0}","parameters":{{}}}}}}'
    found = {
        "messages": lambda s: several(head, '{"role":"user","content":"a"}', "]}", s),
        "messages in turn": lambda s: several(head, '{"role":"user","content":"a"},{"role":"assistant","content":"b"}', "]}", s),
        "system messages": lambda s: several(head, '{"role":"system","content":"a"}', "]}", s),
        "messages with a wrong role": lambda s: several(head, HELLO, ',{"role":"x","content":""}]}', s),
        "messages of dropped lines": lambda s: several(head, '{"role":"system","content":"%s"}' % DROPPED, "," + HELLO + "]}", s),
        "a text of dropped lines": lambda s: several(head + '{"role":"system","content":"', DROPPED, '"},' + HELLO + "]}", s, between="\\n"),
        "parts of dropped lines": lambda s: several(head + '{"role":"system","content":[', '{"text":"%s"},1' % DROPPED, "]}," + HELLO + "]}", s),
        "dropped parts before others": lambda s: halves(head + '{"role":"system","content":[', lambda i, n: '{"text":"%s"}' % DROPPED, ",", lambda i, n: "1,1,1,1,1,1,1,1,1,1",
                                                        "]}," + HELLO + "]}", s),
        "calls of custom tools": lambda s: several(head + HELLO + ',{"role":"assistant","tool_calls":[', '{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}', "]}]}", s),
        "refusals": lambda s: several(head + '{"role":"assistant","content":[', '{"type":"refusal","refusal":"a"}', "]}," + HELLO + "]}", s),
        "custom tools": lambda s: several(said + ',"tools":[', lambda i: f'{{"type":"custom","custom":{{"name":"f{i}"}}}}', "]}", s),
        "tools of other servers": lambda s: several(said + ',"tools":[', '{"type":"web_search"}', "]}", s),
        "numbers as messages": lambda s: several(head, "1", "]}", s),
        "empty members of a message": lambda s: several(head + '{"role":"user","content":"a",', lambda i: f'"x{i}":null', "}]}", s),
        "what else is in a message": lambda s: several(head + '{"role":"user","content":"a","annotations":[', "{}", "]}]}", s),
        "reasoning": lambda s: filled(head + '{"role":"assistant","content":"a","reasoning_content":"', "a ", '"},' + HELLO + "]}", s),
        "calls": lambda s: several(head + HELLO + ',{"role":"assistant","content":null,"tool_calls":[', call.format, ']},{"role":"tool","tool_call_id":"c0","content":"x"}]}', s),
        "long arguments": lambda s: filled(head + HELLO + ',{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\\"a\\":\\"',
                                           "a ", '\\"}"}}]},{"role":"tool","tool_call_id":"c","content":"x"}]}', s),
        "calls and results": lambda s: halves(head + HELLO + ',{"role":"assistant","content":null,"tool_calls":[', lambda i, n: call.format(i), "]},",
                                              lambda i, n: f'{{"role":"tool","tool_call_id":"c{n - 1 - i}","content":"x"}}', "]}", s),
        "tools": lambda s: several(said + ',"tools":[', tool.format, "]}", s),
        "1,024 tools with long names": lambda s: several(said + ',"tools":[', lambda i: tool.format(i) if i < 1023 else tool.format("x" * max(1, s - 1023 * 70)), "]}", s),
        "allowed tools": lambda s: several(said + ',"tools":[' + ",".join(map(tool.format, range(200))) + '],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[',
                                           tool.format(199), "]}}}", s),
        "tools and allowed tools": lambda s: halves(said + ',"tools":[', lambda i, n: tool.format(i), '],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[',
                                                    lambda i, n: tool.format(n - 1), "]}}}", s),
        "a named tool": lambda s: several(said + ',"tools":[', tool.format, '],"tool_choice":{"type":"function","function":{"name":"absent"}}}', s),
        "variables of the template": lambda s: several(said + ',"chat_template_kwargs":{', lambda i: f'"v{i}":1', "}}", s),
        "metadata": lambda s: several(said + ',"metadata":{', lambda i: f'"v{i}":1', "}}", s),
    }
    for name, make in lists(said + ',"chat_template_kwargs":{"v":', "}}").items():
        found["a variable of the template: " + name] = make
    found.update(contents(lambda content: head + '{"role":"user","content":' + content + "}]}"))
    found.update({"system: " + name: make for name, make in contents(lambda content: head + '{"role":"system","content":' + content + "}," + HELLO + "]}").items()})
    found.update(sampling(said))
    found.update(schemas(said + ',"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":', "}}}", "schema"))
    found.update(schemas(said + ',"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":', "}}}}]}", "tool"))
    return found


def completions():
    head = '{"max_tokens":1,"prompt":'
    found = contents(lambda content: head + content + "}")
    for name in [name for name in found if "part" in name or name == "images"]:
        del found[name]
    found.update({"ids": lambda s: several(head + "[", "1", "]}", s), "prompts": lambda s: several(head + "[", '"a"', "]}", s),
                  "prompts of ids": lambda s: several(head + "[", "[1]", "]}", s), "suffix": lambda s: filled(head + '"a","suffix":"', "a ", '"}', s)})
    found.update({"prompt: " + name: make for name, make in lists(head, "}").items()})
    found.update(sampling(head + '"a"'))
    found.update(schemas(head + '"a","json_schema":', "}", "schema"))
    return found


def infill():
    head = '{"n_predict":1,"input_prefix":"a","input_suffix":"b"'
    return {"files": lambda s: several(head + ',"input_extra":[', lambda i: f'{{"filename":"f{i}","text":"a"}}', "]}", s),
            "a long prefix": lambda s: filled('{"n_predict":1,"input_suffix":"b","input_prefix":"', "a\\n", '"}', s),
            "a long suffix": lambda s: filled('{"n_predict":1,"input_prefix":"b","input_suffix":"', "a\\n", '"}', s),
            "infill samplers": lambda s: several(head + ',"samplers":[', '"infill"', "]}", s)}


def messages():
    head = '{"max_tokens":1,"messages":['
    said = head + HELLO + "]"
    use = '{{"type":"tool_use","id":"c{0}","name":"f{0}","input":{{}}}}'
    tool = '{{"name":"f{0}","input_schema":{{"type":"object"}}}}'
    found = {
        "messages": lambda s: several(head, '{"role":"user","content":"a"}', "]}", s),
        "messages in turn": lambda s: several(head, '{"role":"user","content":"a"},{"role":"assistant","content":"b"}', "]}", s),
        "system texts": lambda s: several(said + ',"system":[', '{"type":"text","text":"a"}', "]}", s),
        "dropped system texts": lambda s: several(said + ',"system":[', '{"type":"text","text":"%s"},{"type":"text","text":""}' % DROPPED, "]}", s),
        "uses": lambda s: several(head + HELLO + ',{"role":"assistant","content":[', use.format, "]}]}", s),
        "uses and results": lambda s: halves(head + HELLO + ',{"role":"assistant","content":[', lambda i, n: use.format(i), ']},{"role":"user","content":[',
                                             lambda i, n: f'{{"type":"tool_result","tool_use_id":"c{n - 1 - i}","content":"x"}}', "]}]}", s),
        "thinking": lambda s: several(head + HELLO + ',{"role":"assistant","content":[', '{"type":"thinking","thinking":"a","signature":""}', ']},{"role":"user","content":"a"}]}', s),
        "texts and results in turn": lambda s: several(head + HELLO + ',{"role":"user","content":[', '{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"c"}', "]}]}", s),
        "tools": lambda s: several(said + ',"tools":[', tool.format, "]}", s),
        "a named tool": lambda s: several(said + ',"tools":[', tool.format, '],"tool_choice":{"type":"tool","name":"absent"}}', s),
        "stop sequences": lambda s: several(said + ',"stop_sequences":[', '"ab"', "]}", s),
        "metadata": lambda s: several(said + ',"metadata":{', lambda i: f'"v{i}":1', "}}", s),
    }
    answer = head + HELLO + ',{"role":"assistant","content":['
    found.update({
        "tools of other servers": lambda s: several(said + ',"tools":[', '{"type":"web_search_20250305","name":"web_search"}', "]}", s),
        "searches and results": lambda s: several(answer, '{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[]}', "]}]}", s),
        "a result of many": lambda s: several(answer + '{"type":"web_search_tool_result","tool_use_id":"s","content":[', '{"type":"web_search_result","url":"u","encrypted_content":"QUJD"}', "]}]}]}", s),
        "skipped blocks": lambda s: several(answer, '{"type":"redacted_thinking","data":"x"}', ']},' + HELLO + "]}", s),
        "summaries": lambda s: several(answer, '{"type":"compaction","content":"a"},{"type":"text","text":"b"}', ']},' + HELLO + "]}", s),
        "system blocks": lambda s: several(head + '{"role":"user","content":[', '{"type":"mid_conv_system","content":[]},{"type":"text","text":"a"}', "]}]}", s),
        "references to tools": lambda s: several(head + HELLO + ',{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[', '{"type":"tool_reference","tool_name":"f"}', "]}]}]}", s),
        "documents": lambda s: several(head + '{"role":"user","content":[', '{"type":"document","title":"t","source":{"type":"text","data":"a"}}', "]}]}", s),
    })
    found.update(contents(lambda content: head + '{"role":"user","content":' + content + "}]}"))
    found["images"] = lambda s: several(head + '{"role":"user","content":[', '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}', "]}]}", s)
    found.update(schemas(said + ',"tools":[{"name":"f","input_schema":{"type":"object","properties":{"a":', "}}}]}", "tool"))
    return found


def responses():
    head = '{"max_output_tokens":1,"input":['
    said = '{"max_output_tokens":1,"input":"hello"'
    call = '{{"type":"function_call","call_id":"c{0}","name":"f{0}","arguments":"{{}}"}}'
    tool = '{{"type":"function","name":"f{0}","parameters":{{}}}}'
    found = {
        "items": lambda s: several(head, HELLO, "]}", s),
        "system items": lambda s: several(head, '{"role":"developer","content":"a"}', "," + HELLO + "]}", s),
        "assistant items": lambda s: several(head + HELLO + ",", '{"role":"assistant","content":"a"}', "]}", s),
        "calls": lambda s: several(head + HELLO + ",", call.format, "]}", s),
        "calls and outputs": lambda s: halves(head + HELLO + ",", lambda i, n: call.format(i), ",", lambda i, n: f'{{"type":"function_call_output","call_id":"c{n - 1 - i}","output":"x"}}', "]}", s),
        "custom calls": lambda s: several(head + HELLO + ",", lambda i: f'{{"type":"custom_tool_call","call_id":"c{i}","name":"f","input":"x"}}', "]}", s),
        "reasoning": lambda s: several(head + HELLO + ",", '{"type":"reasoning","summary":[{"type":"summary_text","text":"a"}]}', "]}", s),
        "reasoning in one": lambda s: several(head + HELLO + ',{"type":"reasoning","summary":[', '{"type":"summary_text","text":"a"}', "]}," + HELLO + "]}", s),
        "instructions": lambda s: filled(said + ',"instructions":"', "a ", '"}', s),
        "tools": lambda s: several(said + ',"tools":[', tool.format, "]}", s),
        "namespaces": lambda s: several(said + ',"tools":[', lambda i: f'{{"type":"namespace","name":"n{i}","tools":[]}}', "]}", s),
        "a namespace of long words": lambda s: several(said + ',"tools":[{"type":"namespace","name":"n","description":"' + "a" * 65536 + '","tools":[', tool.format, "]}]}", s),
        "custom tools": lambda s: several(said + ',"tools":[', lambda i: f'{{"type":"custom","name":"f{i}"}}', "]}", s),
        "a custom tool's expression": lambda s: filled(said + ',"tools":[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"regex","definition":"', "(a|b)", '"}}]}', s),
        "a custom tool's rules": lambda s: several(said + ',"tools":[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"lark","definition":"start: r0\\n',
                                                   lambda i: f'r{i}: \\"a\\" r{i + 1}', '"}}]}', s, between="\\n"),
        "a custom tool's alternatives": lambda s: filled(said + ',"tools":[{"type":"custom","name":"f","format":{"type":"grammar","syntax":"lark","definition":"start: \\"a\\"', ' | \\"a\\"', '"}}]}', s),
        "256 custom tools": lambda s: several(said + ',"tools":[', lambda i: f'{{"type":"custom","name":"f{i}","format":{{"type":"grammar","syntax":"regex","definition":"{"(a|b)" * (s // 256 // 5 - 20)}"}}}}', "]}", s),
        "allowed tools": lambda s: halves(said + ',"tools":[', lambda i, n: tool.format(i), '],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[',
                                          lambda i, n: f'{{"type":"function","name":"f{n - 1}"}}', "]}}", s),
        "include": lambda s: several(said + ',"include":[', '"reasoning.encrypted_content"', "]}", s),
        "metadata": lambda s: several(said + ',"metadata":{', lambda i: f'"v{i}":1', "}}", s),
        "images": lambda s: several(head + '{"role":"user","content":[', '{"type":"input_image","image_url":"data:image/png;base64,AAAA"}', "]}]}", s),
        "parts": lambda s: several(head + '{"role":"user","content":[', '{"type":"input_text","text":"a"}', "]}]}", s),
    }
    found.update({
        "tools of other servers": lambda s: several(said + ',"tools":[', '{"type":"web_search"}', "]}", s),
        "tools that items bring": lambda s: several(head, '{"type":"additional_tools","tools":[{"type":"function","name":"f"}]}', "," + HELLO + "]}", s),
        "allowed tools of other servers": lambda s: several(said + ',"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[', '{"type":"web_search"}', "]}}", s),
        "skipped items": lambda s: several(head, '{"type":"compaction","encrypted_content":"x"}', "," + HELLO + "]}", s),
        "searches": lambda s: several(head + HELLO + ",", '{"type":"web_search_call","action":{"type":"search","query":"a"}}', "]}", s),
        "calls of files and their results": lambda s: several(head + HELLO + ",", '{"type":"file_search_call","queries":["a"],"results":[{"text":"b","file_id":"c"}]}', "]}", s),
        "refusals": lambda s: several(head + '{"role":"assistant","content":[', '{"type":"refusal","refusal":"a"}', "]}]}", s),
    })
    found.update({name: make for name, make in contents(lambda content: head + '{"role":"user","content":' + content + "}]}").items() if "part" not in name and name != "images"})
    found.update(schemas(said + ',"text":{"format":{"type":"json_schema","name":"x","schema":', "}}}", "schema"))
    return found


def api_chat():
    head = '{"stream":false,"options":{"num_predict":1},"messages":['
    said = head + HELLO + "]"
    call = '{{"function":{{"name":"f{0}","arguments":{{}}}}}}'
    found = {
        "messages": lambda s: several(head, '{"role":"user","content":"a"}', "]}", s),
        "calls": lambda s: several(head + HELLO + ',{"role":"assistant","content":"","tool_calls":[', call.format, "]}]}", s),
        "calls and named results": lambda s: halves(head + HELLO + ',{"role":"assistant","content":"","tool_calls":[', lambda i, n: call.format(i), "]},",
                                                    lambda i, n: f'{{"role":"tool","tool_name":"f{n - 1 - i}","content":"x"}}', "]}", s),
        "calls and unnamed results": lambda s: halves(head + HELLO + ',{"role":"assistant","content":"","tool_calls":[', lambda i, n: call.format(i), "]},",
                                                      lambda i, n: '{"role":"tool","content":"x"}', "]}", s),
        "calls and results of one tool": lambda s: halves(head + HELLO + ',{"role":"assistant","content":"","tool_calls":[', lambda i, n: call.format(0), "]},",
                                                          lambda i, n: '{"role":"tool","tool_name":"f0","content":"x"}', "]}", s),
        "calls and results of no tool": lambda s: halves(head + HELLO + ',{"role":"assistant","content":"","tool_calls":[', lambda i, n: call.format(i), "]},",
                                                         lambda i, n: '{"role":"tool","tool_name":"g","content":"x"}', "]}", s),
        "thinking": lambda s: filled(head + '{"role":"assistant","content":"a","thinking":"', "a ", '"},' + HELLO + "]}", s),
        "images": lambda s: several(head + '{"role":"user","content":"a","images":[', '"AAAA"', "]}]}", s),
        "options": lambda s: several('{"stream":false,"messages":[' + HELLO + '],"options":{', lambda i: f'"o{i}":1', "}}", s),
        "null options": lambda s: several('{"stream":false,"messages":[' + HELLO + '],"options":{"num_predict":1,', lambda i: f'"o{i}":null', "}}", s),
        "tools": lambda s: several(said + ',"tools":[', '{"type":"function","function":{"name":"f","parameters":{}}}', "]}", s),
        "keep_alive": lambda s: filled(said + ',"keep_alive":"', "1m", '"}', s),
    }
    found.update({name: make for name, make in contents(lambda content: head + '{"role":"user","content":' + content + "}]}").items() if "part" not in name and name != "images"})
    found.update(schemas(said + ',"format":', "}", "format"))
    return found


def api_generate():
    head = '{"stream":false,"options":{"num_predict":1},"prompt":'
    found = {name: make for name, make in contents(lambda content: head + content + "}").items() if "part" not in name and name != "images"}
    found.update({"raw: " + name: make for name, make in contents(lambda content: head + content + ',"raw":true}').items() if "part" not in name and name != "images"})
    found["images"] = lambda s: several(head + '"a","images":[', '"AAAA"', "]}", s)
    found["system"] = lambda s: filled(head + '"a","system":"', "a ", '"}', s)
    return found


def plain(field, more=""):
    head = "{" + more + f'"{field}":'
    found = {name: make for name, make in contents(lambda content: head + content + "}").items() if "part" not in name and name != "images"}
    found.update(lists(head, "}"))
    found["texts"] = lambda s: several(head + "[", '"a"', "]}", s)
    found["ids of several"] = lambda s: several(head + "[", "[1]", "]}", s)
    return found


def rerank():
    head = '{"query":"a","documents":['
    return {"documents": lambda s: several(head, '"a"', "]}", s), "documents with a text": lambda s: several(head, '{"text":"a"}', "]}", s),
            "a long query": lambda s: filled('{"documents":["a"],"query":"', "a ", '"}', s), "a long document": lambda s: filled(head + '"', "a ", '"]}', s),
            "2048 documents": lambda s: (head + ",".join('"' + "a " * max(1, (s // 2048 - 3) // 2) + '"' for _ in range(2048)) + "]}").encode()}


def every_body():
    """All of them."""
    table = {
        "/v1/chat/completions": chat, "/apply-template": chat, "/v1/chat/completions/render": chat, "/v1/completions": completions,
        "/v1/completions/render": completions, "/completion": completions, "/infill": infill, "/v1/messages": messages, "/v1/messages/count_tokens": messages,
        "/v1/responses": responses, "/v1/responses/input_tokens": responses, "/api/chat": api_chat, "/api/generate": api_generate,
        "/v1/embeddings": lambda: plain("input"), "/api/embed": lambda: plain("input"), "/api/embeddings": lambda: plain("prompt"), "/v1/rerank": rerank,
        "/tokenize": lambda: plain("content"), "/detokenize": lambda: plain("tokens"), "/v1/plan": chat,
        "/lora-adapters": lambda: {"adapters": lambda s: several("[", '{"id":0,"scale":0}', "]", s)},
        "/api/show": lambda: lists('{"model":', "}"), "/v1/models/load": lambda: lists('{"model":', "}"), "/v1/prefixes": lambda: plain("text"),
    }
    return [Body(path, name, make) for path, of in table.items() for name, make in of().items()]
