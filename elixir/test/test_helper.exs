# SPDX-License-Identifier: Apache-2.0
exclude = if System.get_env("WEIR_TEST_MODEL", "") == "", do: [:model], else: []
exclude = if Weir.NIF.backend_version() == "none", do: [:llama, :model | exclude], else: exclude

# a build without downloads says so before it asks anyone
{:error, reason} = Weir.Hub.list_gguf_files("o/m", endpoint: "http://127.0.0.1:1", n_retries: 0)
exclude = if reason =~ "without libcurl", do: [:curl | exclude], else: exclude

# A message that does not come is an error; one that comes late, on a busy machine, is none. Nor is a test that is slow.
ExUnit.start(exclude: exclude, assert_receive_timeout: 20_000, timeout: 600_000)
