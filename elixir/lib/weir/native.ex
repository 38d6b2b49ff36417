# SPDX-License-Identifier: Apache-2.0
defmodule Weir.Native do
  @moduledoc false
  # Declarations of native functions.

  @doc """
  Declares a function that the VM replaces when it loads the native library, with its type. An argument is
  `name :: type`, or a type that has the argument's name.

      native decode(context(), tokens :: [token()]) :: status()
  """
  defmacro native({:"::", _, [{name, _, arguments}, result]}) do
    {variables, types} = arguments |> Enum.map(&argument/1) |> Enum.unzip()

    quote do
      @spec unquote(name)(unquote_splicing(types)) :: unquote(result)
      def unquote(name)(unquote_splicing(variables)), do: missing()
    end
  end

  defp argument({:"::", _, [{name, _, _}, _type]} = annotated), do: {variable(name), annotated}
  defp argument({name, _, []} = type), do: {variable(name), type}

  defp variable(name), do: Macro.var(:"_#{name}", __MODULE__)
end
