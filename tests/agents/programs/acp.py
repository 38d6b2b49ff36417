"""An agent by the Agent Client Protocol, as editors run it: acp.py PROGRAM MODEL PROMPT..., each prompt a turn of one session. Prints what the
agent says."""
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys

program, model, *prompts = sys.argv[1:]
agent = subprocess.Popen([program, "--acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
numbers = iter(range(1000))


def send(**message):
    agent.stdin.write(json.dumps(dict(message, jsonrpc="2.0")) + "\n")
    agent.stdin.flush()


def call(method, **params):
    """The method's result. Meanwhile the agent's texts are printed, and all that it asks for is allowed."""
    number = next(numbers)
    send(id=number, method=method, params=params)
    for line in agent.stdout:
        message = json.loads(line)
        if message.get("method") == "session/update":
            update = message["params"]["update"]
            if update["sessionUpdate"] == "agent_message_chunk":
                print(update["content"].get("text", ""), end="", flush=True)
        elif message.get("method") == "session/request_permission":
            option = next(o for o in message["params"]["options"] if o["kind"].startswith("allow"))
            send(id=message["id"], result={"outcome": {"outcome": "selected", "optionId": option["optionId"]}})
        elif message.get("id") == number and "method" not in message:
            if "error" in message:
                sys.exit(json.dumps(message["error"]))
            return message["result"]
    sys.exit("the agent has ended")


call("initialize", protocolVersion=1, clientCapabilities={})
session = call("session/new", cwd=os.getcwd(), mcpServers=[])["sessionId"]
call("session/set_model", sessionId=session, modelId=model)
for prompt in prompts:
    print(call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": prompt}]))
agent.terminate()
