# SPDX-License-Identifier: Apache-2.0
defmodule Weir.MediaTest do
  use ExUnit.Case, async: true
  alias Weir.{Chat, Model, NIF}

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

  test "what is no image or sound is an error that names the part", %{model: model} do
    for {part, words} <- [
          {{:image, "GIF89a"}, "none of these"},
          {{:audio, binary_part(@wav, 0, 1000)}, "damaged"},
          {{:image, @wav}, "must be an image"},
          {%{type: :image}, "data must be a binary"},
          {%{type: :image, data: 5}, "data must be a binary"},
          {%{type: "image_url", image_url: %{url: "https://example.com/a.png"}}, "data: URL"},
          {%{type: "image_url", image_url: "data:image/png,abc"}, "data: URL"},
          {%{type: "image_url", image_url: %{url: "data:image/png;base64,*"}}, "no base64"},
          {%{type: "input_audio"}, "base64"},
          {%{type: "input_audio", input_audio: %{data: "*"}}, "no base64"}
        ] do
      assert {:error, reason} = prompt(model, ["a", part])
      assert reason =~ "messages[0].content[1]" and reason =~ words
    end

    assert_raise ArgumentError, fn -> prompt(model, [{:video, "x"}]) end
    assert_raise ArgumentError, fn -> prompt(model, [5]) end
  end

  test "a model without a projector reads texts only", %{model: model} do
    assert Model.modalities(model) == [:text]
    messages = [%{role: "user", content: [{:audio, @wav}, "Hi"]}]
    assert {:error, reason} = Weir.chat(model, messages)
    assert reason =~ "Weir.chat_completion/3"
  end

  test "media are freed", %{model: %{ref: ref}} do
    {:ok, media} = NIF.media_create(ref, @wav)
    assert is_reference(media) and NIF.live_handles().weir_media >= 1
    assert_raise ArgumentError, fn -> NIF.media_create(ref, :no) end
    assert_raise ArgumentError, fn -> NIF.chat_create(ref, %{messages: "[]", media: [ref]}) end
    assert_raise ArgumentError, fn -> NIF.chat_create(ref, %{messages: "[]", media: :no}) end
  end
end
