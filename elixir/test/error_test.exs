# SPDX-License-Identifier: Apache-2.0
defmodule Weir.ErrorTest do
  # What a controller tells its client: the status as weir's server has it, in the words of the options.
  use Weir.ServerCase, async: true
  alias Weir.{Error, Models, NIF, Server}

  doctest Weir.Error

  test "statuses, codes and fields of requests" do
    server = server(n_ctx: 512)

    for {prompt, opts, status, code, field} <- [
          {"hi", [top_p: 2.0], 400, :out_of_range, "top_p"},
          {"hi", [max_tokens: -2], 400, :out_of_range, "max_tokens"},
          {"hi", [stop: [""]], 400, :out_of_range, "stop"},
          {[99_999], [], 400, :out_of_range, "prompt"},
          {[], [], 400, :empty_prompt, "prompt"},
          {String.duplicate("a", 600), [], 400, :context_full, "prompt"},
          {"hi", [order: "nonsense"], 400, :invalid, "order"},
          {"hi", [grammar: "root ::= ["], 400, :grammar, "grammar"},
          {"hi", [lora: "/nowhere"], 404, :not_found, "lora"},
          {{:fork, :nobody}, [], 404, :not_found, nil}
        ] do
      assert {:error, %Error{} = error} = Server.generate(server, prompt, opts)
      assert {prompt, error.status, error.code, error.field} == {prompt, status, code, field}
      assert error.message != "" and "#{error}" == error.message
      refute error.message =~ "`" or error.message =~ "n_kv" or error.message =~ "requests[0]"
      assert assert_raise(Error, fn -> server |> Server.stream(prompt, opts) |> Stream.run() end) == error
    end
  end

  test "a full queue, a cancelled request, a server that is not there", %{long: long} do
    server = server(model: long, n_parallel: 1, max_queue: 1)
    [one, two] = for text <- ["a", "b"], do: Server.submit(server, text, max_tokens: 4000)
    assert eventually(fn -> match?(%{active_slots: 1, queue_depth: 1}, Server.get_stats(server)) end)
    assert {:error, %{status: 429, code: :queue_full}} = Server.generate(server, "c")
    assert :ok = Weir.Request.cancel(one)
    assert :ok = Weir.Request.cancel(two)
    assert {:error, %{status: 503, code: :server_down}} = Server.generate(:nobody, "c")
  end

  @tag :llama
  test "files that are no models" do
    assert {:error, %{status: 404, code: :not_found}} = Weir.load_model("/nowhere/model.gguf")
    assert {:error, %{status: 400, code: :damaged}} = Weir.load_model(__ENV__.file)
  end

  test "models" do
    list = [[name: "none", model_path: "fake:fail_load=1"], [name: "big", model_path: "fake:"]]
    {:ok, models} = Models.start_link(models: list, memory: 1)
    {:ok, roomy} = Models.start_link(models: list, memory: 2 ** 30)
    assert {:error, %{status: 503, code: :load_failed}} = Models.generate(roomy, "none", "a")
    assert {:error, %{status: 503, code: :too_large}} = Models.generate(models, "big", "a")
    assert {:error, %{status: 404, code: :not_found, field: "name"}} = Models.generate(models, "other", "a")
    assert {:error, %{status: 404, code: :not_found, field: "name"}} = Models.info(models, "other")
  end

  test "the list of codes has those of the native functions and of this package" do
    {:docs_v1, _, _, _, %{"en" => text}, _, _} = Code.fetch_docs(Error)
    rows = for [_all, status, codes] <- Regex.scan(~r/^\| (\d+) \| (.*) \|$/m, text), do: {status, codes}
    listed = for {status, codes} <- rows, [_all, code] <- Regex.scan(~r/`:(\w+)`/, codes), do: {code, status}
    native = Regex.scan(~r/"(\w+)", (\d+)\}/, File.read!("c_src/error.c"))
    assert length(native) > 20
    for [_all, code, status] <- native, do: assert({code, status} in listed)

    used = for file <- Path.wildcard("lib/**/*.ex"), line <- [File.read!(file)], do: line
    own = Regex.scan(~r/Error\.new\(\{?:(\w+)/, Enum.join(used))
    assert length(own) > 20
    for [_all, code] <- own, code != "unknown_call", do: assert(List.keymember?(listed, code, 0))
  end

  test "the struct of native functions is the module's" do
    {:ok, model} = Weir.load_model("fake:")
    assert {:error, native} = NIF.token_to_piece(model.ref, -1)
    assert Enum.sort(Map.keys(native)) == Enum.sort(Map.keys(Error.new(:timeout)))
    assert Error.new(:timeout).__struct__ == native.__struct__
    assert is_exception(native)
  end
end
