# SPDX-License-Identifier: Apache-2.0
exclude = if System.get_env("WEIR_TEST_MODEL", "") == "", do: [:model], else: []
exclude = if Weir.NIF.backend_version() == "none", do: [:model | exclude], else: exclude

# A missing message is an error; on a busy machine a late message or a slow test is not.
ExUnit.start(exclude: exclude, assert_receive_timeout: 20_000, timeout: 600_000)
