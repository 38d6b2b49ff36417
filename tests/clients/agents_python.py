"""OpenAI's Agents SDK: a loop with a tool, by the Responses API and by chat completions."""
# SPDX-License-Identifier: Apache-2.0
import asyncio

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from checks import BASE, MODEL, main, test

set_tracing_disabled(True)
towns = []


def model(kind=OpenAIResponsesModel):
    """With a client of its own: one belongs to the loop of asyncio that uses it first."""
    return kind(model=MODEL, openai_client=AsyncOpenAI(base_url=BASE, api_key="any", max_retries=0))


@function_tool
def weather(town: str) -> str:
    """The weather of a town."""
    towns.append(town)
    return "sunny"


def loop(kind, **settings):
    """The model must call the tool first, and answers then: the SDK resets the choice after a call."""
    towns.clear()
    agent = Agent(name="guide", instructions="You are brief.", model=model(kind), tools=[weather],
                  model_settings=ModelSettings(temperature=0, max_tokens=60, tool_choice="weather", **settings))
    return asyncio.run(Runner.run(agent, "How is the weather in Ulm?", max_turns=4))


def check_loop(result):
    assert len(towns) >= 1 and all(isinstance(t, str) for t in towns), towns
    kinds = [item.type for item in result.new_items]
    assert kinds[:2] == ["tool_call_item", "tool_call_output_item"] and "message_output_item" in kinds and result.final_output, kinds


@test
def a_loop_by_responses():
    check_loop(loop(OpenAIResponsesModel))


@test
def a_loop_by_responses_that_are_not_kept():
    check_loop(loop(OpenAIResponsesModel, store=False))


@test
def a_loop_by_chat_completions():
    check_loop(loop(OpenAIChatCompletionsModel))


main()
