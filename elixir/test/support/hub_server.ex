# SPDX-License-Identifier: Apache-2.0
defmodule Weir.HubServer do
  @moduledoc """
  A small hub of models on this machine. A repository is `%{files: %{name => content}}`, and optionally `token`
  (the only valid one), `cut` (the first download ends after this many bytes), `sha256` (reported instead of the
  true one), `delay` (ms between pieces of 64 kB).
  """

  def start(repos) do
    {:ok, listener} =
      :gen_tcp.listen(0, [
        :binary,
        active: false,
        packet: :http_bin,
        ip: {127, 0, 0, 1},
        backlog: 64
      ])

    {:ok, port} = :inet.port(listener)
    {:ok, state} = Agent.start_link(fn -> %{repos: repos, seen: [], served: %{}, open: 0} end)
    pid = spawn_link(fn -> accept(listener, state) end)
    :ok = :gen_tcp.controlling_process(listener, pid)
    %{url: "http://127.0.0.1:#{port}", state: state}
  end

  @doc "The requests so far, oldest first: paths and headers."
  def requests(hub, part \\ "") do
    for {path, headers} <- hub.state |> Agent.get(& &1.seen) |> Enum.reverse(),
        path =~ part,
        do: {path, headers}
  end

  @doc "How many files are being sent."
  def n_open(hub), do: Agent.get(hub.state, & &1.open)

  def commit(name), do: :crypto.hash(:sha, name) |> Base.encode16(case: :lower)
  def sha256(content), do: :crypto.hash(:sha256, content) |> Base.encode16(case: :lower)

  defp accept(listener, state) do
    {:ok, socket} = :gen_tcp.accept(listener)
    pid = spawn(fn -> receive do: (:go -> serve(socket, state)) end)
    :ok = :gen_tcp.controlling_process(socket, pid)
    send(pid, :go)
    accept(listener, state)
  end

  defp serve(socket, state) do
    with {:ok, {:http_request, :GET, target, _version}} <- :gen_tcp.recv(socket, 0, 30_000),
         {:ok, headers} <- headers(socket, %{}) do
      path = path(target)
      Agent.update(state, &%{&1 | seen: [{path, headers} | &1.seen]})
      repos = Agent.get(state, & &1.repos)
      answer(socket, String.split(path, ["/", "?"], trim: true), headers, repos, state)
    end

    :gen_tcp.close(socket)
  end

  # in the form for this host, and in that for a proxy
  defp path({:abs_path, path}), do: path
  defp path({:absoluteURI, _scheme, _host, _port, path}), do: path

  defp headers(socket, headers) do
    case :gen_tcp.recv(socket, 0, 30_000) do
      {:ok, {:http_header, _, name, _, value}} ->
        headers(socket, Map.put(headers, name |> to_string() |> String.downcase(), value))

      {:ok, :http_eoh} ->
        {:ok, headers}

      other ->
        other
    end
  end

  defp answer(socket, ["api", "models", query], _headers, repos, _state) do
    found =
      for {name, repo} <- repos, name =~ URI.decode_query(query)["search"] do
        %{id: name, downloads: map_size(repo.files), likes: 1, tags: ["gguf"], private: false}
      end

    respond(socket, "200 OK", Weir.JSON.encode!(found))
  end

  defp answer(socket, ["api", "models", owner, name, "revision", revision | _], headers, repos, _) do
    allowed(socket, headers, repos["#{owner}/#{name}"], fn repo ->
      if revision in ["main", commit(name)],
        do: respond(socket, "200 OK", listing("#{owner}/#{name}", name, repo)),
        else: respond(socket, "404 Not Found", "no", [{"X-Error-Code", "RevisionNotFound"}])
    end)
  end

  defp answer(socket, [owner, name, "resolve", _commit | file], headers, repos, state) do
    allowed(socket, headers, repos["#{owner}/#{name}"], fn repo ->
      content = repo.files[Enum.join(file, "/")]
      n = Agent.get_and_update(state, &served(&1, name))
      Agent.update(state, &%{&1 | open: &1.open + 1})
      send_file(socket, headers, content, if(n == 1, do: repo[:cut]), repo[:delay] || 0)
      Agent.update(state, &%{&1 | open: &1.open - 1})
    end)
  end

  defp answer(socket, _path, _headers, _repos, _state), do: respond(socket, "404 Not Found", "no")

  defp served(state, name) do
    state = update_in(state.served[name], &((&1 || 0) + 1))
    {state.served[name], state}
  end

  defp allowed(socket, _headers, nil, _fun),
    do: respond(socket, "404 Not Found", "no", [{"X-Error-Code", "RepoNotFound"}])

  defp allowed(socket, headers, repo, fun) do
    if repo[:token] in [nil, token(headers)],
      do: fun.(repo),
      else: respond(socket, "401 Unauthorized", "no", [{"X-Error-Code", "GatedRepo"}])
  end

  defp token(%{"authorization" => "Bearer " <> token}), do: token
  defp token(_headers), do: nil

  defp listing(full, name, repo) do
    siblings =
      for {file, content} <- repo.files do
        %{
          rfilename: file,
          size: byte_size(content),
          blobId: commit(file),
          lfs: %{sha256: repo[:sha256] || sha256(content), size: byte_size(content)}
        }
      end

    Weir.JSON.encode!(%{
      id: full,
      sha: commit(name),
      siblings: [%{rfilename: "README.md", size: 3} | siblings]
    })
  end

  defp send_file(socket, headers, content, cut, delay) do
    from =
      case headers["range"] do
        "bytes=" <> range -> range |> String.trim_trailing("-") |> String.to_integer()
        nil -> 0
      end

    body = binary_part(content, from, byte_size(content) - from)

    {status, more} =
      if from > 0,
        do:
          {"206 Partial Content",
           [{"Content-Range", "bytes #{from}-#{byte_size(content) - 1}/#{byte_size(content)}"}]},
        else: {"200 OK", []}

    head(socket, status, byte_size(body), [{"ETag", ~s("#{sha256(content)}")} | more])

    pieces(
      socket,
      if(cut, do: binary_part(body, 0, min(cut, byte_size(body))), else: body),
      delay
    )
  end

  defp pieces(socket, <<piece::binary-size(65_536), rest::binary>>, delay) do
    if :gen_tcp.send(socket, piece) == :ok do
      Process.sleep(delay)
      pieces(socket, rest, delay)
    end
  end

  defp pieces(socket, rest, _delay), do: :gen_tcp.send(socket, rest)

  defp respond(socket, status, body, headers \\ []) do
    head(socket, status, byte_size(body), headers)
    :gen_tcp.send(socket, body)
  end

  defp head(socket, status, length, headers) do
    lines = for {name, value} <- headers, do: [name, ": ", value, "\r\n"]

    :gen_tcp.send(socket, [
      ["HTTP/1.1 ", status, "\r\nContent-Length: ", Integer.to_string(length)],
      ["\r\nConnection: close\r\n", lines, "\r\n"]
    ])
  end
end
