# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Sound do
  @moduledoc false

  @format <<16::little-32, 1::little-16, 1::little-16, 16_000::little-32, 32_000::little-32, 2::little-16,
            16::little-16>>

  # A file of a second at 16,000 Hz.
  def wav do
    "RIFF" <>
      <<32_036::little-32>> <>
      "WAVEfmt " <> @format <> "data" <> <<32_000::little-32>> <> :binary.copy(<<1, 0>>, 16_000)
  end
end
