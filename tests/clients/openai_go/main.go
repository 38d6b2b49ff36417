// The official openai package for Go, in loops of tool calls by both APIs: two turns, a call that is cut and sent back, a system message in
// between, an image. The model is the fake one, with a token for each byte, so that what is added to a prompt can be counted. Arguments:
// names of tests, to run only these.
// SPDX-License-Identifier: Apache-2.0
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

const (
	question = "How is the weather in Ulm?"
	report   = "It is sunny there, and warm: 21 degrees."
	system   = "From now on be brief, whatever is asked."
	words    = "And what is in this picture?"
)

var (
	client  = openai.NewClient(option.WithBaseURL(os.Getenv("WEIR_FAKE_URL")+"/v1"), option.WithAPIKey("any"), option.WithMaxRetries(0))
	model   = os.Getenv("WEIR_FAKE_MODEL")
	picture = os.Getenv("WEIR_PICTURE") // a data URL
	ctx     = context.Background()
	towns   = map[string]any{
		"type": "object", "properties": map[string]any{"town": map[string]any{"type": "string", "enum": []string{"Ulm", "Bonn"}}},
		"required": []string{"town"}, "additionalProperties": false,
	}
)

// need ends a test.
func need(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

func need_none(err error) { need(err == nil, err) }

// need_town: the arguments are what the schema allows.
func need_town(arguments string) {
	var given map[string]string
	need_none(json.Unmarshal([]byte(arguments), &given))
	need(len(given) == 1 && (given["town"] == "Ulm" || given["town"] == "Bonn"), arguments)
}

// ---- Chat completions

func ask(messages []openai.ChatCompletionMessageParamUnion, call bool, most int64) openai.ChatCompletionNewParams {
	asked := openai.ChatCompletionNewParams{
		Model: model, Messages: messages, MaxTokens: openai.Int(most), Temperature: openai.Float(0), ParallelToolCalls: openai.Bool(false),
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "weather", Description: openai.String("the weather of a town"), Parameters: towns,
		})},
		ToolChoice: openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")},
	}
	if call {
		asked.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"})
	}
	return asked
}

// stream: the answer as the package puts it together.
func stream(asked openai.ChatCompletionNewParams) openai.ChatCompletion {
	asked.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	events := client.Chat.Completions.NewStreaming(ctx, asked)
	all := openai.ChatCompletionAccumulator{}
	for events.Next() {
		need(all.AddChunk(events.Current()), "a chunk that does not fit: ", events.Current().RawJSON())
	}
	need_none(events.Err())
	return all.ChatCompletion
}

func chat_loop() {
	messages := []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)}
	n_called, n_said := int64(0), int64(0) // without tools in the prompt where none may be called
	turn := func(called_with, said_with string) {
		called := stream(ask(messages, true, 300))
		call := called.Choices[0].Message.ToolCalls[0]
		need(called.Choices[0].FinishReason == "tool_calls" && call.Type == "function" && call.Function.Name == "weather", called.RawJSON())
		need_town(call.Function.Arguments)
		need(called.Usage.PromptTokens >= n_called+int64(len(called_with)), "the prompt lacks ", called_with)
		messages = append(messages, called.Choices[0].Message.ToParam(), openai.ToolMessage(report, call.ID))
		said := stream(ask(messages, false, 20))
		need(said.Usage.PromptTokens >= n_said+int64(len(said_with)), "the prompt lacks ", said_with)
		n_called, n_said = called.Usage.PromptTokens, said.Usage.PromptTokens
		need(said.Choices[0].Message.Content != "" && len(said.Choices[0].Message.ToolCalls) == 0, said.RawJSON())
		whole, err := client.Chat.Completions.New(ctx, ask(messages, false, 20))
		need_none(err)
		need(whole.Choices[0].Message.Content == said.Choices[0].Message.Content, whole.RawJSON())
		messages = append(messages, said.Choices[0].Message.ToParam())
	}
	turn(question, question+report)
	messages = append(messages, openai.SystemMessage(system), openai.UserMessage([]openai.ChatCompletionContentPartUnionParam{
		openai.TextContentPart(words), openai.ImageContentPart(openai.ChatCompletionContentPartImageImageURLParam{URL: picture, Detail: "low"}),
	}))
	turn(report+system+words, system+words+report)
}

// A call that breaks off goes back as it came, as clients keep it.
func chat_cut_call() {
	messages := []openai.ChatCompletionMessageParamUnion{openai.UserMessage("How is the weather in Bonn?")}
	for most := int64(120); most > 0; most -= 3 {
		cut := stream(ask(messages, true, most))
		if cut.Choices[0].FinishReason != "length" || len(cut.Choices[0].Message.ToolCalls) == 0 {
			continue
		}
		call := cut.Choices[0].Message.ToolCalls[0]
		if call.Function.Arguments == "" || json.Valid([]byte(call.Function.Arguments)) {
			continue
		}
		messages = append(messages, cut.Choices[0].Message.ToParam(), openai.ToolMessage("it broke off", call.ID))
		again := stream(ask(messages, true, 300))
		need_town(again.Choices[0].Message.ToolCalls[0].Function.Arguments)
		return
	}
	panic("no call was cut")
}

// ---- Responses

func ask_responses(input responses.ResponseInputParam, call bool) responses.ResponseNewParams {
	asked := responses.ResponseNewParams{
		Model: model, Input: responses.ResponseNewParamsInputUnion{OfInputItemList: input}, MaxOutputTokens: openai.Int(300), Temperature: openai.Float(0),
		Store: openai.Bool(false), ParallelToolCalls: openai.Bool(false),
		Tools: []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{
			Name: "weather", Description: openai.String("the weather of a town"), Parameters: towns, Strict: openai.Bool(true),
		}}},
		ToolChoice: responses.ResponseNewParamsToolChoiceUnion{OfToolChoiceMode: param.NewOpt(responses.ToolChoiceOptionsNone)},
	}
	if call {
		asked.ToolChoice = responses.ResponseNewParamsToolChoiceUnion{OfFunctionTool: &responses.ToolChoiceFunctionParam{Name: "weather"}}
	} else {
		asked.MaxOutputTokens = openai.Int(20)
	}
	return asked
}

// respond: the last event's response, whose text must be that of the deltas.
func respond(asked responses.ResponseNewParams) responses.Response {
	events := client.Responses.NewStreaming(ctx, asked)
	var text strings.Builder
	var last responses.Response
	for events.Next() {
		switch event := events.Current(); event.Type {
		case "response.output_text.delta":
			text.WriteString(event.Delta)
		case "response.completed", "response.incomplete":
			last = event.Response
		}
	}
	need_none(events.Err())
	need(last.OutputText() == text.String(), last.RawJSON())
	return last
}

func responses_loop() {
	say := func(words string, role responses.EasyInputMessageRole) responses.ResponseInputItemUnionParam {
		return responses.ResponseInputItemParamOfMessage(words, role)
	}
	input := responses.ResponseInputParam{say(question, "user")}
	n_called, n_said := int64(0), int64(0)
	for turn, added := range []string{question, report + system + words} {
		called := respond(ask_responses(input, true))
		need(len(called.Output) == 1 && called.Output[0].Type == "function_call" && called.Status == "completed", called.RawJSON())
		call := called.Output[0].AsFunctionCall()
		need_town(call.Arguments)
		need(called.Usage.InputTokens >= n_called+int64(len(added)), "the prompt lacks ", added)
		result := responses.ResponseInputItemParamOfFunctionCallOutput(report)
		result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
		input = append(input, responses.ResponseInputItemParamOfFunctionCall(call.Arguments, call.CallID, call.Name), result)
		said := respond(ask_responses(input, false))
		need(said.OutputText() != "" && said.Usage.InputTokens >= n_said+int64(len(added)), said.RawJSON())
		n_called, n_said = called.Usage.InputTokens, said.Usage.InputTokens
		if turn == 0 {
			picture := responses.ResponseInputContentUnionParam{OfInputImage: &responses.ResponseInputImageParam{ImageURL: openai.String(picture), Detail: "high"}}
			input = append(input, say(said.OutputText(), "assistant"), say(system, "system"), responses.ResponseInputItemParamOfMessage(
				responses.ResponseInputMessageContentListParam{responses.ResponseInputContentParamOfInputText(words), picture}, "user"))
		}
	}
}

// ---- Errors

func typed_errors() {
	asked := ask([]openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}, false, 8)
	asked.Temperature = openai.Float(-1)
	_, err := client.Chat.Completions.New(ctx, asked)
	var refused *openai.Error
	need(errors.As(err, &refused) && refused.StatusCode == 400 && refused.Param == "temperature", err)
	events := client.Chat.Completions.NewStreaming(ctx, asked)
	need(!events.Next() && errors.As(events.Err(), &refused) && refused.StatusCode == 400, "a stream that is refused: ", events.Err())
}

func main() {
	passed, failed := 0, 0
	for _, test := range []struct {
		name string
		run  func()
	}{{"chat_loop", chat_loop}, {"chat_cut_call", chat_cut_call}, {"responses_loop", responses_loop}, {"typed_errors", typed_errors}} {
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], test.name) {
			continue
		}
		func() {
			defer func() {
				if why := recover(); why != nil {
					failed++
					fmt.Printf("FAIL  %s: %v\n", test.name, why)
				} else {
					passed++
					fmt.Printf("ok    %s\n", test.name)
				}
			}()
			test.run()
		}()
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
