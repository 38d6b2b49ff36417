exclude = if System.get_env("WEIR_TEST_MODEL", "") == "", do: [:model], else: []
exclude = if Weir.NIF.backend_version() == "none", do: [:llama, :model | exclude], else: exclude
# A message that does not come is an error; one that comes late, on a busy machine, is none.
ExUnit.start(exclude: exclude, assert_receive_timeout: 20_000)
