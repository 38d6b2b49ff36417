# SPDX-License-Identifier: Apache-2.0
defmodule Weir.HubTest do
  # With a local hub; nothing else is contacted. It changes the environment, so nothing may run beside it.
  use ExUnit.Case, async: false
  import Weir.Wait
  alias Weir.{Hub, HubServer}

  doctest Weir.Hub

  @variables ~w(HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_ENDPOINT HF_HUB_CACHE HF_HOME LLAMA_CACHE_DIR LLAMA_OFFLINE) ++
               ~w(HF_HUB_OFFLINE HUGGINGFACE_HUB_CACHE)

  setup do
    before = System.get_env() |> Map.take(@variables)
    Enum.each(@variables, &System.delete_env/1)

    on_exit(fn ->
      Enum.each(@variables, &System.delete_env/1)
      System.put_env(before)
    end)

    :ok
  end

  @large 1_500_000

  defp hub(_context) do
    large = :crypto.strong_rand_bytes(@large)

    hub =
      HubServer.start(%{
        "o/small" => %{files: %{"m-Q8_0.gguf" => "eight", "sub/m-q4_k_m.gguf" => "four bits"}},
        "o/large" => %{files: %{"m-Q4_0.gguf" => large}, cut: 400_000},
        "o/slow" => %{files: %{"m-Q4_0.gguf" => large}, delay: 100},
        "o/gated" => %{files: %{"m-Q4_0.gguf" => "secret"}, token: "good"},
        "o/wrong" => %{files: %{"m-Q4_0.gguf" => "bytes"}, sha256: String.duplicate("ab", 32)}
      })

    dir = Path.join(System.tmp_dir!(), "weir-hub-#{System.unique_integer([:positive])}")
    on_exit(fn -> File.rm_rf!(dir) end)
    %{hub: hub, dir: dir, large: large, o: [endpoint: hub.url, cache_dir: dir, n_retries: 2]}
  end

  describe "without the network" do
    test "addresses" do
      assert Hub.build_download_url("o/m", "a.gguf") ==
               "https://huggingface.co/o/m/resolve/main/a.gguf"

      assert Hub.build_download_url("o/m", "sub/a b.gguf", revision: "v2") =~
               "/o/m/resolve/v2/sub/a%20b.gguf"

      System.put_env("HF_ENDPOINT", "https://mirror.example/")
      assert Hub.build_download_url("o/m", "a.gguf") =~ "https://mirror.example/o/m/"
    end

    test "tokens" do
      assert Hub.auth_headers() == []
      System.put_env("HUGGING_FACE_HUB_TOKEN", "old")
      assert Hub.auth_headers() == [{"authorization", "Bearer old"}]
      System.put_env("HF_TOKEN", "new")
      assert Hub.auth_headers() == [{"authorization", "Bearer new"}]
      assert Hub.auth_headers(token: "mine") == [{"authorization", "Bearer mine"}]

      for wrong <- [%URI{}, %{token: "mine"}, "mine", [1]],
          fun <- [
            &Hub.auth_headers/1,
            &Hub.cache_path("o/m", "a.gguf", &1),
            &Hub.build_download_url("o/m", "a.gguf", &1),
            &Hub.get_model_info("o/m", &1),
            &Hub.search("m", &1),
            &Hub.download("o/m", "a.gguf", &1)
          ],
          do: assert_raise(ArgumentError, ~r/options must be a keyword list/, fn -> fun.(wrong) end)
    end

    test "places in the cache" do
      expected = "/c/models--o--m/snapshots/main/a.gguf"
      assert Hub.cache_path("o/m", "a.gguf", cache_dir: "/c") == expected
      System.put_env("HF_HOME", "/h")
      assert Hub.cache_path("o/m", "a.gguf") == "/h/hub/models--o--m/snapshots/main/a.gguf"
      System.put_env("HF_HUB_CACHE", "/b")
      assert Hub.cache_path("o/m", "a.gguf") =~ ~r(^/b/models)
      System.put_env("LLAMA_CACHE_DIR", "/c")
      assert Hub.cache_path("o/m", "a.gguf") == expected
    end

    test "names that lead elsewhere" do
      for {repo, file} <- [
            {"../..", "a.gguf"},
            {"o", "a.gguf"},
            {"o/m/x", "a.gguf"},
            {"/etc", "passwd"},
            {"o/m", "../a.gguf"},
            {"o/m", "/etc/passwd"},
            {"o/m", "a/../../b"},
            {"o/m", ".ssh"},
            {"o/m", ""},
            {"o/m", "a\0b"},
            {"o/m", "a\\b"},
            {:o, "a.gguf"},
            {"o/m", nil}
          ] do
        assert_raise ArgumentError, fn -> Hub.cache_path(repo, file) end
        assert_raise ArgumentError, fn -> Hub.build_download_url(repo, file) end
      end

      assert {:error, _} = Hub.download("../..", "a.gguf", offline: true)
      assert {:error, _} = Hub.download("o/m", "../a.gguf", offline: true)
      assert {:error, _} = Hub.get_model_info("o/m?x", offline: true)
    end

    test "GGUF files of a listing" do
      siblings = [
        %{"rfilename" => "big.gguf", "size" => 9},
        %{"rfilename" => "README.md", "size" => 1},
        %{"rfilename" => "small.GGUF", "size" => 2},
        %{"rfilename" => "none.gguf"}
      ]

      assert Hub.filter_gguf_files(siblings) == [
               %{filename: "none.gguf", size: 0},
               %{filename: "small.GGUF", size: 2},
               %{filename: "big.gguf", size: 9}
             ]
    end

    test "options" do
      assert_raise ArgumentError, ~r/unknown option :cache/, fn ->
        Hub.download("o/m", nil, cache: "x")
      end

      assert_raise ArgumentError, ~r/:progress/, fn ->
        Hub.download("o/m", nil, progress: :loud)
      end

      assert_raise ArgumentError, ~r/:limit/, fn -> Hub.search("x", limit: 0) end
    end
  end

  describe "at a hub" do
    @describetag :curl
    setup :hub

    test "search, list, resolve", %{o: o, hub: hub} do
      assert {:ok, [%{id: "o/small", downloads: 2, likes: 1, tags: ["gguf"]}]} = Hub.search("small", o)

      assert [{path, _}] = HubServer.requests(hub, "search=small")
      assert path =~ "limit=10" and path =~ "sort=downloads" and path =~ "direction=-1"
      assert {:ok, []} = Hub.search("nothing of the kind", o)

      assert {:ok, [small, large]} = Hub.list_gguf_files("o/small", o)
      assert %{filename: "m-Q8_0.gguf", size: 5, quantization: "Q8_0", path: nil} = small
      assert %{filename: "sub/m-q4_k_m.gguf", shard: 1, n_shards: 1} = large
      assert small.sha256 == HubServer.sha256("eight")

      assert {:ok, "sub/m-q4_k_m.gguf"} = Hub.resolve("o/small", nil, o)
      assert {:ok, "m-Q8_0.gguf"} = Hub.resolve("o/small", "q8_0", o)
      assert {:error, %{message: reason}} = Hub.resolve("o/small", "Q2_K", o)
      assert reason =~ "Q8_0"
      assert {:error, _} = Hub.list_gguf_files("o/nothing", o)

      assert {:ok, %{"id" => "o/small", "siblings" => siblings}} = Hub.get_model_info("o/small", o)

      assert [%{size: 5}, %{size: 9}] = Hub.filter_gguf_files(siblings)
    end

    test "download", %{o: o, hub: hub, dir: dir} do
      assert {:ok, path} = Hub.download("o/small", "m-Q8_0.gguf", o)
      assert File.read!(path) == "eight"
      assert path == Hub.cache_path("o/small", "m-Q8_0.gguf", o)
      n = length(HubServer.requests(hub, "resolve"))
      assert {:ok, ^path} = Hub.download("o/small", "Q8_0", o)
      assert length(HubServer.requests(hub, "resolve")) == n
      assert {:ok, ^path} = Hub.download("o/small", "Q8_0", [force: true] ++ o)
      assert length(HubServer.requests(hub, "resolve")) == n + 1

      # only the cache
      off = [offline: true, cache_dir: dir]
      assert {:ok, ^path} = Hub.download("o/small", "m-Q8_0.gguf", off)
      assert {:ok, [%{path: ^path}]} = Hub.list_gguf_files("o/small", off)
      assert {:ok, [%{path: ^path, repo: "o/small"}]} = Hub.list_gguf_files(nil, off)
      assert {:error, %{message: reason}} = Hub.download("o/large", nil, off)
      assert reason =~ "offline"
      System.put_env("LLAMA_OFFLINE", "1")
      System.put_env("LLAMA_CACHE_DIR", dir)
      assert {:ok, ^path} = Hub.download("o/small", "m-Q8_0.gguf", endpoint: hub.url)
      assert {:error, _} = Hub.search("small", endpoint: hub.url)
    end

    test "load_model_from_hub downloads a file and loads it", %{o: o, hub: hub} do
      # not a model, which the loader says
      assert {:error, %{message: reason}} = Weir.load_model_from_hub("o/small", "m-Q8_0.gguf", o)
      assert reason =~ "m-Q8_0.gguf" and File.exists?(Hub.cache_path("o/small", "m-Q8_0.gguf", o))

      assert {:error, %{message: reason}} =
               Weir.load_model_from_hub("o/nothing", nil, [vocab_only: true] ++ o)

      assert reason =~ "o/nothing"

      # a misspelt option before the download
      n = length(HubServer.requests(hub, "o/slow"))

      for wrong <- [[vocab_onyl: true], [n_gpu_layers: :all], [timeout: :long]],
          do: assert_raise(ArgumentError, fn -> Weir.load_model_from_hub("o/slow", nil, wrong ++ o) end)

      assert length(HubServer.requests(hub, "o/slow")) == n
    end

    test "load_model takes the names that a server takes", %{hub: hub, dir: dir} do
      System.put_env(%{"HF_ENDPOINT" => hub.url, "HF_HUB_CACHE" => dir})
      assert {:error, %{message: reason}} = Weir.load_model("hf:o/small:m-Q8_0.gguf")
      # not a model, which the loader says of the file that was downloaded
      assert reason =~ "m-Q8_0.gguf" and File.exists?(Hub.cache_path("o/small", "m-Q8_0.gguf", []))
      n = length(HubServer.requests(hub, "o/slow"))
      assert_raise ArgumentError, fn -> Weir.load_model("hf:o/slow", vocab_onyl: true) end
      assert length(HubServer.requests(hub, "o/slow")) == n
    end

    @tag :model
    test "load_model_from_hub, with a model", %{dir: dir} do
      hub =
        HubServer.start(%{
          "o/real" => %{files: %{"m-Q4_1.gguf" => File.read!(System.get_env("WEIR_TEST_MODEL"))}}
        })

      opts = [vocab_only: true, endpoint: hub.url, cache_dir: dir]
      assert {:ok, model} = Weir.load_model_from_hub("o/real", "Q4_1", opts)
      assert Weir.Tokenizer.vocab_size(model) > 1000
    end

    test "resumes, tells how far it is, and checks", %{o: o, hub: hub, large: large} do
      me = self()
      tell = fn progress -> send(me, {:told, progress}) end
      assert {:ok, path} = Hub.download("o/large", nil, [progress: tell] ++ o)
      assert File.read!(path) == large
      assert [{_, first}, {_, second}] = HubServer.requests(hub, "resolve")
      assert {first["range"], second["range"]} == {nil, "bytes=400000-"}
      assert_received {:told, %{file: "m-Q4_0.gguf", total: @large, shard: 1, n_shards: 1} = told}
      assert told.done in 0..@large and is_float(told.rate)
      refute_received {_ref, {:progress, _}}

      assert {:error, %{message: reason}} = Hub.download("o/wrong", nil, o)
      assert reason =~ "checksum"
      refute File.exists?(Hub.cache_path("o/wrong", "m-Q4_0.gguf", o))
    end

    test "ends when it is told so, and goes on later", %{o: o, hub: hub, large: large} do
      halt = fn told -> if told.done > 0, do: :halt end
      assert {:error, %{message: reason}} = Hub.download("o/slow", nil, [progress: halt] ++ o)
      assert reason =~ "stopped"

      assert_raise RuntimeError, "enough", fn ->
        Hub.download("o/slow", nil, [progress: fn _ -> raise "enough" end] ++ o)
      end

      assert {:messages, []} = Process.info(self(), :messages)
      assert {:ok, path} = Hub.download("o/slow", nil, o)
      assert File.read!(path) == large
      {_, headers} = hub |> HubServer.requests("resolve") |> List.last()
      assert "bytes=" <> from = headers["range"]
      assert from |> String.trim_trailing("-") |> String.to_integer() > 0
    end

    test "leaves schedulers for other work", %{dir: dir} do
      # connections are made, and nothing is answered
      {:ok, listener} = :gen_tcp.listen(0, active: false, ip: {127, 0, 0, 1}, backlog: 64)
      {:ok, port} = :inet.port(listener)
      o = [endpoint: "http://127.0.0.1:#{port}", cache_dir: dir, no_proxy: "*"]
      n = :erlang.system_info(:dirty_io_schedulers)

      callers =
        for i <- 1..n,
            call <- [&Hub.list_gguf_files/2, &Hub.download(&1, "m.gguf", &2)],
            do: spawn(fn -> call.("o/m#{i}", o) end)

      for kind <- [:ask, :download] do
        held = fn -> map_size(:sys.get_state(Weir.Turns)[kind].held) end
        assert eventually(fn -> held.() == Weir.Turns.limit(kind) end)
      end

      # needs a scheduler for I/O
      assert {:ok, _model} = Weir.load_model("fake:")
      for pid <- callers, do: Process.exit(pid, :kill)
      assert eventually(fn -> Enum.all?(:sys.get_state(Weir.Turns), &(elem(&1, 1).held == %{})) end)
      :gen_tcp.close(listener)
    end

    test "shows its token", %{o: o, hub: hub} do
      assert {:error, %{message: reason}} = Hub.download("o/gated", nil, o)
      assert reason =~ "gated"
      assert {:error, _} = Hub.download("o/gated", nil, [token: "bad"] ++ o)
      assert {:ok, _} = Hub.download("o/gated", nil, [token: "good"] ++ o)
      System.put_env("HF_TOKEN", "good")
      assert {:ok, _} = Hub.list_gguf_files("o/gated", o)
      assert {_, %{"authorization" => "Bearer good"}} = hub |> HubServer.requests() |> List.last()
    end

    test "goes through a proxy", %{o: o, hub: hub} do
      o = Keyword.merge(o, endpoint: "http://hub.invalid", proxy: hub.url)
      assert {:ok, path} = Hub.download("o/small", "m-Q8_0.gguf", o)
      assert File.read!(path) == "eight"
      none = Keyword.merge(o, no_proxy: "hub.invalid", n_retries: 0)
      assert {:error, _} = Hub.search("small", none)
    end

    test "a server loads by name", %{hub: hub, dir: dir} do
      System.put_env("HF_ENDPOINT", hub.url)
      System.put_env("HF_HUB_CACHE", dir)
      Process.flag(:trap_exit, true)

      ExUnit.CaptureLog.capture_log(fn ->
        # it was downloaded, and is no model
        assert {:ok, server} = Weir.Server.start_link(model_path: "hf:o/small:Q8_0")
        assert_receive {:EXIT, ^server, %{message: reason}}
        assert reason =~ "m-Q8_0.gguf"
        assert File.exists?(Hub.cache_path("o/small", "m-Q8_0.gguf"))
        assert {:ok, server} = Weir.Server.start_link(model_path: "hf:o/nothing")
        assert_receive {:EXIT, ^server, %{message: reason}}
        assert reason =~ "o/nothing"
      end)
    end
  end
end
