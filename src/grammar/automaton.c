/* automaton.c: the life of an automaton, and its way along tokens.
 * SPDX-License-Identifier: Apache-2.0 */
#include "grammar/automaton.h"

#include "base/mem.h"
#include "grammar/automaton_states.h"
#include "grammar/repeat.h"

/* The cache of masks. With a vocabulary of 150,000 a mask has 19 kB; an answer reaches some dozen states that
 * refuse the sampled token and so need one. */
#define MASK_BYTES (2u << 20)

weir_status weir__automaton_accept_bytes(weir__automaton *a, weir__automaton_place *place, int32_t token,
                                         const char *bytes, size_t n)
{
    pthread_mutex_lock(&a->mutex);
    weir_status status = weir__automaton_go(a, &place->state, &place->partial, token, bytes, n);
    return weir__automaton_leave(a, status);
}

static bool is_eog(const weir__trie *trie, int32_t token)
{
    for (size_t i = 0; i < trie->n_eog; i++)
        if (trie->eog[i] == token) return true;
    return false;
}

weir_status weir__automaton_accept(weir__automaton *a, weir__automaton_place *place, int32_t token)
{
    const weir__trie *trie = a->trie;
    weir_status status;
    pthread_mutex_lock(&a->mutex);
    if (is_eog(trie, token))
        status = a->states[place->state].ends ? WEIR_OK : WEIR_REFUSED;
    else
        status =
            weir__automaton_go(a, &place->state, &place->partial, token, trie->bytes + trie->begins[token],
                               trie->begins[token + 1] - trie->begins[token]);
    return weir__automaton_leave(a, status);
}

/* ---- Life ----------------------------------------------------------------------------------------- */

static void destroy_automaton(weir__automaton *a)
{
    weir__slices_count(a->trie->slices, a->n_counted, 0);
    for (size_t i = 0; i < a->n_slices; i++) weir__slices_release(a->trie->slices, a->slices[i]);
    for (size_t i = 0; i < a->n_states; i++) weir__mem_free(a->states[i].row);
    for (size_t i = 0; a->masks != NULL && i < a->size_masks; i++) weir__mem_free(a->masks[i].bits);
    weir__mem_free(a->masks);
    weir__mem_free(a->codes);
    weir__mem_free(a->empty);
    weir__mem_free(a->order);
    weir__mem_free(a->path);
    weir__mem_free(a->found);
    weir__mem_free(a->todo);
    weir__mem_free(a->pool);
    weir__mem_free(a->state_table.old);
    weir__mem_free(a->frame_table.old);
    weir__mem_free(a->state_table.slots);
    weir__mem_free(a->states);
    weir__mem_free(a->frame_table.slots);
    weir__mem_free(a->after);
    weir__mem_free(a->seen);
    weir__mem_free(a->frames);
    weir__mem_free(a->related);
    weir__mem_free(a->nearer);
    weir__mem_free(a->counted);
    weir__mem_free(a->similar);
    weir__mem_free(a->lows);
    weir__automaton_rules_fini(&a->rules);
    weir__mem_free(a);
}

weir_status weir__automaton_create(const weir__automaton_element *rules, size_t n_elements,
                                   const uint32_t *starts, size_t n_rules, uint32_t root,
                                   const weir__trie *trie, weir__automaton **automaton)
{
    size_t mask_bytes = WEIR__AUTOMATON_WORDS(trie->n_vocab) * sizeof(uint64_t);
    weir__automaton *a = weir__mem_calloc(1, sizeof *a);
    if (a == NULL) return WEIR_NO_MEMORY;
    weir_status status = WEIR_NO_MEMORY;
    atomic_init(&a->refs, 1);
    a->trie = trie;
    a->size_masks = mask_bytes < MASK_BYTES / 8 ? MASK_BYTES / mask_bytes : 8;
    if (!weir__automaton_share(rules, n_elements, starts, n_rules, &a->rules)) goto fail;
    a->elements = a->rules.elements;
    a->starts = a->rules.starts;
    a->n_elements = a->rules.n_elements;
    a->masks = weir__mem_calloc(a->size_masks, sizeof *a->masks);
    a->path = weir__mem_calloc(trie->most_depth + 1, sizeof *a->path);
    a->related = weir__mem_calloc(a->n_elements, sizeof *a->related);
    a->empty = weir__mem_calloc(a->rules.n_rules, sizeof *a->empty);
    if (a->masks == NULL || a->path == NULL || a->related == NULL || a->empty == NULL) goto fail;
    weir__automaton_mark(a->elements, a->starts, a->rules.n_rules, false, SIZE_MAX, a->empty);
    if (!weir__repeat_find(a)) goto fail;
    for (size_t i = 0; i < a->size_masks; i++) a->masks[i].state = NONE;
    if (!weir__automaton_make_columns(a) || !weir__automaton_begin(a, root)) goto fail;
    status = WEIR_GRAMMAR;
    if (a->start == DEAD) goto fail;
    status = WEIR_NO_MEMORY;
    if (!weir__automaton_hold_slices(a) || pthread_mutex_init(&a->mutex, NULL) != 0) goto fail;
    pthread_mutex_lock(&a->mutex);
    *automaton = a;
    return weir__automaton_leave(a, WEIR_OK);
fail:
    destroy_automaton(a);
    return status;
}

weir__automaton *weir__automaton_hold(weir__automaton *a)
{
    atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

void weir__automaton_release(weir__automaton *a)
{
    if (a == NULL || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1) return;
    pthread_mutex_destroy(&a->mutex);
    destroy_automaton(a);
}

size_t weir__automaton_size(weir__automaton *a)
{
    pthread_mutex_lock(&a->mutex);
    size_t n = weir__automaton_bytes(a) + a->n_slices * weir__slices_size(a->trie->slices);
    pthread_mutex_unlock(&a->mutex);
    return n;
}

bool weir__automaton_is_full(weir__automaton *a)
{
    pthread_mutex_lock(&a->mutex);
    const bool full = a->full;
    pthread_mutex_unlock(&a->mutex);
    return full;
}

uint64_t weir__automaton_n_masks(weir__automaton *a)
{
    pthread_mutex_lock(&a->mutex);
    uint64_t n = a->n_masks;
    pthread_mutex_unlock(&a->mutex);
    return n;
}

uint64_t weir__automaton_n_cuts(weir__automaton *a)
{
    pthread_mutex_lock(&a->mutex);
    uint64_t n = a->n_cuts;
    pthread_mutex_unlock(&a->mutex);
    return n;
}

weir__automaton_place weir__automaton_start(const weir__automaton *a)
{
    return (weir__automaton_place){.state = a->start};
}
