# SPDX-License-Identifier: Apache-2.0
exclude = if System.get_env("WEIR_TEST_MODEL", "") == "", do: [:model], else: []
exclude = if Weir.NIF.backend_version() == "none", do: [:model | exclude], else: exclude

# One seed in each run, so that a suite that passed passes again; `mix test --seed N` takes another one.
# A missing message is an error; on a busy machine a late message or a slow test is not.
ExUnit.start(exclude: exclude, seed: 1, assert_receive_timeout: 120_000, timeout: 850_000)
