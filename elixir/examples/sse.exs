# mix run --no-halt examples/sse.exs [MODEL.gguf [PORT]]: an HTTP endpoint that streams answers as server-sent
# events, without any package.
#
# curl -N http://127.0.0.1:4000/ -d 'Why is the sky blue?'
#
# The body is the user's message; each event is a chunk in OpenAI's format. Closing the connection cancels the
# request. SPDX-License-Identifier: Apache-2.0
defmodule SSE do
  @headers 100
  @body 1_000_000

  def start_link(server, port) do
    options = [:binary, packet: :http_bin, active: false, reuseaddr: true, ip: {127, 0, 0, 1}]
    {:ok, listener} = :gen_tcp.listen(port, options)
    {:ok, port} = :inet.port(listener)
    {:ok, tasks} = Task.Supervisor.start_link()
    pid = spawn_link(fn -> accept(listener, tasks, server) end)
    :ok = :gen_tcp.controlling_process(listener, pid)
    {:ok, port}
  end

  defp accept(listener, tasks, server) do
    {:ok, socket} = :gen_tcp.accept(listener)
    {:ok, pid} = Task.Supervisor.start_child(tasks, fn -> serve(socket, server) end)
    # process and socket may be gone already
    _ = :gen_tcp.controlling_process(socket, pid)
    accept(listener, tasks, server)
  end

  defp serve(socket, server) do
    with {:ok, {:http_request, :POST, _path, _version}} <- :gen_tcp.recv(socket, 0, 10_000),
         {:ok, length} when length in 1..@body <- headers(socket, 0, @headers),
         :ok <- :inet.setopts(socket, packet: :raw),
         {:ok, body} <- :gen_tcp.recv(socket, length, 10_000) do
      answer(socket, server, body)
    else
      _other -> respond(socket, "400 Bad Request", "text/plain", "POST what you have to say\n")
    end

    :gen_tcp.close(socket)
  end

  defp headers(_socket, _length, 0), do: {:error, :too_many}

  defp headers(socket, length, left) do
    case :gen_tcp.recv(socket, 0, 10_000) do
      {:ok, {:http_header, _, :"Content-Length", _, value}} ->
        case Integer.parse(value) do
          {length, ""} -> headers(socket, length, left - 1)
          _none -> {:error, :length}
        end

      {:ok, {:http_header, _, _name, _, _value}} ->
        headers(socket, length, left - 1)

      {:ok, :http_eoh} ->
        {:ok, length}

      other ->
        other
    end
  end

  # Waits for the first event before it sends the status, because a refusal has another status.
  defp answer(socket, server, body) do
    server
    |> Weir.Server.stream_chat_completion([%{role: "user", content: body}], max_tokens: 200)
    |> Enum.reduce_while(:begin, fn chunk, state ->
      if state == :begin, do: respond(socket, "200 OK", "text/event-stream", "")

      case :gen_tcp.send(socket, ["data: ", Weir.JSON.encode!(chunk), "\n\n"]) do
        :ok -> {:cont, :going}
        # the client has left: leaving the stream cancels the request
        {:error, _closed} -> {:halt, :left}
      end
    end)

    :gen_tcp.send(socket, "data: [DONE]\n\n")
  rescue
    error in Weir.Error ->
      respond(socket, "#{error.status} #{error.code}", "text/plain", error.message <> "\n")
  end

  defp respond(socket, status, type, body) do
    headers =
      "HTTP/1.1 #{status}\r\nContent-Type: #{type}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"

    :gen_tcp.send(socket, [headers, body])
  end
end

{path, port} =
  case System.argv() do
    [] -> {"fake:tick_us=10000", 4000}
    [path] -> {path, 4000}
    [path, port] -> {path, String.to_integer(port)}
  end

{:ok, server} = Weir.Server.start_link(model_path: path, max_queue: 16)
{:ok, port} = SSE.start_link(server, port)
IO.puts("listening on http://127.0.0.1:#{port}/")
