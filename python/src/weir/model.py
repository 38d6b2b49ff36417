"""Models, and what belongs to one: tokens, samplers, grammars, adapters, images and sounds, embeddings."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from weir import _core, _params
from weir._core import Handle, check, described, ffi, filled, invalid, ints, lib, sequence, sized, utf8, wrong_type

if TYPE_CHECKING:
    import numpy
    from typing_extensions import Unpack

    from weir._options import AdapterInfo, ContextOptions, MediaOptions, ModelInfo, ModelOptions, SamplerOptions


class _Progress:
    """A callback of Python's, and the exception that it has raised."""

    def __init__(self, fn: Callable[[float], object] | None) -> None:
        self.fn, self.error = fn, cast("BaseException | None", None)


def _failed(_kind: Any, error: BaseException, traceback: Any) -> None:
    """Keeps an exception of a callback; also a Ctrl-C, which may come before the first statement."""
    ffi.from_handle(traceback.tb_frame.f_locals["user"]).error = error


@ffi.def_extern(name="py_progress", onerror=_failed, error=False)
def on_progress(done: float, user: Any) -> bool:
    held = ffi.from_handle(user)
    return held.fn is None or held.fn(done) is not False


class Model(Handle):
    """The weights and the vocabulary of a GGUF file.

    path: the file, or "fake:" for a model without weights, for tests
    progress: called with 0.0 to 1.0 while it loads; False ends the load with the code "cancelled"

    Threads may share a model. Engines and other objects that were made of it hold it: they work after close().
    """

    _what = "model"

    def __init__(self, path: str | os.PathLike[str], *, progress: Callable[[float], object] | None = None,
                 **options: Unpack[ModelOptions]) -> None:  # fmt: skip
        name = _core.c_text("path", path)
        struct = _params.params("model", options)
        held = _Progress(progress)
        user = ffi.new_handle(held)
        struct.c.progress, struct.c.progress_user = lib.py_progress, user
        out, error = self._made("weir_model", lib.weir_model_release), ffi.new("weir_error *")
        status = lib.weir_model_load(name, struct.c, out, error)
        if status != lib.WEIR_OK and held.error is not None:
            raise held.error
        check(status, error)
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"<weir.Model {self.path!r}{' closed' if self.closed else ''}>"

    @property
    def info(self) -> ModelInfo:
        """What the file says about the model: sizes, special tokens, the chat template."""
        with self.use() as c:
            return described("weir_model_info", lib.weir_model_describe, c)

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """The token ids of a text. add_special: with those that the model expects around it; parse_special: control tokens such
        as "<|im_end|>" are one token."""
        data = utf8("text", text)
        with self.use() as c:
            ids = filled("int32_t[]", len(data) + 8, lambda *out: lib.weir_tokenize(c, data, len(data), add_special, parse_special, *out))
        return ffi.unpack(*ids) if ids[1] else []

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of token ids. special: with control tokens."""
        ids = ints("tokens", tokens)
        with self.use() as c:
            found = filled("char[]", 16 * len(ids) + 16, lambda *out: lib.weir_detokenize(c, ids, len(ids), special, *out))
        return ffi.buffer(*found)[:].decode()

    def piece(self, token: int, *, special: bool = True) -> bytes:
        """The bytes of one token, which may be part of a character."""
        ids = ints("token", [token])
        with self.use() as c:
            return ffi.buffer(*filled("char[]", 64, lambda *out: lib.weir_piece(c, ids[0], special, *out)))[:]

    def ends(self, token: int) -> bool:
        """True if this token ends an answer."""
        ids = ints("token", [token])
        with self.use() as c:
            return lib.weir_is_eog(c, ids[0])


class Sampler:
    """How tokens are chosen, for any number of requests; keywords of a request override it."""

    def __init__(self, **options: Unpack[SamplerOptions]) -> None:
        self._options: dict[str, Any] = dict(options)
        self._struct = _params.params("sampler", options)

    @property
    def c(self) -> Any:
        return self._struct.c

    def replace(self, **options: Unpack[SamplerOptions]) -> Sampler:
        """The same with other values for some keywords."""
        return Sampler(**{**self._options, **options})  # type: ignore[typeddict-item]

    def __repr__(self) -> str:
        return f"weir.Sampler({', '.join(f'{k}={v!r}' for k, v in self._options.items())})"


class Grammar:
    """A grammar in GBNF that answers must match; it is checked here. root: the rule to start with; None = "root"."""

    def __init__(self, gbnf: str, root: str | None = None) -> None:
        error = ffi.new("weir_error *")
        text, start = _core.c_text("grammar", gbnf), ffi.NULL if root is None else _core.c_text("root", root)
        check(lib.weir_grammar_check(text, start, error), error)
        self.gbnf, self.root = gbnf, root

    @classmethod
    def from_json_schema(cls, schema: Any) -> Grammar:
        """The grammar of the JSON texts that match a schema: a mapping, a JSON text or a type."""
        data = _params.schema_text("json_schema", schema)
        out, error = ffi.new("char **"), ffi.new("weir_error *")
        check(lib.weir_grammar_from_json_schema(data, len(data), out, error), error)
        try:
            return cls(_core.text(out[0]))
        finally:
            lib.weir_free(out[0])


class Adapter(Handle):
    """A LoRA adapter for a model. path: a GGUF file; of a fake model "fake:" and a number."""

    _what = "adapter"

    def __init__(self, model: Model, path: str | os.PathLike[str]) -> None:
        out, error = self._made("weir_adapter", lib.weir_adapter_release), ffi.new("weir_error *")
        with model.use() as c:
            check(lib.weir_adapter_load(c, _core.c_text("path", path), out, error), error)

    @property
    def info(self) -> AdapterInfo:
        with self.use() as c:
            return described("weir_adapter_info", lib.weir_adapter_describe, c)


class Media(Handle):
    """An image (PNG, JPEG, WebP) or a sound (WAV, FLAC, MP3), decoded from the bytes of its file."""

    _what = "image or sound"

    def __init__(self, data: bytes | bytearray | memoryview, **options: Unpack[MediaOptions]) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise wrong_type("data", "the bytes of a file", data)
        out, error = self._made("weir_media", lib.weir_media_release), ffi.new("weir_error *")
        view = ffi.from_buffer(data)
        struct = _params.params("media", options)
        check(lib.weir_media_create(view, len(view), struct.c, out, error), error)

    @property
    def info(self) -> dict[str, Any]:
        """kind ("image" or "audio"), format, width and height, or seconds and sample_rate, and the hash of the file."""
        with self.use() as c:
            return described("weir_media_info", lib.weir_media_describe, c)

    @property
    def array(self) -> numpy.ndarray[Any, Any]:
        """Pixels [height, width, 3] of type uint8, or samples [n] of type float32 from -1 to 1: a view of the library's memory,
        which keeps this object."""
        import numpy

        info = sized("weir_media_info")
        with self.use() as c:
            check(lib.weir_media_describe(c, info))
        image = info.pixels != ffi.NULL
        start, n = (info.pixels, info.width * info.height * 3) if image else (info.samples, info.n_samples * 4)
        view: Any = numpy.asarray(_View(self, start, n, "|u1" if image else "<f4"))
        view.flags.writeable = False
        return view.reshape(info.height, info.width, 3) if image else view


class _View:
    """Memory of the library as an array, which holds its owner."""

    def __init__(self, owner: Handle, start: Any, n_bytes: int, kind: str) -> None:
        self.owner = owner
        address = int(ffi.cast("uintptr_t", start))
        self.__array_interface__ = {"version": 3, "typestr": kind, "data": (address, True), "shape": (n_bytes // int(kind[2]),)}


class Embedder(Handle):
    """Embeddings, by a context of its own. Threads take turns.

    Keywords are those of a context; n_ctx is the longest text in tokens, by default the model's, at most 8,192. Embeddings are
    numpy arrays of type float32, one row for each text.
    """

    _what = "embedder"

    def __init__(self, model: Model, **options: Unpack[ContextOptions]) -> None:
        self._turn = threading.Lock()
        longest = min(model.info["n_ctx_train"] or 2048, 8192)
        struct = _params.params("context", {"n_ctx": longest, "n_seq_max": 1, **options, "embeddings": True})
        if "n_ubatch" not in options:
            struct.c.n_ubatch = max(struct.c.n_ctx, 1)
        out, error = self._made("weir_context", lib.weir_context_destroy), ffi.new("weir_error *")
        with model.use() as c:
            check(lib.weir_context_create(c, struct.c, out, error), error)
        self.model = model
        self.width: int = lib.weir_embedding_width(out[0])

    def embed(self, texts: str | Sequence[str | Sequence[int]], *, normalize: Literal["l2", "max_abs", "none"] = "l2",
              add_special: bool = True) -> numpy.ndarray[Any, Any]:  # fmt: skip
        """Embeddings [n, width] of texts or token ids, or [width] of a single str."""
        import numpy

        names = {"l2": lib.WEIR_NORMALIZE_L2, "max_abs": lib.WEIR_NORMALIZE_MAX_ABS, "none": lib.WEIR_NORMALIZE_NONE}
        if normalize not in names:
            raise invalid("normalize", f"is {normalize!r}; allowed: {', '.join(names)}")
        single = isinstance(texts, str)
        inputs: list[Any] = [texts] if single else list(sequence("texts", texts, "a str or a sequence of texts"))
        rows = numpy.empty((len(inputs), self.width), dtype=numpy.float32)
        step = 64  # so many in a call: between calls a Ctrl-C counts
        for first in range(0, len(inputs), step):
            some = inputs[first : first + step]
            ids = [
                ints(f"texts[{first + i}]", self.model.tokenize(t, add_special=add_special) if isinstance(t, str) else t)
                for i, t in enumerate(some)
            ]
            tokens = ffi.new("weir_tokens[]", [(i, len(i)) for i in ids])
            n, error = ffi.new("size_t *"), ffi.new("weir_error *")
            out = ffi.from_buffer("float[]", rows[first : first + len(some)], require_writable=True)
            with self.use() as c, self._turn:
                check(lib.weir_embed(c, tokens, len(some), names[normalize], out, len(out), n, error), error)
        return rows[0] if single else rows
