/* grammars.c: the compiled grammars of a model, cached for requests with the same text.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "llama/internal.h"

/* Limits of the cache: texts, and bytes of their automata. The least recently used goes first. */
#define MOST_GRAMMARS 32
#define MOST_BYTES    ((size_t)64 << 20)

typedef struct known {
    char *text, *root; /* root NULL = "root" */
    weir__automaton *automaton;
} known;

struct weir__llama_grammars {
    pthread_mutex_t mutex;      /* protects the rest; not held while a grammar is compiled */
    _Atomic(weir__trie *) trie; /* NULL until the first grammar, then constant; stored with the mutex */
    known known[MOST_GRAMMARS]; /* [n], the most recently used first */
    size_t n;
};

/* Grammars that a call takes off the list. It frees them after it has unlocked the mutex, since an automaton
 * may be large. */
typedef struct dropped {
    known known[MOST_GRAMMARS + 1]; /* [n] */
    size_t n;
} dropped;

weir__llama_grammars *weir__llama_grammars_create(void)
{
    weir__llama_grammars *g = weir__mem_calloc(1, sizeof *g);
    if (g != NULL && pthread_mutex_init(&g->mutex, NULL) != 0) {
        weir__mem_free(g);
        g = NULL;
    }
    return g;
}

static void forget_grammar(known *k)
{
    weir__automaton_release(k->automaton);
    weir__mem_free(k->text);
    weir__mem_free(k->root);
}

static void forget_dropped(dropped *d)
{
    while (d->n > 0) forget_grammar(&d->known[--d->n]);
}

void weir__llama_grammars_destroy(weir__llama_grammars *g)
{
    if (g == NULL) return;
    while (g->n > 0) forget_grammar(&g->known[--g->n]);
    weir__trie_destroy(atomic_load(&g->trie));
    pthread_mutex_destroy(&g->mutex);
    weir__mem_free(g);
}

static int32_t piece_of(const void *model, int32_t token, char *bytes, int32_t capacity)
{
    return weir__llama_piece(model, token, true, bytes, capacity);
}

static bool token_ends(const void *model, int32_t token)
{
    return weir__llama_is_eog(model, token);
}

static int32_t find_token(const void *model, const char *text, size_t length)
{
    const weir__bmodel *m = model;
    int32_t tokens[2];
    size_t n = 0;
    weir_status status = weir__llama_tokenize(m, text, length, false, true, tokens, 2, &n, NULL);
    if (status == WEIR_NO_MEMORY) return WEIR__GRAMMAR_NO_MEMORY;
    return status == WEIR_OK && n == 1 ? tokens[0] : WEIR__GRAMMAR_NO_TOKEN;
}

/* The model's vocabulary as a trie. The mutex is held. */
static const weir__trie *get_trie(weir__bmodel *model)
{
    const weir__trie_source source = {model, model->info.n_vocab, piece_of, token_ends};
    weir__trie *trie = atomic_load(&model->grammars->trie);
    if (trie == NULL) atomic_store(&model->grammars->trie, trie = weir__trie_create(&source));
    return trie;
}

uint64_t weir__llama_grammar_bytes(const weir__bmodel *model)
{
    const weir__trie *trie = atomic_load(&model->grammars->trie);
    return trie != NULL ? weir__trie_bytes(trie) : 0;
}

static bool texts_equal(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Finds a grammar and moves it to the front. NULL: unknown, or it can have no more states. The mutex is
 * held. */
static weir__automaton *find_automaton(weir__llama_grammars *g, const char *text, const char *root)
{
    for (size_t i = 0; i < g->n; i++) {
        known found = g->known[i];
        if (strcmp(found.text, text) != 0 || !texts_equal(found.root, root) ||
            weir__automaton_is_full(found.automaton))
            continue;
        memmove(g->known + 1, g->known, i * sizeof *g->known);
        g->known[0] = found;
        return weir__automaton_hold(found.automaton);
    }
    return NULL;
}

/* Adds a grammar, if there is memory. The mutex is held. */
static void remember_grammar(weir__llama_grammars *g, const char *text, const char *root,
                             weir__automaton *automaton, dropped *d)
{
    known made = {weir__mem_strdup(text), root != NULL ? weir__mem_strdup(root) : NULL, automaton};
    weir__automaton_hold(automaton);
    if (made.text == NULL || (root != NULL && made.root == NULL)) {
        d->known[d->n++] = made;
        return;
    }
    if (g->n == MOST_GRAMMARS) d->known[d->n++] = g->known[--g->n];
    memmove(g->known + 1, g->known, g->n * sizeof *g->known);
    g->known[0] = made;
    g->n++;
}

/* Drops the least recently used grammars until the rest fits, since automata grow with use. A grammar that is
 * too large by itself is dropped alone. Samplers keep those that they use. The mutex is held. */
static void shrink_list(weir__llama_grammars *g, dropped *d)
{
    size_t sum = 0, n = 0;
    for (size_t i = 0; i < g->n; i++) {
        const size_t size = weir__automaton_size(g->known[i].automaton);
        if (sum + size > MOST_BYTES) {
            d->known[d->n++] = g->known[i];
            continue;
        }
        sum += size;
        g->known[n++] = g->known[i];
    }
    g->n = n;
}

weir_status weir__llama_grammar_get(weir__bmodel *model, const char *text, const char *root,
                                    weir__automaton **automaton, weir_error *error)
{
    weir__llama_grammars *g = model->grammars;
    dropped d;
    d.n = 0;
    if (root != NULL && strcmp(root, "root") == 0) root = NULL;
    pthread_mutex_lock(&g->mutex);
    const weir__trie *trie = get_trie(model);
    *automaton = trie != NULL ? find_automaton(g, text, root) : NULL;
    shrink_list(g, &d);
    pthread_mutex_unlock(&g->mutex);
    forget_dropped(&d);
    if (trie == NULL)
        return weir__error_set(error, WEIR_NO_MEMORY, NULL, "no memory for the vocabulary's tree");
    if (*automaton != NULL) return WEIR_OK;

    const weir__grammar_tokens tokens = {model, find_token};
    weir_status status = weir__grammar_compile(text, root, &tokens, trie, automaton, error);
    if (status != WEIR_OK) return status;
    pthread_mutex_lock(&g->mutex);
    weir__automaton *meanwhile = find_automaton(g, text, root);
    if (meanwhile == NULL) remember_grammar(g, text, root, *automaton, &d);
    pthread_mutex_unlock(&g->mutex);
    forget_dropped(&d);
    if (meanwhile != NULL) {
        weir__automaton_release(*automaton);
        *automaton = meanwhile;
    }
    return WEIR_OK;
}
