/* ticks.c: reads an engine's last ticks, and writes them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ticks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define PIECE 1024 /* items that are read at once */

void cli_ticks_begin(cli_record *record, const weir_engine *engine, const weir_engine_params *params)
{
    weir_engine_stats stats = {.size = sizeof stats};
    const weir_strategy *strategy =
        params->strategy != NULL ? params->strategy : weir_strategy_decode_maximal();
    weir_engine_get_stats(engine, &stats);
    *record = (cli_record){.engine = *params};
    record->engine.n_slots = stats.n_slots;
    record->engine.n_ctx = stats.n_ctx;
    record->engine.n_kv = stats.n_kv;
    record->engine.n_batch = stats.n_batch;
    record->engine.n_ubatch = stats.n_ubatch;
    record->engine.layout = stats.layout;
    snprintf(record->strategy, sizeof record->strategy, "%s", strategy->name != NULL ? strategy->name : "");
}

/* Parts that were overwritten before they could be read: their ticks are of no use. */
static void drop_ticks(cli_record *record, uint64_t first_part)
{
    size_t n = 0;
    while (n < record->n_ticks && record->ticks[n].first_slot < first_part) n++;
    record->n_ticks -= n;
    memmove(record->ticks, record->ticks + n, record->n_ticks * sizeof *record->ticks);
    for (size_t i = 0; i < record->n_ticks; i++) record->ticks[i].first_slot -= first_part;
}

void cli_ticks_take(cli_record *record, const weir_engine *engine)
{
    size_t n, before = record->n_ticks;
    uint64_t from = before > 0 ? record->ticks[before - 1].serial + 1 : 0;
    /* Ticks first: their parts, and those of later ones, are there when the parts are read. */
    do {
        cli_grow(&record->ticks, &record->ticks_capacity, record->n_ticks + PIECE, sizeof *record->ticks);
        weir_engine_ticks(engine, from, record->ticks + record->n_ticks, PIECE, &n);
        if (n > 0) from = record->ticks[record->n_ticks + n - 1].serial + 1;
        record->n_ticks += n;
    } while (n == PIECE);
    from = record->n_parts > 0 ? record->parts[record->n_parts - 1].serial + 1 : 0;
    do {
        cli_grow(&record->parts, &record->parts_capacity, record->n_parts + PIECE, sizeof *record->parts);
        weir_engine_tick_slots(engine, from, record->parts + record->n_parts, PIECE, &n);
        record->n_parts += n;
        if (n > 0) from = record->parts[record->n_parts - 1].serial + 1;
    } while (n == PIECE);
    from = record->n_arrivals > 0 ? record->arrivals[record->n_arrivals - 1].request + 1 : 0;
    do {
        cli_grow(&record->arrivals, &record->arrivals_capacity, record->n_arrivals + PIECE,
                 sizeof *record->arrivals);
        weir_engine_arrivals(engine, from, record->arrivals + record->n_arrivals, PIECE, &n);
        record->n_arrivals += n;
        if (n > 0) from = record->arrivals[record->n_arrivals - 1].request + 1;
    } while (n == PIECE);
    /* The engine's numbers become places in the record. */
    if (before == 0 && record->n_parts > 0) {
        drop_ticks(record, record->parts[0].serial);
        return;
    }
    uint64_t first = record->n_parts > 0 ? record->parts[0].serial : 0;
    for (size_t i = before; i < record->n_ticks; i++) record->ticks[i].first_slot -= first;
}

static cli_exit write_file(const char *path, const char *text, size_t length)
{
    struct stat is;
    bool direct = stat(path, &is) == 0 && !S_ISREG(is.st_mode); /* a device or a pipe stays one */
    char *name = direct ? cli_format("%s", path) : cli_format("%s.%ld.part", path, (long)getpid());
    FILE *file = fopen(name, "we");
    int failed = file == NULL ? errno : 0;
    if (file != NULL) {
        if (fwrite(text, 1, length, file) != length || fflush(file) != 0 ||
            (!direct && fsync(fileno(file)) != 0))
            failed = errno;
        if (fclose(file) != 0 && failed == 0) failed = errno;
        if (failed == 0 && !direct && rename(name, path) != 0) failed = errno;
        if (failed != 0 && !direct) unlink(name);
    }
    cli_free(name);
    return failed == 0 ? CLI_OK : cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(failed));
}

cli_exit cli_ticks_save(const cli_args *args, weir_engine *engine, cli_exit code)
{
    cli_record record;
    size_t length = 0;
    if (args->ring_path == NULL || engine == NULL) return code;
    weir_engine_stop(engine); /* a reader may have its last chunk before the tick is over that made it */
    cli_ticks_begin(&record, engine, &args->engine);
    cli_ticks_take(&record, engine);
    char *text = cli_record_write(&record, &length);
    if (text == NULL) cli_no_memory();
    cli_exit saved = write_file(args->ring_path, text, length);
    weir__mem_free(text);
    cli_record_fini(&record);
    return code == CLI_OK ? saved : code;
}
