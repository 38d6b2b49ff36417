"""weir serve with a projector, on the fake model: images and sounds in messages, hostile ones too. What real projectors do: server_media_model_test.py."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, eventually, finish  # noqa: E402
from media import image_part, noisy_png, png, sound_part, text64, text_part, wav  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
CHAT = "/v1/chat/completions"
PROMPT = "<|im_start|>system\nLook.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


def body(*parts, **more):
    return dict({"messages": [{"role": "system", "content": "Look."}, {"role": "user", "content": list(parts)}], "max_tokens": 4, "temperature": 0}, **more)


def refused(name, reply, status, field, code, word=""):
    error = reply.error if reply.status >= 400 else {}
    check(f"{name}: {status}, {field}, {code}", (reply.status, error.get("param"), error.get("code")) == (status, field, code) and word in error.get("message", ""),
          reply.status, reply.body[:1000])
    return error.get("message", "")


need_server(WEIR)
PART = "messages[1].content[0]"
URL, DATA = PART + ".image_url.url", PART + ".input_audio.data"

# ---- A model without a projector

server = Server(WEIR, model="fake:")
refused("no projector: an image", server.post(CHAT, body(image_part(png()))), 400, PART, "unsupported_value", "--mmproj")
refused("no projector: a sound", server.post(CHAT, body(sound_part(wav()))), 400, PART, "unsupported_value", "reads no sounds")
refused("a video", server.post(CHAT, body({"type": "video_url"})), 400, PART, "unsupported_value", "known: text, image_url, input_audio")
refused("the library's own word", server.post(CHAT, body({"type": "media_marker", "text": "q"})), 400, PART, "unsupported_value")
check("no modalities", server.get("/props").json["modalities"] == {"vision": False, "audio": False})
server.stop()

# ---- Images

server = Server(WEIR, "--mmproj", "fake:sounds=0", "-np", "4", "-c", "2048", "--media-memory", "32M", model="fake:")
check("modalities", server.get("/props").json["modalities"] == {"vision": True, "audio": False})
check("modalities of the list", server.get("/v1/models").json["data"][0]["architecture"]["input_modalities"] == ["text", "image"])

reply = server.post("/apply-template", body(text_part("a"), image_part(png()), text_part("b"))).json
check("an image takes no text of the prompt", reply["prompt"] == PROMPT.format("ab"), reply)
check("a string instead of an object", server.post("/apply-template", body({"type": "image_url", "image_url": image_part(png())["image_url"]["url"]})).status == 200)
check("another type than it says", server.post("/apply-template", body(image_part(png(), "image/webp"))).status == 200)

whole = png()
for name, url, code, word in (
        ("a remote image", "https://example.com/a.png", "unsupported_value", "fetches nothing"), ("a file", "file:///etc/passwd", "unsupported_value", "data: URL"),
        ("no base64", "data:image/png,abc", "unsupported_value", "base64"), ("bad base64", "data:image/png;base64,a*b", "invalid_value", "base64"),
        ("a digit too many", "data:image/png;base64,abcde", "invalid_value", "base64"), ("nothing", "data:image/png;base64,", "invalid_value", "none of these"),
        ("no image", "data:image/png;base64," + text64(b"<svg/>"), "invalid_value", "none of these"),
        ("a bomb", image_part(png(8, 8, size=(16000, 16000)))["image_url"]["url"], "invalid_value", "allowed"),
        ("too wide", image_part(png(8, 8, size=(60000, 1)))["image_url"]["url"], "invalid_value", "allowed")):
    message = refused(name, server.post(CHAT, body({"type": "image_url", "image_url": {"url": url}})), 400, URL, code, word)
    check(f"{name}: no word of the library's", "max_" not in message, message)
for n in effort((1, 7, 8, 20, 33, 40, len(whole) // 2, len(whole) - 20), (33,)):
    refused(f"cut off after {n} bytes", server.post(CHAT, body(image_part(whole[:n]))), 400, URL, "invalid_value", "cannot be read")
refused("a sound as an image", server.post(CHAT, body(image_part(wav()))), 400, URL, "invalid_value", "must be an image")
refused("a sound", server.post(CHAT, body(sound_part(wav()))), 400, PART, "unsupported_value", "reads no sounds")
for value in ({}, {"url": 5}, 5, [], None):
    refused(f"image_url {value}", server.post(CHAT, body({"type": "image_url", "image_url": value})), 400, URL, "invalid_value", "a string")
refused("the second one of the third message", server.post(CHAT, {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": [text_part("c"), image_part(b"")]}]}), 400, "messages[2].content[1].image_url.url", "invalid_value")

# ---- Answers

def answer(*parts, **more):
    reply = server.post(CHAT, body(*parts, **more))
    return reply.json if reply.status == 200 else {"choices": [{"message": {"content": reply.body}}], "usage": {}}

def text_of(reply):
    return reply["choices"][0]["message"]["content"]

def scores_of(reply):
    """The random models say the same of all; how likely that was differs."""
    return [token["logprob"] for token in reply["choices"][0]["logprobs"]["content"]]

first = answer(image_part(png()), text_part("What?"), max_tokens=12, logprobs=True)
usage = first["usage"]
plain = answer(text_part("What?"), max_tokens=12)
more = usage["prompt_tokens"] - plain["usage"]["prompt_tokens"]
check("an image takes tokens of the prompt", more >= usage["prompt_tokens_details"].get("image_tokens", 0) >= 4, usage, plain["usage"])
check("texts have none", "image_tokens" not in plain["usage"]["prompt_tokens_details"], plain["usage"])
again = answer(image_part(png()), text_part("What?"), max_tokens=12, logprobs=True)
check("the same image again: the same answer, from the cache", scores_of(again) == scores_of(first) and
      again["usage"]["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 2, again["usage"])
other = answer(image_part(png(seed=1)), text_part("What?"), max_tokens=12, logprobs=True)
check("another image: another answer", scores_of(other) != scores_of(first), scores_of(first), scores_of(other))
check("and only what stands before it is cached", other["usage"]["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"] - 4, other["usage"])
scored = answer(image_part(png()), text_part("What?"), max_tokens=1, prompt_logprobs=1)
entries = scored.get("prompt_logprobs", [])
check("logprobs of a prompt: an entry for each token, null for the image's", len(entries) == scored["usage"].get("prompt_tokens") and
      entries.count(None) == 1 + 4, entries, usage)
plan = server.post("/v1/plan", body(image_part(png()), text_part("What?"))).json
check("a dry run counts them", plan["prompt_tokens"] == usage["prompt_tokens"], plan)

# ---- The same in other dialects

def anthropic(data):
    return {"system": "Look.", "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
                                                                        {"type": "text", "text": "What?"}]}], "max_tokens": 12, "temperature": 0}

def responses(data):
    return {"instructions": "Look.", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + data}, {"type": "input_text", "text": "What?"}]}],
            "max_output_tokens": 12, "temperature": 0}

reply = server.post("/v1/messages", anthropic(text64(png()))).json
check("Anthropic's: the same prompt, and so the same cached tokens", reply["content"][0]["text"] == text_of(first) and reply["usage"]["cache_read_input_tokens"] >= usage["prompt_tokens"] - 2 and
      reply["usage"]["cache_read_input_tokens"] + reply["usage"]["input_tokens"] == usage["prompt_tokens"], reply, usage)
check("Anthropic's: counted", server.post("/v1/messages/count_tokens", anthropic(text64(png()))).json == {"input_tokens": usage["prompt_tokens"]})
for detail, told in (("auto", None), ("low", True), ("high", True), (None, None)):
    asked = responses(text64(png()))
    [image] = [part for item in asked["input"] for part in item["content"] if isinstance(item["content"], list) and part["type"] == "input_image"]
    image["detail"] = detail
    mine, other = server.post("/v1/responses", asked), server.post(CHAT, body(dict(image_part(png()), image_url=dict(image_part(png())["image_url"], detail=detail))))
    check(f"the detail {detail} of an image", mine.status == other.status == 200 and mine.headers.get("x-weir-relaxed") == (told and "input[].content[].detail") and
          other.headers.get("x-weir-relaxed") == (told and "messages[].content[].image_url.detail"), mine.headers, other.headers, mine.body[:300])
reply = server.post("/v1/responses", responses(text64(png()))).json
check("Responses: the same prompt", reply["output"][0]["content"][0]["text"] == text_of(first) and reply["usage"]["input_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 2 and
      reply["usage"]["input_tokens"] == usage["prompt_tokens"], reply, usage)
check("Responses: counted", server.post("/v1/responses/input_tokens", responses(text64(png()))).json["input_tokens"] == usage["prompt_tokens"])
for path, given, place in (("/v1/messages", anthropic, "messages[0].content[0]"), ("/v1/responses", responses, "input[0].content[0]")):
    refused(f"{path}: no base64", server.post(path, given("abcde")), 400, place, "invalid_value", place + " must be base64")
    refused(f"{path}: no image", server.post(path, given(text64(b"<svg/>"))), 400, place, "invalid_value", place)
for path, given, place in (("/api/chat", {"messages": [{"role": "user", "content": "a", "images": [text64(png()), "*"]}]}, "messages[0].images[1]"),
                           ("/api/generate", {"prompt": "a", "images": ["*"]}, "images[0]")):
    reply = server.post(path, dict(given, model="default"))
    check(f"{path}: no base64", (reply.status, reply.json["param"]) == (400, place) and reply.json["error"] == place + " must be base64", reply.body)
fetched = responses("")
fetched["input"][0]["content"][0]["image_url"] = "http://127.0.0.1/x.png"
refused("Responses: nothing is fetched", server.post("/v1/responses", fetched), 400, "input[0].content[0]", "unsupported_value", "fetches nothing")
tool = anthropic("")
tool["messages"] += [{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [tool["messages"][0]["content"].pop(0)]}]}]
tool["messages"][2]["content"][0]["content"][0]["source"]["data"] = text64(png())
check("a tool's result with an image", server.post("/v1/messages/count_tokens", tool).json["input_tokens"] > usage["prompt_tokens_details"]["image_tokens"])

events = server.stream(CHAT, body(image_part(png()), text_part("What?"), max_tokens=12, stream_options={"include_usage": True}))
check("streamed: the same", "".join(e["choices"][0]["delta"].get("content", "") for e in events if e["choices"]) == text_of(first) and
      events[-1]["usage"]["prompt_tokens_details"]["image_tokens"] == usage["prompt_tokens_details"]["image_tokens"], events[-1])
two = answer(image_part(png()), image_part(png(seed=1)), text_part("What?"))
check("two images: twice the tokens", two["usage"]["prompt_tokens_details"].get("image_tokens") == 2 * usage["prompt_tokens_details"].get("image_tokens", 0), two["usage"])
several = server.post(CHAT, body(image_part(png()), text_part("What?"), n=2, max_tokens=12)).json
check("several answers", [text_of({"choices": [c]}) for c in several["choices"]] == [text_of(first)] * 2, several)
refused("a fork of such an answer", server.post(CHAT, {"fork": {"id": first["id"]}}), 404, "fork", "not_found")
fits = server.post(CHAT, body(*[image_part(png())] * 400))
refused("more than fit", fits, 400, "messages", "context_length_exceeded")

# ---- Beside texts

expected = text_of(answer(text_part("A text"), max_tokens=60))
replies = {}

def talk(k):
    replies[k] = answer(text_part("A text"), max_tokens=60) if k % 2 else answer(image_part(png(seed=k)), text_part("What?"), max_tokens=12)

threads = [threading.Thread(target=talk, args=(k,)) for k in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check("images beside texts", all(text_of(replies[k]) == expected for k in range(1, 12, 2)) and
      all(replies[k]["usage"].get("prompt_tokens_details", {}).get("image_tokens") for k in range(0, 12, 2)), replies)

# 3,000 × 2,000 pixels are 18 MB of the 32 that all have
big = png(3000, 2000)
refused("two large ones", server.post(CHAT, body(image_part(big), image_part(big))), 413, "messages", "media_too_large", "--media-memory")
large = {"type": "input_image", "image_url": image_part(big)["image_url"]["url"]}
refused("Responses: two large ones", server.post("/v1/responses", {"input": [{"role": "user", "content": [large, large]}]}), 413, "input", "media_too_large")
check("and none of them remains", server.post("/apply-template", body(image_part(big))).status == 200)
many = body(*[image_part(png(8, 8))] * 500)
check("500 small ones", server.post("/apply-template", many).status == 200)

# ---- Clients that vanish

def vanish(k):
    random.seed(k)
    connection = Connection(server)
    data = json.dumps(body(image_part(png(400, 300, k)), stream=k % 2 == 0)).encode()
    connection.send(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode())
    connection.send(data[:len(data) if k % 3 else random.randrange(len(data))])
    time.sleep(random.random() * 0.05)
    connection.sock.close()

threads = [threading.Thread(target=vanish, args=(k,)) for k in range(effort(100, 20))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check("clients that send images and vanish", server.post("/apply-template", body(image_part(png()))).status == 200 and server.get("/health").status == 200)
check("what they sent is forgotten", eventually(lambda: server.post("/apply-template", body(image_part(big))).status == 200))
server.stop()

# ---- Many large images at once

server = Server(WEIR, "--mmproj", "fake:sounds=0,encode_us=50000", "-np", "1", "-c", "2048", "--media-memory", "64M", model="fake:")
statuses, most = [], [0]


def ask_large():
    reply = server.post(CHAT, body(image_part(big)))
    statuses.append((reply.status, reply.json["error"]["code"] if reply.status != 200 else None))
    most[0] = max(most[0], server.resident() >> 20)


threads = [threading.Thread(target=ask_large) for _ in range(100)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check("100 large images at once: each has an answer, or is told to come again", {*statuses} <= {(200, None), (503, "too_many_media"), (429, "queue_full")} and
      (200, None) in statuses, {s: statuses.count(s) for s in statuses})
# The limit, the images that two workers decode just now (12 bytes of each of 6 million pixels), and the bodies. Sanitizers keep freed memory.
if not os.environ.get("WEIR_SANITIZED"):
    check("and their memory has a limit", most[0] < 64 + 2 * 72 + 100, most)
check("afterwards there is room", server.post(CHAT, body(image_part(big))).status == 200)
server.stop()

# ---- Payloads are kept once, whatever the dialect

noise = [noisy_png(1000, 1000, k) for k in range(8)]
bodies = {CHAT: body(*map(image_part, noise)),
          "/v1/messages": {"messages": [{"role": "user", "content": [
              {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text64(data)}} for data in noise]}], "max_tokens": 1},
          "/v1/responses": {"input": [{"role": "user", "content": [
              {"type": "input_image", "image_url": image_part(data)["image_url"]["url"]} for data in noise]}], "max_output_tokens": 1}}
peaks = {}
for path, asked in bodies.items():
    server = Server(WEIR, "--mmproj", "fake:sounds=0", "-np", "1", "-c", "4096", model="fake:")
    before = server.peak()
    reply = server.post(path, asked)
    peaks[path] = server.peak() - before >> 20
    check(f"{path}: eight images", reply.status == 200, reply.body[:300])
    server.stop()
if not os.environ.get("WEIR_SANITIZED"):
    check("dialects take no more memory than chat completions", all(peak < peaks[CHAT] + 15 for peak in peaks.values()), peaks)

# ---- Sounds

server = Server(WEIR, "--mmproj", "fake:images=0", "-np", "2", "-c", "2048", model="fake:")
check("modalities of a model that hears", server.get("/props").json["modalities"] == {"vision": False, "audio": True})
check("a sound", server.post("/apply-template", body(sound_part(wav()), text_part("b"))).json["prompt"] == PROMPT.format("b"))
check("as a data: URL", server.post("/apply-template", body({"type": "input_audio", "input_audio": {"data": "data:audio/wav;base64," + text64(wav())}})).status == 200)
heard = server.post(CHAT, body(sound_part(wav()), text_part("What?")))
check("an answer to a sound", heard.status == 200 and heard.json["usage"]["prompt_tokens_details"].get("audio_tokens", 0) > 0, heard.body)
refused("an image", server.post(CHAT, body(image_part(png()))), 400, PART, "unsupported_value", "reads no images")
for name, sound, word in (("too short", wav(0.05), "0.1"), ("at 1 Hz", wav(1000, 1), "4000")):
    message = refused(name, server.post(CHAT, body(sound_part(sound))), 400, DATA, "unsupported_value", word)
    check(f"{name}: no word of the library's", "max_" not in message, message)
refused("cut off", server.post(CHAT, body(sound_part(wav()[:30]))), 400, DATA, "invalid_value")
server.stop()

# ---- Encoding that takes long, and that fails

server = Server(WEIR, "--mmproj", "fake:encode_us=3600000000", "-np", "2", "-c", "2048", model="fake:token_us=1000")
slow = Connection(server)
data = json.dumps(body(image_part(png()), stream=True)).encode()
slow.send(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
check("an image is encoded for an hour", eventually(lambda: server.busy_slots() == 1))
text = server.post(CHAT, body(text_part("Hi"), max_tokens=8))
check("a text beside an image that is being encoded", text.status == 200, text.body)
slow.sock.close()
check("a client that leaves ends the encoding", eventually(lambda: server.busy_slots() == 0))
server.stop()

server = Server(WEIR, "--mmproj", "fake:broken=1", "-np", "2", "-c", "2048", model="fake:")
reply = server.post(CHAT, body(image_part(png())))
check("embeddings that are no numbers: an error of this request", reply.status == 500 and "finite" in reply.error["message"], reply.body)
check("and of no other", server.post(CHAT, body(text_part("Hi"))).status == 200)
server.stop()

finish()
