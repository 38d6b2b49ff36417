# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Prebuilt do
  @moduledoc false
  # The native part from an archive (docs/adr/0157): downloaded, checked against the SHA-256 in checksum.exs of the package, and kept
  # in the user's cache. mix.exs loads this file, so it needs nothing of lib/.

  # What a build on Debian 12 needs.
  @glibc "2.34"
  @nif "2.16"

  # Where a release's files are published.
  @url "https://example.org/weir/releases/v"

  @doc "`{archive, sha256}` if the package in `folder` lists one for this machine, `{:none, why}` if not."
  def archive(folder, version) do
    name = "weir-nif-#{version}-#{platform()}.tar.gz"
    list = Path.join(folder, "checksum.exs")

    with {:list, true} <- {:list, File.regular?(list)},
         {%{^name => "sha256:" <> sum}, _binding} <- Code.eval_file(list),
         {:nif, true} <- {:nif, at_least?(List.to_string(:erlang.system_info(:nif_version)), @nif)},
         {:glibc, true} <- {:glibc, at_least?(glibc(), @glibc)} do
      {name, sum}
    else
      {:list, false} -> {:none, "this copy of the package has no checksum.exs"}
      {:nif, false} -> {:none, "it needs a VM with NIF #{@nif} or newer"}
      {:glibc, false} -> {:none, "it needs glibc #{@glibc} or newer"}
      {%{}, _binding} -> {:none, "there is none for #{platform()}"}
    end
  end

  @doc "`{:ok, %{file_name => bytes}}`, or `{:error, why}` if it cannot be had. Bytes with another checksum raise."
  def fetch(name, sum, url) do
    kept = Path.join([cache(), "weir", "nif", name])

    with :error <- kept(kept, sum),
         {:ok, bytes} <- download(url) do
      if sha256(bytes) != sum do
        Mix.raise(
          "#{shown(url)} has the SHA-256 #{sha256(bytes)}, and the package says #{sum}: it is damaged or not the one that was published, " <>
            "and is not used. WEIR_BUILD=1 builds the native part from its source instead"
        )
      end

      keep(kept, bytes)
      unpack(bytes)
    end
  end

  @doc "Where an archive is: in the folder of the version's release, or in that of a mirror."
  def url(name, version, mirror \\ nil), do: "#{String.trim_trailing(mirror || @url <> version, "/")}/#{name}"

  # Without a password.
  defp shown(url), do: URI.to_string(%{URI.parse(url) | userinfo: nil})

  defp platform do
    # "x86_64-pc-linux-gnu", "aarch64-apple-darwin22.1.0"
    case String.split(List.to_string(:erlang.system_info(:system_architecture)), "-") do
      [machine | rest] -> if "linux" in rest, do: "linux-#{machine}", else: Enum.join([machine | rest], "-")
    end
  end

  defp glibc do
    with getconf when getconf != nil <- System.find_executable("getconf"),
         {"glibc " <> version, 0} <- System.cmd(getconf, ["GNU_LIBC_VERSION"], stderr_to_stdout: true) do
      String.trim(version)
    else
      _another_library -> "0"
    end
  end

  defp at_least?(version, least), do: numbers(version) >= numbers(least)
  defp numbers(version), do: for(part <- String.split(version, "."), do: String.to_integer(part))

  defp cache, do: System.get_env("XDG_CACHE_HOME") || Path.join(System.user_home!(), ".cache")

  defp sha256(bytes), do: Base.encode16(:crypto.hash(:sha256, bytes), case: :lower)

  defp kept(file, sum) do
    with {:ok, bytes} <- File.read(file), ^sum <- sha256(bytes), do: unpack(bytes), else: (_other -> :error)
  end

  # A cache that cannot be written to costs the next build a download.
  defp keep(file, bytes) do
    new = "#{file}.#{System.pid()}"

    with :ok <- File.mkdir_p(Path.dirname(file)), :ok <- File.write(new, bytes) do
      File.rename(new, file)
    end
  end

  defp unpack(bytes) do
    case :erl_tar.extract({:binary, bytes}, [:memory, :compressed]) do
      {:ok, entries} -> {:ok, Map.new(entries, fn {name, content} -> {Path.basename(name), content} end)}
      {:error, reason} -> {:error, "it cannot be unpacked (#{inspect(reason)})"}
    end
  end

  # ---- HTTP ----

  @minutes 60_000

  defp download(url) do
    Enum.each([:inets, :crypto, :ssl], &start/1)
    Mix.shell().info("weir: downloading the native part from #{shown(url)}")
    options = [timeout: 10 * @minutes, connect_timeout: 30_000] ++ tls(url)

    case :httpc.request(:get, {String.to_charlist(url), []}, options, [body_format: :binary], profile()) do
      {:ok, {{_version, 200, _reason}, _headers, bytes}} -> {:ok, bytes}
      {:ok, {{_version, status, _reason}, _headers, _bytes}} -> {:error, "#{shown(url)} answers #{status}"}
      {:error, reason} -> {:error, "#{shown(url)} cannot be downloaded (#{inspect(reason)})"}
    end
  rescue
    # :public_key.cacerts_get/0, where the system has no certificates
    error -> {:error, "#{shown(url)} cannot be downloaded (#{Exception.message(error)})"}
  end

  # Mix 1.15 removes the paths of applications that no dependency names.
  defp start(application) do
    if Code.ensure_loaded?(Mix) and function_exported?(Mix, :ensure_application!, 1),
      do: apply(Mix, :ensure_application!, [application])

    {:ok, _started} = Application.ensure_all_started(application)
  end

  # A profile of its own: the proxies of the environment are not for the rest of the VM.
  defp profile do
    _known = :inets.start(:httpc, profile: :weir_prebuilt)

    for {option, names} <- [proxy: ["HTTP_PROXY", "http_proxy"], https_proxy: ["HTTPS_PROXY", "https_proxy"]],
        value = Enum.find_value(names, &System.get_env/1),
        %URI{host: host, port: port} when host != nil and port != nil <- [URI.parse(value)] do
      :httpc.set_options([{option, {{String.to_charlist(host), port}, no_proxy()}}], :weir_prebuilt)
    end

    :weir_prebuilt
  end

  defp no_proxy do
    names = System.get_env("NO_PROXY") || System.get_env("no_proxy") || ""
    for name <- String.split(names, ",", trim: true), do: String.to_charlist(String.trim(name))
  end

  defp tls("https:" <> _rest) do
    trust =
      case System.get_env("SSL_CERT_FILE") do
        nil ->
          if Code.ensure_loaded?(:public_key) and function_exported?(:public_key, :cacerts_get, 0),
            do: [cacerts: apply(:public_key, :cacerts_get, [])],
            else: [cacertfile: bundle()]

        file ->
          [cacertfile: file]
      end

    match = :public_key.pkix_verify_hostname_match_fun(:https)
    [ssl: [verify: :verify_peer, depth: 10, customize_hostname_check: [match_fun: match]] ++ trust]
  end

  defp tls(_plain), do: []

  defp bundle do
    files = [
      "/etc/ssl/certs/ca-certificates.crt",
      "/etc/pki/tls/certs/ca-bundle.crt",
      "/etc/ssl/ca-bundle.pem",
      "/etc/ssl/cert.pem"
    ]

    Enum.find(files, hd(files), &File.regular?/1)
  end
end
