#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Samplers against the formulas of their papers in numpy, and against mlx-lm where it has the same sampler.

Expected, before the first run: weir_sample() draws from the distribution of the formulas below. No token outside the support is drawn
in 10^5 draws, and the counts of those inside fit by chi-square (p > 1e-6 with fixed seeds). The formulas are those of
top-k; top-p (arXiv 1904.09751); min-p (2407.01082); locally typical (2202.00666); top-n-sigma (2411.07641); XTC and DRY as their
author published them (text-generation-webui, pull requests 6335 and 5677); mirostat 1 and 2 (2007.14966); the repetition penalty of
CTRL (1909.05858); frequency and presence penalties of OpenAI's API; dynamic temperature by entropy. They apply in the order of
`order`, each on the softmax of what those before it left. The rows of logits are made up: they are written over a context's row.

mlx-lm's functions are asked for the same supports and logits, as a second opinion on the formulas.
Draws: WEIR_ORACLE_DRAWS, 100000; rows per case: WEIR_ORACLE_ROWS, 1."""
import importlib.util
import os
import sysconfig

import numpy as np

import lib

DRAWS, ROWS = int(os.environ.get("WEIR_ORACLE_DRAWS", 100000)), int(os.environ.get("WEIR_ORACLE_ROWS", 1))
OFF = dict(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)
ORDER = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
REASONS = {
    "DRY's length 0": "with dry_allowed_length = 0 the author's loop begins at matches of one token; llama.cpp counts a match of no token as one, so that every "
                      "recent token gets the penalty",
    "mirostat 1's surprise": "the paper takes the surprise of the drawn token in the model's distribution; llama.cpp, whose chain weir runs, in that of "
                             "the k tokens that were left, which is smaller, so mu falls more slowly",
    "mirostat 2's surprise": "likewise: llama.cpp's is of the distribution after the cut",
}


class Close(Exception):
    """A cut so close to a token that float and double may differ."""


# ---- The formulas -----------------------------------------------------------------------------------------

def softmax(x):
    e = np.exp(x - x[np.isfinite(x)].max())
    return e / e.sum()


def cut(x, kept):
    return np.where(kept, x, -np.inf)


def clear(values, bound):
    """Raises Close where a value lies at the bound."""
    values = values[np.isfinite(values)]
    if len(values) and np.abs(values - bound).min() < 2e-5 * abs(bound):
        raise Close


def first_of(x, order, n):
    kept = np.zeros(len(x), bool)
    kept[order[:n]] = True
    return cut(x, kept)


def penalties(x, p, history):
    x, recent = x.copy(), history[-p["penalty_last_n"]:] if p["penalty_last_n"] else []
    tokens, counts = np.unique(np.array(recent, int), return_counts=True)
    x[tokens] = np.where(x[tokens] > 0, x[tokens] / p["penalty_repeat"], x[tokens] * p["penalty_repeat"])
    x[tokens] -= counts * p["penalty_freq"] + p["penalty_present"]
    return x


def dry(x, p, history):
    """The author's loop: the longest earlier copy of the text's end, for each token that followed one."""
    text, breakers, longest = history[-p["dry_penalty_last_n"]:], p["breakers"], {}
    if not text or text[-1] in breakers:
        return x
    for i in range(len(text) - 1):
        if text[i] != text[-1] or text[i + 1] in breakers:
            continue
        length = 1
        while length <= i and text[i - length] == text[-1 - length] and text[i - length] not in breakers:
            length += 1
        longest[text[i + 1]] = max(longest.get(text[i + 1], 0), length)
    x = x.copy()
    for token, length in longest.items():
        if length >= p["dry_allowed_length"]:
            x[token] -= p["dry_multiplier"] * p["dry_base"] ** (length - p["dry_allowed_length"])
    return x


def top_n_sigma(x, p, _):
    bound = x[np.isfinite(x)].max() - p["top_n_sigma"] * x[np.isfinite(x)].std()
    clear(x, bound)
    return cut(x, x >= bound)


def top_k(x, p, _):
    return first_of(x, np.argsort(-x, kind="stable"), p["top_k"]) if p["top_k"] > 0 else x


def typ_p(x, p, _):
    probabilities = softmax(x)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = -np.log(probabilities)
        entropy = np.nansum(probabilities * np.where(probabilities > 0, information, 0))
    distance = np.where(probabilities > 0, np.abs(information - entropy), np.inf)
    order = np.argsort(distance, kind="stable")
    sorted_distance = distance[order][np.isfinite(distance[order])]
    if (np.diff(sorted_distance) < 1e-5)[sorted_distance[1:] < 3].any():
        raise Close
    mass = np.cumsum(probabilities[order])
    clear(mass[mass < 0.99999], p["typical_p"])
    return first_of(x, order, max(int((mass < p["typical_p"]).sum()) + 1, p["min_keep"]))


def top_p(x, p, _):
    probabilities = softmax(x)
    order = np.argsort(-probabilities, kind="stable")
    mass = np.cumsum(probabilities[order])
    clear(mass[mass < 0.99999], p["top_p"])
    return first_of(x, order, max(int((mass < p["top_p"]).sum()) + 1, p["min_keep"]))


def min_p(x, p, _):
    probabilities = softmax(x)
    clear(np.delete(probabilities, np.argmax(probabilities)) / probabilities.max(), p["min_p"])
    kept = probabilities >= p["min_p"] * probabilities.max()
    return cut(x, kept) if kept.sum() >= p["min_keep"] else first_of(x, np.argsort(-x, kind="stable"), p["min_keep"])


def xtc(x, p, _):
    """Without all but the least likely of the tokens above the threshold; when it happens is the caller's business."""
    probabilities = softmax(x)
    clear(probabilities, p["xtc_threshold"])
    above = np.flatnonzero(probabilities >= p["xtc_threshold"])
    if len(above) < 2:
        return x
    kept = np.ones(len(x), bool)
    kept[above] = False
    kept[above[np.argmin(probabilities[above])]] = True
    return cut(x, kept) if (kept & np.isfinite(x)).sum() >= p["min_keep"] else x


def temperature(x, p, _):
    low, high = max(0.0, p["temp"] - p["dynatemp_range"]), p["temp"] + p["dynatemp_range"]
    if p["dynatemp_range"] <= 0:
        return x / p["temp"]
    probabilities = softmax(x)
    probabilities = probabilities[np.isfinite(x)]
    if len(probabilities) < 2:
        return x
    entropy = -(probabilities[probabilities > 0] * np.log(probabilities[probabilities > 0])).sum()
    return x / (low + (high - low) * (entropy / np.log(len(probabilities))) ** p["dynatemp_exponent"])


STEPS = dict(penalties=penalties, dry=dry, top_n_sigma=top_n_sigma, top_k=top_k, typ_p=typ_p, top_p=top_p, min_p=min_p, xtc=xtc,
             temperature=temperature)
ACTIVE = dict(penalties=lambda p: p["penalty_last_n"] > 0, dry=lambda p: p["dry_multiplier"] != 0, top_n_sigma=lambda p: p["top_n_sigma"] > 0,
              top_k=lambda p: True, typ_p=lambda p: p["typical_p"] < 1, top_p=lambda p: p["top_p"] < 1, min_p=lambda p: p["min_p"] > 0,
              xtc=lambda p: p["xtc_probability"] > 0, temperature=lambda p: True)


def distribution(row, p, history):
    """Of the next token: XTC happens with its probability, so the result is a mixture of two."""
    bias = np.zeros(len(row))
    for token, value in p["bias"]:
        bias[token] += value
    branches = [(1.0, row + bias)]
    for name in p["order"].split(";") if p["order"] else []:
        if not ACTIVE[name](p):
            continue
        if name == "xtc":
            q = p["xtc_probability"]
            branches = [b for w, x in branches for b in ((w * (1 - q), x), (w * q, xtc(x, p, history))) if b[0] > 0]
        elif not (name == "temperature" and p["temp"] == 0):
            branches = [(w, STEPS[name](x, p, history)) for w, x in branches]
    if p["temp"] == 0:
        return sum(w * np.eye(len(row))[np.argmax(x)] for w, x in branches)
    return sum(w * softmax(x) for w, x in branches)


class Mirostat:
    """Both versions of the paper; `own` takes the surprise in the distribution that is left."""

    def __init__(self, row, p, own):
        self.p, self.own, self.mu = p, own, 2 * p["mirostat_tau"]
        self.order = np.argsort(-row, kind="stable")
        self.full = softmax(row / p["temp"])

    def next(self):
        """The distribution of the next token; None: float and double may cut it at different tokens."""
        likely = self.full[self.order]
        if self.p["mirostat"] == 1:
            m = min(100, len(likely))
            t = np.log(np.arange(2, m + 1) / np.arange(1, m))
            b = np.log(likely[:m - 1] / likely[1:m])
            s = (t * b).sum() / (t * t).sum()
            k = ((s - 1) * 2 ** self.mu / (1 - float(len(likely)) ** (1 - s))) ** (1 / s)
            if abs(k - round(k)) < 1e-3:
                return None
            n = max(1, min(int(k), len(likely)))
        else:
            surprise = -np.log2(likely)
            if np.abs(surprise - self.mu).min() < 1e-4:
                return None
            n = max(1, int((surprise <= self.mu).sum()))
        left = np.zeros(len(likely))
        left[self.order[:n]] = likely[:n] / likely[:n].sum()
        return left

    def take(self, token):
        self.mu -= self.p["mirostat_eta"] * (-np.log2((self.next() if self.own else self.full)[token]) - self.p["mirostat_tau"])


# ---- weir -------------------------------------------------------------------------------------------------

class Draws(lib.Library):
    def __init__(self):
        super().__init__()
        ffi = self.ffi
        model, context = ffi.new("weir_model **"), ffi.new("weir_context **")
        self.need("weir_model_load", lib.tiny("llama").encode(), ffi.NULL, model)
        self.model = model[0]
        self.need("weir_context_create", self.model, ffi.NULL, context)
        self.context = context[0]
        self.need("weir_prefill", self.context, ffi.new("int32_t[]", [1]), 1, 0, ffi.NULL)
        logits, info = ffi.new("const float **"), ffi.new("weir_model_info *")
        info.size = ffi.sizeof("weir_model_info")
        self.lib.weir_model_describe(self.model, info)
        self.need("weir_logits", self.context, -1, logits)
        # The context's own row, over which the made-up ones are written.
        self.row = np.frombuffer(ffi.buffer(ffi.cast("float *", logits[0]), 4 * info.n_vocab), np.float32)
        self.n = info.n_vocab
        self.token, self.error = ffi.new("int32_t *"), ffi.new("weir_error *")

    def token_of(self, text):
        tokens, n = self.ffi.new("int32_t[8]"), self.ffi.new("size_t *")
        self.need("weir_tokenize", self.model, text.encode(), self.lib.WEIR_NUL if hasattr(self.lib, "WEIR_NUL") else self.ffi.cast("size_t", -1), False, False,
                  tokens, 8, n)
        return list(tokens[0:n[0]])

    def sampler(self, p, seed, history=()):
        ffi, params, sampler = self.ffi, self.ffi.new("weir_sampler_params *"), self.ffi.new("weir_sampler **")
        self.lib.weir_sampler_params_init(params, ffi.sizeof("weir_sampler_params"))
        for name, value in p.items():
            if name not in ("bias", "breakers", "order"):
                setattr(params, name, value)
        order, biases = ffi.new("char[]", p["order"].encode()), ffi.new("weir_logit_bias[]", [tuple(b) for b in p["bias"]])
        words = [ffi.new("char[]", word.encode()) for word in p["breakers"].values()]
        breakers = ffi.new("char *[]", words + [ffi.NULL])
        params.seed, params.order, params.logit_bias, params.n_logit_bias = seed, order, biases, len(p["bias"])
        params.dry_breakers, params.n_dry_breakers = ffi.cast("const char *const *", breakers), len(words)
        self.need("weir_sampler_create", self.model, params, sampler)
        if len(history):
            self.need("weir_sampler_count", sampler[0], ffi.new("int32_t[]", list(history)), len(history))
        return sampler[0]

    def draw(self, sampler):
        if self.lib.weir_sample(sampler, self.context, self.token, self.error) != 0:
            raise ValueError(self.ffi.string(self.error.message).decode())
        return self.token[0]

    def many(self, p, history, n):
        """Counts of n draws: of one sampler where nothing depends on its past, else of n samplers with seeds of their own."""
        counts = np.zeros(self.n)
        if not len(history):
            sampler = self.sampler(p, 1)
            for _ in range(n):
                counts[self.draw(sampler)] += 1
            self.lib.weir_sampler_destroy(sampler)
            return counts
        for seed in range(n):
            sampler = self.sampler(p, 1000 + seed, history)
            counts[self.draw(sampler)] += 1
            self.lib.weir_sampler_destroy(sampler)
        return counts


def base(**given):
    p = dict(temp=1.0, dynatemp_range=0.0, dynatemp_exponent=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0, top_n_sigma=-1.0, xtc_probability=0.0,
             xtc_threshold=0.1, min_keep=0, dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2, dry_penalty_last_n=64, penalty_last_n=64,
             penalty_repeat=1.0, penalty_freq=0.0, penalty_present=0.0, mirostat=0, mirostat_tau=5.0, mirostat_eta=0.1, bias=[], breakers={}, order=ORDER)
    assert all(name in p for name in given)
    return p | given


CASES = {
    "temperature": [base(temp=t) for t in (0.3, 0.8, 1.0, 2.0, 100.0)] + [base(temp=0.0)],
    "dynamic temperature": [base(temp=t, dynatemp_range=r, dynatemp_exponent=e) for t, r, e in ((1, 0.5, 1), (0.8, 0.8, 1), (1, 0.7, 3), (0.5, 1.5, 0.5), (2, 1, 0))],
    "top-k": [base(top_k=k) for k in (1, 2, 7, 40, 300, 511, 512, 100000)],
    "top-p": [base(top_p=q) for q in (0.05, 0.5, 0.9, 0.99, 0.0)] + [base(top_p=0.1, min_keep=5)],
    "min-p": [base(min_p=q) for q in (0.02, 0.1, 0.5, 1.0)] + [base(min_p=0.9, min_keep=4), base(min_p=0.1, temp=2.0)],
    "typical": [base(typical_p=q) for q in (0.1, 0.3, 0.7, 0.95)] + [base(typical_p=0.05, min_keep=6)],
    "top-n-sigma": [base(top_n_sigma=n) for n in (0.5, 1.0, 1.7, 3.0)] + [base(top_n_sigma=1.0, temp=3.0)],
    "XTC": [base(xtc_probability=q, xtc_threshold=t) for q, t in ((1, 0.05), (0.5, 0.1), (0.3, 0.02), (1, 0.5), (1, 0.0))] +
           [base(xtc_probability=0.7, xtc_threshold=0.03, top_p=0.8), base(xtc_probability=1, xtc_threshold=0.03, top_k=8, min_keep=7)],
    "bias": [base(bias=[(3, 4.0), (3, -1.5), (9, float("-inf"))]), base(bias=[(5, 30.0)], top_k=3), base(bias=[(i, -100.0) for i in range(40)], top_p=0.7)],
    "order": [base(order=o, top_k=20, top_p=0.7, min_p=0.05, temp=2.5) for o in ("temperature;top_p;min_p;top_k", "min_p;top_p;temperature", "top_p;temperature;top_k",
              "temperature", "", "top_k;temperature;min_p;top_p")] + [base(order="temperature;top_n_sigma;typ_p;xtc", temp=1.7, top_n_sigma=2.0, typical_p=0.8, xtc_probability=0.5)],
    "after top-n-sigma": [base(top_n_sigma=1.5, **more) for more in (dict(typical_p=0.5), dict(dynatemp_range=0.9, dynatemp_exponent=2.0), dict(xtc_probability=0.6,
                          xtc_threshold=0.03), dict(top_p=0.6), dict(typical_p=0.2, dynatemp_range=0.7), dict(typical_p=0.2, min_keep=5))],
    "far below": [base(bias=[(i, -150.0) for i in range(200)], **more) for more in (dict(typical_p=0.5), dict(dynatemp_range=0.9), dict(min_p=0.05), dict(top_p=0.9),
                  dict(typical_p=0.5, temp=0.0), dict(xtc_probability=1.0, xtc_threshold=0.04), dict(temp=60.0))],
    "all defaults": [base(temp=0.8, top_k=40, top_p=0.95, min_p=0.05), base(temp=0.0, top_p=0.5)],
}
PAST = {
    "repetition penalty": [base(penalty_repeat=r, penalty_last_n=n) for r, n in ((1.3, 64), (2.0, 5), (0.7, 64), (100.0, 12), (1.1, 1))],
    "frequency and presence": [base(penalty_freq=f, penalty_present=q, penalty_last_n=n) for f, q, n in
                               ((0.5, 0, 64), (0, 1.5, 64), (-0.4, 0.3, 20), (2, 2, 3), (0.3, -2, 1000))] + [base(penalty_repeat=1.2, penalty_freq=0.2, penalty_present=0.4, temp=0.7, top_p=0.9)],
    "DRY": [base(dry_multiplier=m, dry_base=b, dry_allowed_length=a, dry_penalty_last_n=n) for m, b, a, n in
            ((0.8, 1.75, 2, 64), (0.5, 1.2, 1, 64), (1.0, 2.0, 3, 1000), (0.4, 1.5, 2, 10), (0.8, 1.75, 0, 64), (3.0, 1.3, 5, 64))],
}


def make_row(random, n):
    """Logits about as a model's: few high, most low; both signs."""
    return (4.0 * random.random(n) - 4.0 + 8.0 * random.random(n) ** 12).astype(np.float32)


def make_history(random, row, n):
    """Tokens that repeat themselves, as text does: pieces come again."""
    alphabet, text = np.argsort(-row)[:12].tolist(), []
    while len(text) < n:
        if text and random.random() < 0.6:
            start = int(random.integers(len(text)))
            text += text[start:start + int(random.integers(1, 7))]
        else:
            text.append(alphabet[int(random.integers(len(alphabet)))])
    return text


def fits(counts, expected):
    """(agrees, what was seen): nothing outside of the support, and chi-square."""
    outside = np.flatnonzero((expected == 0) & (counts > 0))
    p = lib.chi_square(counts, expected * counts.sum())
    return len(outside) == 0 and p > 1e-6, f"p = {p:.3g}, outside of the support: {outside[:8].tolist()}"


def compare(table, draws, subject, number, p, past):
    for i in range(ROWS):
        for attempt in range(10000):
            random = np.random.default_rng([number, i, attempt, len(subject)])
            row = make_row(random, draws.n)
            history = make_history(random, row, int(random.integers(3, 80))) if past else []
            if past and subject == "DRY" and (number + i) % 2 == 1:
                p = dict(p, breakers={draws.token_of(":")[0]: ":"})
                history[len(history) // 2::9] = [next(iter(p["breakers"]))] * len(history[len(history) // 2::9])
            try:
                expected = distribution(row.astype(np.float64), p, history)
                break
            except Close:
                assert attempt < 9999, p
        draws.row.flags.writeable = True
        draws.row[:] = row
        shown = {k: v if k != "bias" else f"{len(v)}, first {v[0]}" for k, v in p.items() if base()[k] != v}
        agrees, seen = fits(draws.many(p, history, DRAWS // (1 if not past else 4)), expected)
        reason = "DRY's length 0" if subject == "DRY" and p["dry_allowed_length"] == 0 else None
        table.same(subject, agrees, f"{shown}, row {i}", reason, seen)


def compare_mirostat(table, draws, number, p, steps=4):
    """Each step by itself: how often each token came, beside the mean of the distributions that the draws before it led to."""
    reason = f"mirostat {p['mirostat']}'s surprise"
    for i in range(ROWS):
        row = make_row(np.random.default_rng([number, i, 77]), draws.n)
        draws.row[:] = row
        texts = []
        for seed in range(DRAWS // 10):
            sampler = draws.sampler(p, 5000 + seed)
            texts.append([draws.draw(sampler) for _ in range(steps)])
            draws.lib.weir_sampler_destroy(sampler)
        verdicts = [by_steps(row.astype(np.float64), p, texts, steps, own) for own in (False, True)]
        for step in range(steps):
            (agrees, seen), (as_llama, seen_too) = verdicts[0][step], verdicts[1][step]
            what = f"{dict(tau=p['mirostat_tau'], eta=p['mirostat_eta'], temp=p['temp'])}, row {i}, step {step}"
            table.same(f"mirostat {p['mirostat']}", agrees, what, reason if as_llama else None, f"{seen}; {seen_too}")


def by_steps(row, p, texts, steps, own):
    counts, expected, known = np.zeros((steps, len(row))), np.zeros((steps, len(row))), {}
    outside = [0] * steps
    for text in texts:
        for step in range(steps):
            past = tuple(text[:step])
            if past not in known:
                state = Mirostat(row, p, own)
                for token in past:
                    state.take(token)
                known[past] = state.next()
            if known[past] is None:
                break # the draws so far decide that, and not the next one: so what is left is no other distribution
            outside[step] += known[past][text[step]] == 0
            counts[step, text[step]] += 1
            expected[step] += known[past]
    fit = [lib.chi_square(counts[step], expected[step]) for step in range(steps)]
    return [(p > 1e-6 and n == 0, f"p = {p:.3g}, {n} outside") for p, n in zip(fit, outside)]


def compare_mlx(table):
    """The formulas above beside mlx-lm's, on the same rows."""
    import mlx.core as mx
    path = os.path.join(sysconfig.get_paths()["purelib"], "mlx_lm", "sample_utils.py") # alone: the package needs transformers
    spec = importlib.util.spec_from_file_location("sample_utils", path)
    them = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(them)

    def result(function, row, *words):
        return np.array(function(mx.array(np.log(softmax(row)).astype(np.float32))[None], *words))[0].astype(np.float64)

    for i in range(200):
        random = np.random.default_rng([i, 4711])
        row = make_row(random, 512).astype(np.float64)
        history = make_history(random, row, 40)
        for name, ours, theirs in (
                ("top-k", lambda: top_k(row, base(top_k=9), []), lambda: result(them.apply_top_k, row, 9)),
                ("top-p", lambda: top_p(row, base(top_p=0.7), []), lambda: result(them.apply_top_p, row, 0.7)),
                ("min-p", lambda: min_p(row, base(min_p=0.06), []), lambda: result(them.apply_min_p, row, 0.06, 1)),
                ("XTC", lambda: xtc(row, base(xtc_threshold=0.01), []), lambda: result(them.apply_xtc, row, 1.0, 0.01, []))):
            try:
                table.same(f"{name}, mlx-lm", np.array_equal(np.isfinite(ours()), np.isfinite(theirs())), f"row {i}")
            except Close:
                pass
        for name, p, make in (("repetition", dict(penalty_repeat=1.4), lambda: them.make_repetition_penalty(1.4, 30)),
                              ("frequency", dict(penalty_freq=0.6), lambda: them.make_frequency_penalty(0.6, 30)),
                              ("presence", dict(penalty_present=0.6), lambda: them.make_presence_penalty(0.6, 30))):
            theirs = np.array(make()(mx.array(history), mx.array(row.astype(np.float32))[None]))[0]
            table.same(f"{name}, mlx-lm", np.allclose(theirs, penalties(row, base(penalty_last_n=30, **p), history), atol=1e-4), f"row {i}")


def main():
    table = lib.Table("samplers: numpy's formulas and mlx-lm", REASONS)
    draws = Draws()
    draws.row.flags.writeable = True
    compare_mlx(table)
    number = 0
    for past, cases in ((False, CASES), (True, PAST)):
        for subject, ps in cases.items():
            for p in ps:
                number += 1
                compare(table, draws, subject, number, p, past)
            print(f"# {subject}: {len(ps) * ROWS} distributions", flush=True)
    for version in (1, 2):
        for tau, eta, temp in ((3.0, 0.5, 1.0), (5.0, 0.1, 1.0), (2.0, 1.0, 1.5)):
            number += 1
            compare_mirostat(table, draws, number, base(mirostat=version, mirostat_tau=tau, mirostat_eta=eta, temp=temp))
    table.close()


if __name__ == "__main__":
    main()
