/* automaton_states.h: the inside of an automaton. automaton.c has its life, automaton_states.c the states,
 * token_mask.c the masks, repeat.c the states that are similar.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef WEIR_GRAMMAR_AUTOMATON_STATES_H
#define WEIR_GRAMMAR_AUTOMATON_STATES_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar/automaton_rules.h"
#include "grammar/slice.h"
#include "grammar/trie.h"
#include "weir/weir.h"

/* The most ways to read a text. Ambiguous grammars can double them with each character. Where there are more,
 * only a few remain, always the same ones: some texts of the grammar cannot be generated, but every text that
 * was started can end. Alternatives with a common prefix are one way within it. */
#define WEIR__AUTOMATON_WAYS_MAX 6144

typedef struct weir__automaton weir__automaton;

/* The state without ways. */
enum { DEAD = 0 };
#define UNKNOWN UINT32_MAX
#define NONE    UINT32_MAX

/* A run that was not measured. */
#define RUN_UNKNOWN UINT8_MAX

/* An element that must follow, then those of the frame `below`; 0 = the end. */
typedef struct frame {
    uint32_t element, below;
} frame;

/* How a class reads the characters of a slice: see token_mask.c. */
typedef struct related {
    uint8_t slice; /* its index in the automaton + 1; 0: not known of any */
    uint8_t relation;
    bool controls; /* the class has control characters that the slice has not */
} related;

/* The frame that stands for one whose counts of repetitions are far from their bounds. */
typedef struct similar {
    uint32_t frame;   /* UNKNOWN */
    uint32_t changes; /* the frames of the stack that others stand for */
    uint32_t counted; /* the topmost frame of the stack that may stand for others; NONE */
} similar;

/* Invariant: its ways, pool[first … first + n), ascend. */
typedef struct state {
    uint32_t first, n;
    bool ends;        /* the text may end here */
    bool tokens;      /* a token by its id may follow */
    uint8_t run;      /* the characters of a class that may follow, see token_mask.c; RUN_UNKNOWN */
    uint8_t slice;    /* the index of their slice in the automaton, where run > 0 */
    bool asked;       /* its mask was computed before */
    bool ascii_known; /* `ascii` is known */
    bool ascii;       /* only characters of ASCII may follow */
    bool loops;       /* the run leads back to the state itself */
    bool text;        /* no control character may follow within the run, but for those of the class */
    uint32_t frames;  /* the most of any step that led here; UINT32_MAX: too many ways */
    uint32_t similar; /* the state near to the bounds that differs in counts only: see repeat.h; UNKNOWN */
    uint32_t mask;    /* index into masks, NONE = not cached */
    uint32_t *row;    /* [n_columns] the state that each column leads to; NULL = not allocated */
} state;

/* The tokens that may follow a state but are not within its run: see token_mask.c. */
typedef struct mask {
    uint32_t state;   /* NONE = unused */
    uint32_t reach;   /* the characters of the longest text that decided about a token */
    uint32_t frames;  /* the most of any step that decided */
    uint32_t n_nodes; /* the nodes that were visited */
    uint32_t above;   /* the frame of weir__repeat_under, if all stacks kept it in the walk; NONE */
    uint64_t *bits;   /* [n_words]; NULL = not allocated */
} mask;

/* A node above the one that a walk of the tree has come to. */
typedef struct step {
    uint32_t state;
    uint32_t end;                   /* of the node's branch */
    const weir__token_slice *slice; /* of a run that the node is in; NULL: none */
    const uint64_t *stops;          /* the slice's nodes that are to be visited; NULL: all */
    bool sets;                      /* the tokens between the stops are still to be allowed */
} step;

/* A set of ids, found by hash. Open addressing; slots hold id + 1. A table that grows keeps its old slots
 * and moves a few of them with each new id, so that no mask waits for all. */
typedef struct table {
    uint32_t *slots; /* [capacity], a power of two */
    size_t capacity, n;
    uint32_t *old; /* [old_capacity]; NULL: all have been moved */
    size_t old_capacity, n_moved;
} table;

struct weir__automaton {
    atomic_int refs;
    const weir__trie *trie;
    weir__automaton_rules rules;
    const weir__automaton_element *elements; /* rules.elements, [n_elements] */
    size_t n_elements;
    const uint32_t *starts; /* rules.starts */
    uint8_t *empty;         /* [rules.n_rules] 1: the rule can match nothing */
    uint32_t *lows;         /* [n_columns] the first code point of each column, ascending; lows[0] == 0 */
    size_t n_columns;
    uint32_t start;

    uint32_t ascii[128]; /* the columns of the first code points */

    pthread_mutex_t mutex; /* protects all that follows */
    frame *frames;         /* [n_frames]; frame 0 is the end */
    uint32_t *seen;        /* [n_frames]: the last step that visited it */
    uint32_t *after;       /* [n_frames]: the state after its terminal alone; UNKNOWN */
    similar *similar;      /* [n_frames] */
    size_t n_frames, frames_capacity, seen_capacity, after_capacity, similar_capacity;
    table frame_table;
    state *states; /* [n_states] */
    size_t n_states, states_capacity;
    table state_table;
    uint32_t *pool; /* [n_pool] */
    size_t n_pool, pool_capacity;
    size_t n_rows;
    mask *masks; /* [size_masks] */
    size_t size_masks;
    size_t next_mask; /* the oldest */
    size_t n_bits;    /* the masks that have bits */
    size_t n_counted; /* the bytes that the slices' count of all automata has of this one */
    bool full;        /* it would need more than WEIR__AUTOMATON_BYTES_MAX */
    uint32_t step;
    uint32_t *todo; /* [n_todo] frames to visit; scratch */
    size_t n_todo, todo_capacity;
    uint32_t *found; /* [n_found] ways of the new state; scratch */
    size_t n_found, found_capacity;
    uint32_t *order; /* sorted frames; scratch */
    size_t order_capacity;
    uint64_t n_cuts;
    uint32_t last_column; /* of a code point beyond ASCII */
    uint32_t *nearer; /* [n_elements] the element that stands for it: see repeat.c; NULL: each for itself */
    bool *counted;    /* [n_elements] it stands for others */
    uint32_t step_frames;                        /* of the last step; UINT32_MAX: it had too many ways */
    uint64_t n_masks;                            /* computed so far */
    related *related;                            /* [n_elements] */
    weir__token_slice *slices[WEIR__SLICES_MAX]; /* [n_slices] held: those of its runs */
    size_t n_slices;
    step *path; /* [most_depth + 1] scratch */
    uint32_t *codes;
    size_t codes_capacity;
};

static inline bool weir__automaton_is_token(const weir__automaton_element *e)
{
    return e->type == TOKEN || e->type == NOT_TOKEN;
}

/* True if the class at an element has the code point. */
bool weir__automaton_matches(const weir__automaton_element *e, uint32_t code);

/* Finds the columns: one begins at each range of a class, and after its end. False: out of memory. */
bool weir__automaton_make_columns(weir__automaton *a);

/* Makes the state before the first character. False: out of memory. */
bool weir__automaton_begin(weir__automaton *a, uint32_t root);

/* Makes the slices of the classes that the rules show to be repeated, so that the first mask need not wait
 * for them. False: out of memory. */
bool weir__automaton_hold_slices(weir__automaton *a);

/* All that follows needs the mutex. */

/* The bytes of the rules, states and masks. */
size_t weir__automaton_bytes(const weir__automaton *a);

/* Counts the bytes, and unlocks the mutex. The status; GRAMMAR instead of NO_MEMORY if the automaton is
 * full. */
weir_status weir__automaton_leave(weir__automaton *a, weir_status status);

uint32_t weir__automaton_column(weir__automaton *a, uint32_t code);

/* The transition of a state by a column. False: out of memory. */
bool weir__automaton_next(weir__automaton *a, uint32_t from, uint32_t column, uint32_t *to);

/* The state of the ways [n] in found. */
bool weir__automaton_find(weir__automaton *a, uint32_t *id);

/* Adds a way to found. */
bool weir__automaton_add_way(weir__automaton *a, uint32_t id);

/* The frame of an element over `below`; at the end of a rule, `below` itself. */
bool weir__automaton_frame(weir__automaton *a, const weir__automaton_element *e, uint32_t below,
                           uint32_t *id);

/* True if a code point with this beginning may follow. */
bool weir__automaton_may_go(const weir__automaton *a, uint32_t in, weir__partial partial);

/* Moves from a state, and a character begun, on by bytes [n] of a token. REFUSED, NO_MEMORY: both stay. */
weir_status weir__automaton_go(weir__automaton *a, uint32_t *in, weir__partial *begun, int32_t token,
                               const char *bytes, size_t n);

#endif
