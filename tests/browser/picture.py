"""The picture of README: the server's page while eight requests run and a long prompt arrives. Argument: the file to write."""
# SPDX-License-Identifier: Apache-2.0
import os
import sys
import threading
import time

from page import OUT, STORY, Browser, Page, start

QUESTIONS = ["Describe the sea in spring.", "Name ten rivers and where they end.", "Explain how a water mill works.",
             "Write a letter from a lock keeper to his sister.", "What do herons eat, and when?", "Tell a story about a bridge."]


def ask(server, text, n_tokens):
    server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": n_tokens, "ignore_eos": True})


def main():
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "picture.log"), "w") as log, start("-np", "8", "-c", "4096", log=log) as server, Browser(log) as browser:
        page = Page(browser, server)
        page.fresh(max_tokens=700, seed=3)
        page.show_engine()
        page.endless()
        page.ask(STORY)
        page.growing()
        loads = [(question, 900) for question in QUESTIONS] + [(" ".join(QUESTIONS * 60), 300)]
        threads = [threading.Thread(target=ask, args=(server, *load), daemon=True) for load in loads]
        for thread in threads:
            thread.start()
            time.sleep(0.15)
        browser.wait(lambda: browser.js("return document.querySelectorAll('#slots tr[data-state=generating]').length") >= 6, "slots that generate")
        time.sleep(2.5)
        browser.screenshot(sys.argv[1])


main()
