defmodule Weir.Wait do
  @moduledoc "Waiting for what happens soon."

  def eventually(fun, tries \\ 500) do
    cond do
      fun.() -> true
      tries == 0 -> false
      true -> Process.sleep(10) && eventually(fun, tries - 1)
    end
  end

  @doc "What is in this process's mailbox."
  def mailbox, do: elem(Process.info(self(), :messages), 1)
end
