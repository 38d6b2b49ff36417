# SPDX-License-Identifier: Apache-2.0
defmodule Weir.MediaTest do
  use ExUnit.Case, async: true
  alias Weir.{Chat, Model, NIF, Server}

  @wav Weir.Sound.wav()

  setup_all do
    {:ok, model} = Weir.load_model("fake:")
    %{model: model}
  end

  defp prompt(model, content) do
    Chat.apply_template(model, [%{role: "user", content: content}], [])
  end

  @bare {:ok, "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"}

  test "a sound takes no text of the prompt, whatever its form", %{model: model} do
    for part <- [
          {:audio, @wav},
          %{type: :audio, data: @wav},
          %{"type" => "audio", "data" => @wav},
          %{type: "input_audio", input_audio: %{data: Base.encode64(@wav), format: "wav"}},
          %{"type" => "input_audio", "input_audio" => %{"data" => Base.encode64(@wav)}}
        ] do
      assert prompt(model, ["a", part, %{type: "text", text: "b"}]) == @bare
    end

    assert Chat.apply_template(model, [{:user, ["a", {:audio, @wav}, "b"]}]) == @bare
  end

  test "a part that is no image or sound is named in the error", %{model: model} do
    for {part, words} <- [
          {{:image, "GIF89a"}, "none of these"},
          {{:audio, binary_part(@wav, 0, 30)}, "damaged"},
          {{:image, @wav}, "must be an image"},
          {%{type: :image}, "data must be a binary"},
          {%{type: :image, data: 5}, "data must be a binary"},
          {%{type: "image_url", image_url: %{url: "https://example.com/a.png"}}, "data: URL"},
          {%{type: "image_url", image_url: "data:image/png,abc"}, "data: URL"},
          {%{type: "image_url", image_url: %{url: "data:image/png;base64,*"}}, "not base64"},
          {%{type: "input_audio"}, "base64"},
          {%{type: "input_audio", input_audio: %{data: "*"}}, "not base64"}
        ] do
      assert {:error, %{message: reason}} = prompt(model, ["a", part])
      assert reason =~ "messages[0].content[1]" and reason =~ words
    end

    assert_raise ArgumentError, fn -> prompt(model, [{:video, "x"}]) end
    assert_raise ArgumentError, fn -> prompt(model, [5]) end
  end

  test "a model without a projector reads texts only", %{model: model} do
    assert Model.modalities(model) == [:text]
    messages = [%{role: "user", content: [{:audio, @wav}, "Hi"]}]
    assert {:error, %{message: reason, field: "messages"}} = Weir.chat(model, messages)
    assert reason =~ "reads no sounds"
    assert {:error, %{message: reason}} = Weir.chat_completion(model, messages)
    assert reason =~ "reads no sounds"

    {:ok, server} = Server.start_link(model_path: "fake:")
    assert {:error, %{message: reason}} = Server.chat(server, messages)
    assert reason =~ "reads no sounds"
    assert {:ok, _} = Server.chat(server, [%{role: "user", content: "Hi"}], max_tokens: 2)
  end

  test "an answer to a sound" do
    {:ok, model} = Weir.load_model("fake:", projector: "fake:images=0,cells=7")
    assert Model.modalities(model) == [:text, :audio]
    messages = [%{role: "user", content: [{:audio, @wav}, "Hi"]}]
    {:ok, one} = Weir.chat_completion(model, messages, max_tokens: 4, temp: 0.0)
    {:ok, none} = Weir.chat_completion(model, [%{role: "user", content: "Hi"}], max_tokens: 4)
    assert one.usage.prompt_tokens_details.audio_tokens >= 7
    assert one.usage.prompt_tokens_details.image_tokens == 0
    assert none.usage.prompt_tokens_details.audio_tokens == 0
    text = hd(one.choices).message.content
    assert Weir.chat(model, messages, max_tokens: 4, temp: 0.0) == {:ok, text}

    {:ok, server} = Server.start_link(model_path: "fake:", projector: "fake:images=0,cells=7")
    opts = [max_tokens: 4, temp: 0.0]
    {:ok, again} = Server.chat_completion(server, messages, opts)
    text = fn answer -> hd(answer.choices).message.content end
    assert text.(again) == text.(one)
    {:ok, plain} = Server.chat(server, messages, opts)
    assert plain == text.(one)
    assert server |> Server.stream_chat(messages, opts) |> Enum.join() == plain

    {:ok, scored} = Server.chat_completion(server, messages, [prompt_logprobs: true] ++ opts)
    assert length(scored.prompt_logprobs) == scored.usage.prompt_tokens
    none = %{token: "", logprob: nil, bytes: [], top_logprobs: []}
    assert Enum.count(scored.prompt_logprobs, &(&1 == none)) == 7

    chunks = server |> Server.stream_chat_completion(messages, opts) |> Enum.to_list()
    assert Enum.map_join(chunks, &(hd(&1.choices).delta[:content] || "")) == plain
  end

  test "media are freed", %{model: %{ref: ref}} do
    {:ok, media} = NIF.media_create(ref, @wav)
    assert is_reference(media) and NIF.live_handles().weir_media >= 1
    assert_raise ArgumentError, fn -> NIF.media_create(ref, :no) end
    assert_raise ArgumentError, fn -> NIF.chat_create(ref, %{messages: "[]", media: [ref]}) end
    assert_raise ArgumentError, fn -> NIF.chat_create(ref, %{messages: "[]", media: :no}) end
  end
end
