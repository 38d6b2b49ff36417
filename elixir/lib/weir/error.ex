defmodule Weir.Error do
  @moduledoc "Raised by streams and by functions whose name ends in `!`."
  defexception [:message]
  @type t :: %__MODULE__{message: String.t()}
end
