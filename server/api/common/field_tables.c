/* field_tables.c: the fields of all requests, searched by name. SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ask.h"
#include "field.h"

static const serve_field_table *const tables[] = {&serve_ask_table, &serve_embeddings_table,
                                                  &serve_ollama_embed_table, &serve_rerank_table,
                                                  &serve_tokenize_table};

#define N_TABLES (sizeof tables / sizeof *tables)

bool serve_fields_know(const char *name)
{
    for (size_t i = 0; i < N_TABLES; i++)
        for (size_t k = 0; k < tables[i]->n; k++) {
            const char *field = tables[i]->fields[k].name, *dot = strrchr(field, '.');
            if (strcmp(field, name) == 0 || (dot != NULL && strcmp(dot + 1, name) == 0)) return true;
        }
    return weir_member_find("sampler", name) != NULL;
}

const serve_field *serve_fields_binding(const char *name)
{
    const serve_field_table *table = &serve_ask_table;
    for (size_t i = 0; i < table->n; i++)
        if ((table->fields[i].where & SERVE_FIELD_BINDS) != 0 && strcmp(table->fields[i].name, name) == 0)
            return &table->fields[i];
    return NULL;
}

const serve_field *serve_fields_inner(const char *name)
{
    const serve_field_table *table = &serve_ask_table;
    if (strchr(name, '.') == NULL) return NULL;
    for (size_t i = 0; i < table->n; i++) {
        const serve_field *f = &table->fields[i];
        bool judged = f->kind == SERVE_FIELD_NEVER || (f->kind == SERVE_FIELD_HINT && f->read == NULL);
        if (judged && strcmp(f->name, name) == 0) return f;
    }
    return NULL;
}
