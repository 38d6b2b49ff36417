// async-openai, in loops of tool calls by both APIs: two turns, a call that is cut and sent back, a system message in between, an image. The
// model is the fake one, with a token for each byte, so that what is added to a prompt can be counted. Arguments: names of tests, to run only
// these.
// SPDX-License-Identifier: Apache-2.0
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::*;
use async_openai::types::responses as api;
use async_openai::Client;
use futures::{FutureExt, StreamExt};
use serde_json::{from_value, json, Value};
use std::env::var;

const REPORT: &str = "It is sunny there, and warm: 21 degrees.";
const QUESTION: &str = "How is the weather in Ulm?";
const SYSTEM: &str = "From now on be brief, whatever is asked.";
const PICTURE: &str = "And what is in this picture?";

type Done = Result<(), Box<dyn std::error::Error>>;
type Got<T> = Result<T, Box<dyn std::error::Error>>;

fn client() -> Client<OpenAIConfig> {
    Client::with_config(OpenAIConfig::new().with_api_base(var("WEIR_FAKE_URL").unwrap() + "/v1").with_api_key("any"))
}

fn parameters() -> Value {
    json!({"type": "object", "properties": {"town": {"type": "string", "enum": ["Ulm", "Bonn"]}}, "required": ["town"], "additionalProperties": false})
}

/// The arguments are what the schema allows.
fn check_town(arguments: &str) {
    let given: Value = serde_json::from_str(arguments).unwrap();
    assert!(given == json!({"town": "Ulm"}) || given == json!({"town": "Bonn"}), "{given}");
}

// ---- Chat completions

#[derive(Default)]
struct Said {
    message: ChatCompletionRequestAssistantMessage, // as a program sends it back
    text: String,
    call: Option<ChatCompletionMessageToolCall>,
    finish: Option<FinishReason>,
    n_prompt: usize,
}

fn asked(messages: &[ChatCompletionRequestMessage], call: bool, most: u32) -> CreateChatCompletionRequest {
    let choice = if call { json!({"type": "function", "function": {"name": "weather"}}) } else { json!("none") };
    let mut request: CreateChatCompletionRequest = from_value(json!({
        "model": var("WEIR_FAKE_MODEL").unwrap(), "messages": [], "max_completion_tokens": most, "temperature": 0.0, "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": {"name": "weather", "description": "the weather of a town", "parameters": parameters()}}],
        "tool_choice": choice, "stream_options": {"include_usage": true}}))
    .unwrap();
    request.messages = messages.to_vec();
    request
}

async fn chat(request: CreateChatCompletionRequest) -> Got<Said> {
    let mut said = Said::default();
    let mut chunks = client().chat().create_stream(request).await?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk?;
        said.n_prompt = chunk.usage.map_or(said.n_prompt, |usage| usage.prompt_tokens as usize);
        for choice in chunk.choices {
            said.text += choice.delta.content.as_deref().unwrap_or("");
            said.finish = choice.finish_reason.or(said.finish);
            for part in choice.delta.tool_calls.unwrap_or_default() {
                let call = said.call.get_or_insert_default();
                call.id += part.id.as_deref().unwrap_or("");
                let function = part.function.unwrap_or_default();
                call.function.name += function.name.as_deref().unwrap_or("");
                call.function.arguments += function.arguments.as_deref().unwrap_or("");
            }
        }
    }
    if !said.text.is_empty() {
        said.message.content = Some(said.text.as_str().into());
    }
    said.message.tool_calls = said.call.clone().map(|call| vec![call.into()]);
    Ok(said)
}

fn result(words: &str, call: &ChatCompletionMessageToolCall) -> ChatCompletionRequestMessage {
    ChatCompletionRequestToolMessage { content: words.into(), tool_call_id: call.id.clone() }.into()
}

async fn chat_loop() -> Done {
    let mut messages: Vec<ChatCompletionRequestMessage> = vec![ChatCompletionRequestUserMessage::from(QUESTION).into()];
    let (mut n_called, mut n_said) = (0, 0); // without tools in the prompt where none may be called
    for (turn, added) in [QUESTION.to_string(), [SYSTEM, PICTURE].concat()].iter().enumerate() {
        let called = chat(asked(&messages, true, 300)).await?;
        let call = called.call.clone().ok_or("no call")?;
        assert!(called.finish == Some(FinishReason::ToolCalls) && call.function.name == "weather", "{call:?}");
        check_town(&call.function.arguments);
        assert!(called.n_prompt >= n_called + added.len() + turn * REPORT.len(), "{added}: {} tokens", called.n_prompt);
        messages.extend([called.message.into(), result(REPORT, &call)]);
        let said = chat(asked(&messages, false, 20)).await?;
        assert!(!said.text.is_empty() && said.call.is_none() && said.n_prompt >= n_said + added.len() + REPORT.len(), "{} tokens", said.n_prompt);
        (n_called, n_said) = (called.n_prompt, said.n_prompt);
        let mut plain = asked(&messages, false, 20);
        plain.stream_options = None;
        let whole = client().chat().create(plain).await?;
        assert_eq!(whole.choices[0].message.content.as_deref(), Some(said.text.as_str()));
        messages.push(said.message.into());
        if turn == 0 {
            let image = ImageUrl { url: var("WEIR_PICTURE").unwrap(), detail: Some(ImageDetail::Low) };
            let parts = vec![
                ChatCompletionRequestUserMessageContentPart::Text(PICTURE.into()),
                ChatCompletionRequestUserMessageContentPart::ImageUrl(image.into()),
            ];
            let user = ChatCompletionRequestUserMessage { content: parts.into(), name: None };
            messages.extend([ChatCompletionRequestSystemMessage::from(SYSTEM).into(), user.into()]);
        }
    }
    Ok(())
}

/// A call that breaks off goes back as it came, as clients keep it.
async fn chat_cut_call() -> Done {
    let mut messages: Vec<ChatCompletionRequestMessage> = vec![ChatCompletionRequestUserMessage::from(QUESTION).into()];
    for most in (3..=120).rev().step_by(3) {
        let cut = chat(asked(&messages, true, most)).await?;
        let Some(call) = cut.call else { continue };
        if cut.finish != Some(FinishReason::Length)
            || call.function.arguments.is_empty()
            || serde_json::from_str::<Value>(&call.function.arguments).is_ok()
        {
            continue;
        }
        messages.extend([cut.message.into(), result("it broke off", &call)]);
        let again = chat(asked(&messages, true, 300)).await?;
        check_town(&again.call.ok_or("no call")?.function.arguments);
        return Ok(());
    }
    Err("no call was cut".into())
}

// ---- Responses

fn asked_responses(input: &[api::InputItem], call: bool) -> api::CreateResponse {
    let choice = if call { json!({"type": "function", "name": "weather"}) } else { json!("none") };
    let mut request: api::CreateResponse = from_value(json!({
        "model": var("WEIR_FAKE_MODEL").unwrap(), "input": [], "max_output_tokens": if call { 300 } else { 20 }, "temperature": 0.0, "store": false,
        "parallel_tool_calls": false, "tool_choice": choice,
        "tools": [{"type": "function", "name": "weather", "description": "the weather of a town", "parameters": parameters(), "strict": true}]}))
    .unwrap();
    request.input = api::InputParam::Items(input.to_vec());
    request
}

/// The last event's response, whose text is that of the deltas.
async fn respond(request: api::CreateResponse) -> Got<api::Response> {
    let (mut text, mut last) = (String::new(), None);
    let mut events = client().responses().create_stream(request).await?;
    while let Some(event) = events.next().await {
        match event? {
            api::ResponseStreamEvent::ResponseOutputTextDelta(part) => text += &part.delta,
            api::ResponseStreamEvent::ResponseCompleted(end) => last = Some(end.response),
            api::ResponseStreamEvent::ResponseIncomplete(end) => last = Some(end.response),
            _ => {}
        }
    }
    let last = last.ok_or("no last event")?;
    assert_eq!(last.output_text().unwrap_or_default(), text);
    Ok(last)
}

fn tokens(response: &api::Response) -> usize {
    response.usage.as_ref().map_or(0, |usage| usage.input_tokens as usize)
}

async fn responses_loop() -> Done {
    let say = |role: &str, content: Value| -> api::InputItem { from_value(json!({"type": "message", "role": role, "content": content})).unwrap() };
    let mut input = vec![say("user", json!(QUESTION))];
    let (mut n_called, mut n_said) = (0, 0); // without tools in the prompt where none may be called
    for (turn, added) in [QUESTION.to_string(), [SYSTEM, PICTURE].concat()].iter().enumerate() {
        let called = respond(asked_responses(&input, true)).await?;
        let [api::OutputItem::FunctionCall(call)] = called.output.as_slice() else { return Err("not one call".into()) };
        check_town(&call.arguments);
        assert!(tokens(&called) >= n_called + added.len() + turn * REPORT.len(), "{added}: {} tokens", tokens(&called));
        let result = json!({"type": "function_call_output", "call_id": call.call_id, "output": REPORT});
        input.extend([api::InputItem::Item(api::Item::FunctionCall(call.clone())), from_value(result)?]);
        let said = respond(asked_responses(&input, false)).await?;
        assert!(tokens(&said) >= n_said + added.len() + REPORT.len(), "{} tokens", tokens(&said));
        (n_called, n_said) = (tokens(&called), tokens(&said));
        if turn == 0 {
            let parts =
                json!([{"type": "input_text", "text": PICTURE}, {"type": "input_image", "image_url": var("WEIR_PICTURE")?, "detail": "high"}]);
            input.extend([say("assistant", json!(said.output_text().ok_or("no text")?)), say("system", json!(SYSTEM)), say("user", parts)]);
        }
    }
    Ok(())
}

// ---- Errors

async fn typed_errors() -> Done {
    let mut request = asked(&[ChatCompletionRequestUserMessage::from("hello").into()], false, 8);
    request.stream_options = None;
    request.temperature = Some(-1.0);
    match client().chat().create(request).await {
        Err(OpenAIError::ApiError(error)) => {
            assert!(error.status_code == 400 && error.api_error.param.as_deref() == Some("temperature"), "{error}");
            Ok(())
        }
        other => Err(format!("{other:?}").into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (mut passed, mut failed, chosen) = (0, 0, std::env::args().skip(1).collect::<Vec<_>>());
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            let tests = [
                ("chat_loop", chat_loop().boxed_local()),
                ("chat_cut_call", chat_cut_call().boxed_local()),
                ("responses_loop", responses_loop().boxed_local()),
                ("typed_errors", typed_errors().boxed_local()),
            ];
            for (name, test) in tests {
                if !chosen.is_empty() && !chosen.iter().any(|one| one == name) {
                    continue;
                }
                match tokio::task::spawn_local(async { test.await.map_err(|e| e.to_string()) }).await {
                    Ok(Ok(())) => {
                        passed += 1;
                        println!("ok    {name}");
                    }
                    bad => {
                        failed += 1;
                        println!("FAIL  {name}: {bad:?}");
                    }
                }
            }
        })
        .await;
    println!("{passed} passed, {failed} failed");
    std::process::exit((failed > 0) as i32);
}
