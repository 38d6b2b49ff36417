exclude = if System.get_env("WEIR_TEST_MODEL", "") == "", do: [:model], else: []
exclude = if Weir.NIF.backend_version() == "none", do: [:llama, :model | exclude], else: exclude
ExUnit.start(exclude: exclude)
