"""weir serve with a projector, on small random models (scripts/tiny_gguf.py, tiny_mmproj.py): images and sounds in messages."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from checks import check, effort, results  # noqa: E402
from media import image_part, png, sound_part, text64, text_part, wav  # noqa: E402
from serve import Connection, Server, need_server  # noqa: E402

WEIR = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ["WEIR_BIN"])
SCRIPTS = os.path.join(os.environ.get("WEIR_SOURCE_DIR", "."), "scripts")
CHAT = "/v1/chat/completions"


def make(script, *words):
    subprocess.run([sys.executable, os.path.join(SCRIPTS, script), *words], check=True)


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

with tempfile.TemporaryDirectory() as folder:
    paths = {name: os.path.join(folder, name + ".gguf") for name in ("swa", "llama", "gemma3", "ultravox")}
    make("tiny_gguf.py", "swa", paths["swa"])
    make("tiny_gguf.py", "llama", paths["llama"])
    make("tiny_mmproj.py", "gemma3", paths["gemma3"])
    make("tiny_mmproj.py", "ultravox", paths["ultravox"])
    template = os.path.join(folder, "template.jinja")
    with open(template, "w") as file:
        file.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>")

    # ---- Images

    server = Server(WEIR, "--mmproj", paths["gemma3"], "--chat-template-file", template, "-np", "4", "-c", "2048", "--media-memory", "32M", model=paths["swa"])
    check("modalities", server.get("/props").json["modalities"] == {"vision": True, "audio": False})
    check("modalities of the list", server.get("/v1/models").json["data"][0]["architecture"]["input_modalities"] == ["text", "image"])

    reply = server.post("/apply-template", body(text_part("a"), image_part(png()), text_part("b"))).json
    check("an image takes no text of the prompt", reply["prompt"] == "<system>Look.\n<user>ab\n<assistant>", reply)
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

    # 3,000 × 2,000 pixels are 18 MB of the 32 that all have
    big = png(3000, 2000)
    refused("two large ones", server.post(CHAT, body(image_part(big), image_part(big))), 413, "messages", "media_too_large", "--media-memory")
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
    last = None
    for _ in range(200):
        last = server.post("/apply-template", body(image_part(big)))
        if last.status == 200:
            break
        time.sleep(0.05)
    check("what they sent is forgotten", last.status == 200, last.body)
    server.stop()

    # ---- Sounds

    server = Server(WEIR, "--mmproj", paths["ultravox"], "--chat-template-file", template, "-np", "2", "-c", "2048", model=paths["llama"])
    check("modalities of a model that hears", server.get("/props").json["modalities"] == {"vision": False, "audio": True})
    check("a sound", server.post("/apply-template", body(sound_part(wav()), text_part("b"))).json["prompt"] == "<system>Look.\n<user>b\n<assistant>")
    check("as a data: URL", server.post("/apply-template", body({"type": "input_audio", "input_audio": {"data": "data:audio/wav;base64," + text64(wav())}})).status == 200)
    refused("an image", server.post(CHAT, body(image_part(png()))), 400, PART, "unsupported_value", "reads no images")
    refused("too short", server.post(CHAT, body(sound_part(wav(0.05)))), 400, DATA, "unsupported_value", "0.1")
    refused("at 1 Hz", server.post(CHAT, body(sound_part(wav(1000, 1)))), 400, DATA, "unsupported_value")
    refused("cut off", server.post(CHAT, body(sound_part(wav()[:1000]))), 400, DATA, "invalid_value")
    server.stop()

print(f"{results['passed']} passed, {results['failed']} failed")
sys.exit(1 if results["failed"] else 0)
