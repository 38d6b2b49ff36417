"""Images and sounds on the server's page, in headless Chromium, with small random models (scripts/tiny_gguf.py, tiny_mmproj.py)."""
# SPDX-License-Identifier: Apache-2.0
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile

import page
from page import ANSWER, main, test

sys.path.insert(0, os.path.join(page.here, os.pardir, "support"))
from media import png, wav  # noqa: E402

SCRIPTS = os.path.join(page.here, os.pardir, os.pardir, "scripts")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
GIF = b"GIF89a\x02\0\x01\0\x80\0\0\xff\0\0\0\0\xff,\0\0\0\0\x02\0\x01\0\0\x02\x02\x44\x0a\0;"  # two pixels
folder = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(folder.name, name)


def write(name, data):
    with open(path(name), "wb") as file:
        file.write(data)
    return path(name)


def make(model, projector):
    """What a server of these is started with."""
    for script, kind in (("tiny_gguf.py", model), ("tiny_mmproj.py", projector)):
        if not os.path.exists(path(kind)):
            subprocess.run([sys.executable, os.path.join(SCRIPTS, script), kind, path(kind)], check=True)
    return ("--mmproj", path(projector), "--chat-template-file", write("template", TEMPLATE.encode()))


def start(*words, log):
    return page.Server(os.environ["WEIR_BIN"], *make("swa", "gemma3"), *words, model=path("swa"), log=log)


page.start = start


def record(p):
    """Keeps the requests from now on."""
    p.b.js("""window.asked = [];
        const real = window.fetch;
        window.fetch = (path, options) => {
          if (String(path).endsWith("chat/completions")) asked.push(options.body);
          return real(path, options);
        };""")


def asked(p):
    return [json.loads(body)["messages"] for body in p.b.js("return asked")]


def url_of(part):
    return part["image_url"]["url"]


def size_of(p, selector):
    return p.b.js("const c = document.querySelector(arguments[0]); return c && c.width > 1 ? [c.width, c.height] : null", selector)


@test
def an_image_is_sent_shown_and_kept(p):
    p.fresh(max_tokens=8)
    record(p)
    small = png()
    p.b.type("#attach-file", write("small.png", small))
    p.b.wait(lambda: size_of(p, "#attached canvas") == [48, 36], "the preview")
    p.ask("What is this?")
    p.complete()
    content = asked(p)[0][-1]["content"]
    assert content == [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(small).decode()}}, {"type": "text", "text": "What is this?"}], content
    p.b.wait(lambda: size_of(p, ".message.user canvas") == [64, 48], "the image in the conversation")
    p.shoot("media")
    assert not p.b.js("return document.getElementById('attached').children.length")
    # A second question, and a reload: the image stays in the conversation.
    p.ask("And now?")
    p.complete()
    assert asked(p)[1][0]["content"] == content
    p.reload()
    p.b.wait(lambda: size_of(p, ".message.user canvas") == [64, 48], "the image after a reload")
    assert not p.complaints(), p.complaints()


@test
def unsupported_images_are_encoded_anew(p):
    p.fresh(max_tokens=4)
    record(p)
    p.b.type("#attach-file", write("two.gif", GIF))
    p.b.type("#attach-file", write("large.png", png(2000, 1000)))
    p.b.wait(lambda: p.b.count("#attached li") == 2, "both")
    p.ask("Compare")
    p.complete()
    parts = asked(p)[0][-1]["content"]
    assert [url_of(part)[:23] for part in parts[:2]] == ["data:image/jpeg;base64,"] * 2, [url_of(part)[:40] for part in parts[:2]]
    p.b.wait(lambda: size_of(p, ".message.user .file:nth-child(2) canvas") == [320, 160], "the large one")
    data = base64.b64decode(url_of(parts[1])[23:])
    at = 2
    while data[at + 1] not in (0xC0, 0xC2):  # the JPEG's size stands in its SOF
        at += 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
    assert struct.unpack(">HH", data[at + 5:at + 9]) == (512, 1024)


@test
def images_are_pasted_and_dropped(p):
    p.fresh(max_tokens=4)
    data = base64.b64encode(png()).decode()
    p.b.js("""const file = new File([Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0))], "shot.png", { type: "image/png" });
        const held = new DataTransfer();
        held.items.add(file);
        document.getElementById("text").dispatchEvent(new ClipboardEvent("paste", { clipboardData: held, bubbles: true, cancelable: true }));
        dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));""", data)
    p.b.wait(lambda: p.b.count("#attached canvas") == 2, "two images")
    p.b.click("#attached [aria-label='Remove shot.png']")
    p.b.wait(lambda: p.b.count("#attached canvas") == 1, "one of them")


@test
def files_that_cannot_be_attached_are_named(p):
    p.fresh()
    notice = lambda: p.b.text("#notice") or ""  # noqa: E731
    p.b.type("#attach-file", write("broken.png", png()[:60]))
    p.b.wait(lambda: "broken.png cannot be attached: this browser cannot read it." in notice(), "a notice")
    p.b.type("#attach-file", write("sound.wav", wav(0.5)))
    p.b.wait(lambda: "sound.wav cannot be attached: this model reads no sounds." in notice(), "a notice")
    assert p.b.count("#attached li") == 0
    assert p.b.js("return document.getElementById('attach').title") == "Attach texts, images or sounds"


@test
def an_export_keeps_images(p):
    p.fresh(max_tokens=4)
    p.b.type("#attach-file", write("small.png", png()))
    p.b.wait(lambda: p.b.count("#attached canvas") == 1, "the preview")
    p.ask("Keep it")
    p.complete()
    kept = p.b.js("""const { toJson, fromText, toMarkdown } = await import("./chatfile.js");
        const { loadChats } = await import("./store.js");
        const [chat] = loadChats(), [again] = fromText(toJson([chat]));
        const evil = fromText(JSON.stringify({ format: "weir chats", chats: [{ messages: [{ role: "user", content: "a", files: [
          { name: "a", image: "https://example.com/a.png" }, { name: "b", image: "data:text/html;base64,AAAA" }] }] }] }))[0];
        return [chat.messages[0].files, again.messages[0].files, toMarkdown(chat).includes("(with small.png)"), evil.messages[0].files];""")
    assert kept[0] == kept[1] and kept[2], kept
    assert kept[3] == [{"name": "a", "text": ""}, {"name": "b", "text": ""}], kept[3]


@test
def sounds(p):
    log = open(os.path.join(page.OUT, "media-sounds.log"), "w")
    words = make("llama", "ultravox")
    with log, page.Server(os.environ["WEIR_BIN"], *words, "-c", "4096", model=path("llama"), log=log) as server:
        there = page.Page(p.b, server)
        there.fresh(max_tokens=4)
        record(there)
        there.b.type("#attach-file", write("short.wav", wav(0.5)))
        there.b.type("#attach-file", write("long.wav", wav(30, 48000)))
        there.b.wait(lambda: there.b.count("#attached .sound") == 2, "two sounds")
        there.ask("What is said?")
        there.complete()
        first, second, _text = asked(there)[0][-1]["content"]
        assert first == {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav(0.5)).decode(), "format": "wav"}}
        data = base64.b64decode(second["input_audio"]["data"])
        assert data[:4] == b"RIFF" and struct.unpack("<I", data[24:28])[0] == 16000 and abs(len(data) - 44 - 30 * 32000) < 3200, len(data)
        there.b.type("#attach-file", write("small.png", png()))
        there.b.wait(lambda: "this model reads no images" in (there.b.text("#notice") or ""), "a notice")
        assert there.b.count(ANSWER) == 1


@test
def a_model_without_a_projector(p):
    with open(os.path.join(page.OUT, "media-none.log"), "w") as log, page.Server(os.environ["WEIR_BIN"], "-c", "512", model="fake:", log=log) as server:
        there = page.Page(p.b, server)
        there.fresh()
        there.b.type("#attach-file", write("small.png", png()))
        there.b.wait(lambda: "this model reads no images; one that does has a projector" in (there.b.text("#notice") or ""), "a notice")
        assert there.b.js("return document.getElementById('attach').title") == "Attach text files"


main("media")
