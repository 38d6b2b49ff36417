"""Answers to the rows of a file, by calls that can be continued."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from weir._core import Error, InvalidError, invalid, utf8
from weir.engine import Engine, _part_of
from weir.stream import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from weir._options import GenerateOptions

_TYPES = {"index": "int64", "id": "string", "text": "string", "reasoning": "string", "calls": "string", "reason": "string",
          "n_prompt": "int64", "n_generated": "int64", "error": "string"}  # fmt: skip


def batch(engine: Engine, source: str | os.PathLike[str], target: str | os.PathLike[str], /, *, progress: bool = False,
          **options: Unpack[GenerateOptions]) -> int:  # fmt: skip
    """Answers each row of a file, and writes the answers into another one, in the order of the rows. Returns how many answers this
    call has computed.

    source, target: files of JSON lines; or of Parquet if their names end in ".parquet", which needs pyarrow
    progress: show a bar (tqdm)

    A row has a prompt (a text or token ids) or messages, and perhaps an id. An answer has the row's index and id, text, reason,
    n_prompt and n_generated, and if there are any, reasoning, calls and error. A row that is refused does not end the call.

    Each answer is written at once to a file beside the target, whose name ends in ".partial". If the process ends early, the same call
    continues: answers in that file are not computed again. A call with another source, model or option is refused then (objects among
    the options are compared by their types). The target appears when it is complete; from then on the call does nothing.
    """
    source, target = os.fspath(source), os.fspath(target)
    if os.path.exists(target):
        return 0
    if source.endswith(".parquet") or target.endswith(".parquet"):
        _parquet()
    _try(engine, options)
    with _Journal(target + ".partial", _identity(engine, source, options)) as journal:
        if os.path.exists(target):  # another process has completed it meanwhile
            journal.delete()
            return 0
        asked: list[tuple[int, Any]] = []

        def prompts() -> Iterator[Any]:
            for index, row in enumerate(_rows(source)):
                if index in journal:
                    continue
                try:
                    prompt, name = _prompt(row)
                except InvalidError as e:
                    journal.add(index, None, Result(reason="error", error=e))
                    continue
                asked.append((index, name))
                yield prompt

        before = len(journal)
        for n, result in engine.as_completed(prompts(), errors="return", progress=progress, **options):
            if result.error is not None and not _of_row(result.error):
                raise result.error
            journal.add(*asked[n], result)
        _write(target, journal.answers())
        journal.delete()
        return len(journal) - before


def _try(engine: Engine, options: Mapping[str, Any]) -> None:
    """Raises what is wrong with the options for every row."""
    chat = any(_part_of(name, with_messages=False) == "chat" for name in options)
    request, _ = engine._request([{"role": "user", "content": "a"}] if chat else "a", None, None, options)
    engine._plan(request)


def _of_row(error: Error) -> bool:
    """True if a row is at fault; the engine is, if it is full, stops or fails."""
    return 400 <= error.status < 500 and error.code not in ("queue_full", "cancelled")


def _identity(engine: Engine, source: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same in a call that continues. Of a model's file: its name, its size and a hash of its first 16 MiB."""
    with open(source, "rb") as f:
        digest = hashlib.sha256()
        while block := f.read(1 << 20):
            digest.update(block)
    model = os.path.basename(engine.model.path)
    if os.path.isfile(engine.model.path):
        with open(engine.model.path, "rb") as f:
            model += f" {os.fstat(f.fileno()).st_size} {hashlib.sha256(f.read(16 << 20)).hexdigest()}"
    given = json.dumps(options, sort_keys=True, default=lambda value: type(value).__name__)
    return {"source": digest.hexdigest(), "model": model, "options": given}


def _rows(source: str) -> Iterator[Any]:
    """The rows of a file; for a line that is no JSON, the error."""
    if source.endswith(".parquet"):
        with _parquet().ParquetFile(source) as file:
            for part in file.iter_batches(1024):
                yield from part.to_pylist()
        return
    with open(source, "rb") as lines:
        for line in lines:
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as e:
                    yield invalid("row", f"is no JSON: {e}")


def _prompt(row: Any) -> tuple[Any, Any]:
    """The prompt of a row, and its id."""
    if isinstance(row, Error):
        raise row
    if not isinstance(row, Mapping):
        raise invalid("row", "must be an object")
    fields = cast("Mapping[str, Any]", row)
    given = [fields[name] for name in ("prompt", "messages") if fields.get(name) is not None]
    if len(given) != 1:
        raise invalid("row", "must have either a prompt or messages")
    messages = fields.get("messages")
    if messages is not None and not (isinstance(messages, list) and messages and isinstance(messages[0], Mapping)):
        raise invalid("row.messages", "must be a list of messages")
    name = fields.get("id")
    if name is not None and not isinstance(name, (str, int)):
        raise invalid("row.id", "must be a text or a number")
    if isinstance(name, str):
        utf8("row.id", name)
    return given[0], name


class _Journal:
    """Answers in the order in which they ended: the first line has the identity, each other line an answer. Only whole lines count."""

    def __init__(self, path: str, identity: dict[str, Any]) -> None:
        self.path, self._identity = path, identity
        self._places: dict[int, int] = {}  # by index: where the line begins

    def __enter__(self) -> _Journal:
        self._file: BinaryIO = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError:
            self._file.close()
            raise Error(f"another process writes {self.path}", "conflict", 409, "target") from None
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def delete(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, index: int) -> bool:
        return index in self._places

    def _read(self) -> None:
        self._file.seek(0)
        self._end, different = 0, list[str]()
        damaged = invalid("target", f"has no answers of this function in {self.path}")
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    if not self._end and not _line(self._identity).startswith(line):
                        raise damaged
                    break
                try:
                    found = json.loads(line)
                    if self._end:
                        self._places[int(found["index"])] = self._end
                    else:
                        different = [name for name in self._identity if found.get(name) != self._identity[name]]
                except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
                    raise damaged from None
                if different:
                    raise invalid("target", f"was begun with other contents ({', '.join(different)}); delete {self.path} to begin anew")
                self._end += len(line)
        self._file.truncate(self._end)  # a line that was not written to its end
        if self._end == 0:
            self._append(self._identity)

    def _append(self, line: dict[str, Any]) -> None:
        data = _line(line)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._end += len(data)

    def add(self, index: int, name: Any, result: Result) -> None:
        self._places[index] = self._end
        answer: dict[str, Any] = {"index": index, **({} if name is None else {"id": name}), "text": result.text, "reason": result.reason,
                  "n_prompt": result.usage["n_prompt"], "n_generated": result.usage["n_generated"]}  # fmt: skip
        if result.reasoning:
            answer["reasoning"] = result.reasoning
        if result.calls:
            answer["calls"] = result.message["tool_calls"]
        if result.error is not None:
            answer["error"] = result.error.message
        self._append(answer)

    def answers(self) -> Iterator[dict[str, Any]]:
        """All of them, by index."""
        with open(self._file.fileno(), "rb", closefd=False) as file:
            for index in sorted(self._places):
                file.seek(self._places[index])
                yield json.loads(file.readline())


def _line(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _parquet() -> Any:
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise Error("files of Parquet need the package pyarrow", "unsupported", 400) from None


def _write(target: str, answers: Iterable[dict[str, Any]]) -> None:
    """Writes the target, which gets its name when it is complete."""
    whole = target + ".whole"
    try:
        if target.endswith(".parquet"):
            _write_parquet(whole, answers)
        else:
            with open(whole, "wb") as file:
                for answer in answers:
                    file.write(_line(answer))
        with open(whole, "rb") as file:
            os.fsync(file.fileno())
        os.replace(whole, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(whole)
        raise


def _write_parquet(path: str, answers: Iterable[dict[str, Any]]) -> None:
    parquet, arrow = _parquet(), importlib.import_module("pyarrow")
    schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in _TYPES.items()])
    with parquet.ParquetWriter(path, schema) as writer:
        rows: list[dict[str, Any]] = []

        def flush() -> None:
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            rows.clear()

        for answer in answers:
            if "id" in answer:
                answer["id"] = str(answer["id"])
            if "calls" in answer:
                answer["calls"] = json.dumps(answer["calls"], ensure_ascii=False)
            rows.append(answer)
            if len(rows) == 1024:
                flush()
        flush()
