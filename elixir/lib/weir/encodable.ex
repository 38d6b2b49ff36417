# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Encodable do
  @moduledoc false
  # `use Weir.Encodable`: Jason and Elixir's own JSON (1.18) encode the struct as an object of its members. The
  # application may have either or none, and compile it before or after this package. So the implementation is
  # a module that does not mention the protocol's: its name and this attribute are what Elixir looks for.

  defmacro __using__(_opts) do
    struct = __CALLER__.module

    for protocol <- [:"Elixir.Jason.Encoder", :"Elixir.JSON.Encoder"] do
      quote do
        defmodule unquote(Module.concat(protocol, struct)) do
          @moduledoc false
          Module.register_attribute(__MODULE__, :__impl__, persist: true)
          @__impl__ [protocol: unquote(protocol), for: unquote(struct)]

          @doc false
          def __impl__(:protocol), do: unquote(protocol)
          def __impl__(:for), do: unquote(struct)
          def __impl__(:target), do: __MODULE__

          @doc false
          def encode(struct, how), do: Weir.Encodable.encode(unquote(protocol), Map.from_struct(struct), how)
        end
      end
    end
  end

  def encode(:"Elixir.Jason.Encoder", members, options),
    do: apply(:"Elixir.Jason.Encode", :map, [members, options])

  def encode(:"Elixir.JSON.Encoder", members, encoder), do: encoder.(members, encoder)
end
