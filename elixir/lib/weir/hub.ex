# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Hub do
  @moduledoc """
  Models by name, from Hugging Face or a hub with its API, in the cache folder that Hugging Face's clients
  share.

      {:ok, files} = Weir.Hub.list_gguf_files("bartowski/SmolLM2-135M-Instruct-GGUF")
      {:ok, file} = Weir.Hub.resolve("bartowski/SmolLM2-135M-Instruct-GGUF", "Q4_K_M")
      {:ok, path} = Weir.Hub.download("bartowski/SmolLM2-135M-Instruct-GGUF", file)
      {:ok, model} = Weir.load_model(path)

  A file is downloaded once and gets its name only if its size and SHA-256 match the hub's. Interrupted
  downloads resume. Processes that want the same file download it once. If the hub cannot be reached, a cached
  model is used.

  Options of all functions that contact the hub: `cache_dir`, `token`, `revision` ("main"; a branch, tag or
  commit), `endpoint`, `proxy`, `no_proxy`, `offline` (false), `force` (false), `n_retries` (5), `timeout`
  (30_000 ms without a byte).

  Environment variables for options that are not given: `HF_TOKEN` (or the file that other clients keep it
  in), `LLAMA_CACHE_DIR`, `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`, `HF_ENDPOINT`, `LLAMA_OFFLINE`,
  `HF_HUB_OFFLINE`, `https_proxy` and related ones, `SSL_CERT_FILE`.

  Of the VM's dirty I/O schedulers, downloads hold at most a half and other calls a quarter; more calls wait.

  """

  alias Weir.{Error, JSON, NIF, Options, Turns}

  @endpoint "https://huggingface.co"

  @type file :: %{
          filename: String.t(),
          size: non_neg_integer(),
          repo: String.t(),
          path: Path.t() | nil,
          sha256: String.t() | nil,
          quantization: String.t() | nil,
          shard: pos_integer(),
          n_shards: pos_integer()
        }

  @typedoc "`done` and `total` are bytes of this file, `rate` is bytes per second, 0.0 when unknown."
  @type progress :: %{
          file: String.t(),
          shard: pos_integer(),
          n_shards: pos_integer(),
          done: non_neg_integer(),
          total: non_neg_integer(),
          rate: float()
        }

  defp options do
    Options.from("hub",
      ranges: [:n_retries, :timeout_ms],
      defaults: [revision: "main"]
    )
  end

  # The library sees the environment that the VM was started with. Later changes by System.put_env/2 are
  # passed here.
  defp read!(opts) do
    o = Options.read!(opts, options())

    Map.merge(o, %{
      cache_dir: o.cache_dir || env(["LLAMA_CACHE_DIR", "HF_HUB_CACHE"]),
      token: o.token || env(["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]),
      endpoint: o.endpoint || env(["HF_ENDPOINT"]),
      offline: o.offline or on?(env(["LLAMA_OFFLINE"])) or on?(env(["HF_HUB_OFFLINE"])),
      timeout_ms: o.timeout
    })
  end

  defp given!(opts), do: Options.given!(opts, options())

  @doc false
  # The options of `download/3`, and the others.
  def split(opts),
    do: opts |> Options.keywords!() |> Keyword.split([:progress | Keyword.keys(options())])

  defp env(names), do: Enum.find_value(names, fn name -> present(System.get_env(name)) end)
  defp present(""), do: nil
  defp present(value), do: value
  defp on?(value), do: value != nil and String.downcase(value) in ["1", "on", "yes", "true"]

  @doc """
  Searches for repositories with GGUF files by name or description; returns maps with `id`, `downloads`,
  `likes`, `tags`. Options: `limit` (10), `sort` ("downloads"), `direction` (-1: descending), and those above.
  """
  @spec search(String.t(), keyword()) :: {:ok, [map()]} | {:error, Error.t()}
  def search(query, opts \\ []) do
    query = Options.argument!("the query", :binary, query)

    {o, rest} =
      Options.split!(opts,
        limit: {{:range, 1..1000}, 10},
        sort: {:string, "downloads"},
        direction: {{:in, [-1, 1]}, -1}
      )

    query =
      URI.encode_query(search: query, filter: "gguf", limit: o.limit, sort: o.sort, direction: o.direction)

    with {:ok, found} <- get("/api/models?" <> query, rest) do
      {:ok,
       for %{"id" => id} = repo <- List.wrap(found) do
         %{id: id, downloads: repo["downloads"] || 0, likes: repo["likes"] || 0, tags: repo["tags"] || []}
       end}
    end
  end

  @doc "Returns the hub's JSON about a repository as a map."
  @spec get_model_info(String.t(), keyword()) :: {:ok, map()} | {:error, Error.t()}
  def get_model_info(repo, opts \\ []) do
    %{revision: revision} = Options.read!(opts, options())

    with :ok <- check(repo, "a.gguf"),
         do: get("/api/models/#{repo}/revision/#{URI.encode_www_form(revision || "main")}", opts)
  end

  defp get(path, opts) do
    o = read!(opts)
    with {:ok, json} <- ask(fn -> NIF.hub_get(path, o) end), do: JSON.decode(json)
  end

  # Without a limit of time: options have their own.
  defp ask(fun), do: Turns.take(:ask, :infinity, fn _left -> fun.() end)

  @doc """
  Lists the GGUF files of a repository, smallest first; offline those in the cache. With `nil` it lists all
  cached files, without the network. `path` is the file's place in the cache, or `nil`.
  """
  @spec list_gguf_files(String.t() | nil, keyword()) :: {:ok, [file()]} | {:error, Error.t()}
  def list_gguf_files(repo, opts \\ []) do
    o = read!(opts)
    name = repo && name(repo, nil)

    with {:ok, files} <- ask(fn -> NIF.hub_list(name, o) end),
         do: {:ok, Enum.sort_by(files, &{&1.size, &1.filename})}
  end

  @doc """
  Returns the file of a repository for a quantization (`"Q4_K_M"`, in any case), or with `nil` for the default
  one. For a split model it is the first file.
  """
  @spec resolve(String.t(), String.t() | nil, keyword()) ::
          {:ok, String.t()} | {:error, Error.t()}
  def resolve(repo, quantization \\ nil, opts \\ []) do
    {name, o} = {name(repo, quantization), read!(opts)}
    ask(fn -> NIF.hub_resolve(name, o) end)
  end

  @doc """
  Returns the path of a file, and downloads it if it is not in the cache. For a split model it returns the
  first file after downloading all. A quantization or `nil` may replace the file's name, as in `resolve/3`.

  Options above, and `progress`: a function that the calling process calls with a `t:progress/0` about ten
  times a second. If it returns `:halt` or raises, the download ends and keeps the partial file.
  """
  @spec download(String.t(), String.t() | nil, keyword()) ::
          {:ok, Path.t()} | {:error, Error.t()}
  def download(repo, file, opts \\ []) do
    {o, opts} = Options.split!(opts, progress: {:progress, fn _progress -> :ok end})
    fetch(name(repo, file), read!(opts), o.progress)
  end

  # Downloads in a separate process, because killing that ends a download.
  defp fetch(name, o, progress) do
    owner = self()
    ref = make_ref()
    {pid, monitor} = spawn_monitor(fn -> relay(name, o, owner, ref) end)

    try do
      attend(ref, monitor, progress)
    after
      Process.exit(pid, :kill)
      Process.demonitor(monitor, [:flush])
      ended = Process.monitor(pid)
      receive do: ({:DOWN, ^ended, :process, _pid, _reason} -> :ok)
      flush(ref)
    end
  end

  # A NIF may send once more after its process was killed; it sends to this process, which never does.
  defp relay(name, o, owner, ref) do
    Process.flag(:trap_exit, true)
    Process.monitor(owner)
    relay = self()
    forward(spawn_link(fn -> exit({ref, native_download(name, o, relay, ref)}) end), owner, ref)
  end

  defp native_download(name, o, relay, ref) do
    kind = if o.offline, do: :ask, else: :download
    Turns.take(kind, :infinity, fn _left -> NIF.hub_download(name, o, relay, ref) end)
  end

  defp forward(pid, owner, ref) do
    receive do
      {^ref, {:progress, _}} = message ->
        send(owner, message)
        forward(pid, owner, ref)

      {:EXIT, ^pid, reason} ->
        exit(reason)

      {:DOWN, _monitor, :process, ^owner, _reason} ->
        exit(:shutdown)
    end
  end

  defp attend(ref, monitor, progress) do
    receive do
      {^ref, {:progress, map}} ->
        if progress.(map) == :halt,
          do: {:error, Error.new({:cancelled, "the download was stopped; the part so far is kept"})},
          else: attend(ref, monitor, progress)

      {:DOWN, ^monitor, :process, _pid, {^ref, result}} ->
        result

      {:DOWN, ^monitor, :process, _pid, reason} ->
        {:error, Error.new({:failed, "the download ended: #{inspect(reason)}"})}
    end
  end

  defp flush(ref) do
    receive do
      {^ref, {:progress, _}} -> flush(ref)
    after
      0 -> :ok
    end
  end

  @doc false
  # True if it is a name such as `hf:OWNER/REPO`, which may need a download.
  def name?("hf:" <> _), do: true
  def name?(_path_or_model), do: false

  @doc false
  # The file of a path, or of `hf:OWNER/REPO[:QUANTIZATION or FILE]`. `tell`: nil, or `{pid, ref}`, which gets
  # `{ref, {:progress, t:progress/0}}`.
  def file(name_or_path, tell \\ nil)
  def file("hf:" <> _ = name, nil), do: native_download(name, read!([]), nil, nil)
  def file("hf:" <> _ = name, {pid, ref}), do: native_download(name, read!([]), pid, ref)
  def file(path, _tell), do: {:ok, path}

  @doc false
  # The same without a download.
  @spec cached(Path.t() | nil) :: {:ok, Path.t() | nil} | {:error, Error.t()}
  def cached("hf:" <> _ = name), do: native_download(name, %{read!([]) | offline: true}, nil, nil)
  def cached(path), do: {:ok, path}

  defp name(repo, nil), do: "hf:" <> Options.argument!("the repository", :string, repo)

  defp name(repo, what),
    do: name(repo, nil) <> ":" <> Options.argument!("the file or quantization", :string, what)

  @doc """
  Filters the GGUF files from the hub's list of a repository's files (`"siblings"`), smallest first.

      iex> Weir.Hub.filter_gguf_files([%{"rfilename" => "m.gguf", "size" => 3}, %{"rfilename" => "README.md"}])
      [%{filename: "m.gguf", size: 3}]
  """
  @spec filter_gguf_files([map()]) :: [%{filename: String.t(), size: non_neg_integer()}]
  def filter_gguf_files(siblings) do
    siblings = Options.argument!("the files", {:list, :map}, siblings)

    files =
      for %{"rfilename" => name} = file <- siblings,
          String.ends_with?(String.downcase(name), ".gguf"),
          do: %{filename: name, size: file["size"] || 0}

    Enum.sort_by(files, & &1.size)
  end

  @doc """
  Returns a file's URL at the hub. Options: `revision` ("main"), `endpoint`.

      iex> Weir.Hub.build_download_url("o/m", "m-Q8_0.gguf", endpoint: "https://hub.example")
      "https://hub.example/o/m/resolve/main/m-Q8_0.gguf"
  """
  @spec build_download_url(String.t(), String.t(), keyword()) :: String.t()
  def build_download_url(repo, file, opts \\ []) do
    check!(repo, file)
    opts = given!(opts)
    endpoint = opts[:endpoint] || env(["HF_ENDPOINT"]) || @endpoint

    path =
      file
      |> String.split("/")
      |> Enum.map_join("/", &URI.encode(&1, fn c -> URI.char_unreserved?(c) end))

    "#{String.trim_trailing(endpoint, "/")}/#{repo}/resolve/#{opts[:revision] || "main"}/#{path}"
  end

  @doc """
  Returns the authorization header for a token. Options: `token`.

      iex> Weir.Hub.auth_headers(token: "secret")
      [{"authorization", "Bearer secret"}]
  """
  @spec auth_headers(keyword()) :: [{String.t(), String.t()}]
  def auth_headers(opts \\ []) do
    opts = given!(opts)

    case opts[:token] || env(["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]) do
      nil -> []
      token -> [{"authorization", "Bearer " <> token}]
    end
  end

  @doc """
  Returns a file's path in the cache, whether or not it exists. Options: `cache_dir`, `revision` ("main").
  """
  @spec cache_path(String.t(), String.t(), keyword()) :: Path.t()
  def cache_path(repo, file, opts \\ []) do
    check!(repo, file)
    opts = given!(opts)
    base = Path.join(cache_dir(opts), "models--" <> String.replace(repo, "/", "--"))
    revision = opts[:revision] || "main"

    # a branch or tag is a file with the commit's hash
    commit =
      case File.read(Path.join([base, "refs", revision])) do
        {:ok, commit} -> String.trim(commit)
        {:error, _reason} -> revision
      end

    Path.join([base, "snapshots", commit, file])
  end

  defp cache_dir(opts) do
    opts[:cache_dir] || env(["LLAMA_CACHE_DIR", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]) ||
      Path.join(home(), "hub")
  end

  defp home do
    if folder = env(["HF_HOME"]),
      do: Path.expand(folder),
      else: Path.join(env(["XDG_CACHE_HOME"]) || Path.expand("~/.cache"), "huggingface")
  end

  defp check!(repo, file) do
    with {:error, error} <- check(repo, file), do: raise(ArgumentError, error.message)
  end

  # Refuses names that would lead out of the cache folder or change the address.
  defp check(repo, file) do
    cond do
      not (is_binary(repo) and repo =~ ~r/\A[\w-][\w.-]*\/[\w-][\w.-]*\z/) ->
        {:error, Error.new({:invalid, "no repository OWNER/NAME: #{inspect(repo)}"}, "repo")}

      not (is_binary(file) and String.valid?(file) and file =~ ~r/\A[^\\\x00-\x1f\x7f]+\z/) or
          Enum.any?(String.split(file, "/"), &(&1 == "" or String.starts_with?(&1, "."))) ->
        {:error, Error.new({:invalid, "no file's name in a repository: #{inspect(file)}"}, "file")}

      true ->
        :ok
    end
  end
end
