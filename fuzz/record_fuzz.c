/* record_fuzz.c: any text as a record of ticks: read and written again, or refused with a reason.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/lib/record.h"
#include "fuzz.h"
#include "params/members.h"

/* As the engine has it. */
void weir_engine_params_init(weir_engine_params *params, size_t size)
{
    weir__members_init(&weir__engine_members, params, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cli_record record, again;
    weir_error error = {0};
    size_t length, length_again;
    weir_status status = cli_record_read(&record, (const char *)data, size, &error);
    require(status == WEIR_OK || error.message[0] != '\0');
    if (status == WEIR_OK) {
        uint64_t part = 0;
        for (size_t i = 0; i < record.n_ticks; i++) {
            require(record.ticks[i].first_slot == part);
            part += (uint64_t)record.ticks[i].n_slots;
        }
        require(part <= record.n_parts);
        char *text = cli_record_write(&record, &length);
        require(text != NULL && cli_record_read(&again, text, length, &error) == WEIR_OK);
        char *text_again = cli_record_write(&again, &length_again);
        require(text_again != NULL && length == length_again && memcmp(text, text_again, length) == 0);
        weir__mem_free(text_again);
        weir__mem_free(text);
        cli_record_fini(&again);
    }
    cli_record_fini(&record);
    require(weir__mem_live() == 0);
    return 0;
}
