/* Conversations that templates of the pin refuse. SPDX-License-Identifier: Apache-2.0 */
#include "model/chat_parser_testing.h"

#include "base/json.h"
#include "base/mem.h"
#include "model/chat_probe.h"
#include "model/chat_shape.h"
#include "model/chat_source.h"
#include "support/dice.h"

static const char *const names[] = {"tool_calls","call_id","no_call_id","call_twice","system_first","system_only","assistant_first","assistant_twice","system_twice","user_twice","user_after_result","user_after_call","result_without_call","system_late"};

static void explore(void **state)
{
    (void)state;
    for (pin_walk walk = pin_templates(); pin_walk_next(&walk);) {
        char *source = pin_template(walk.name);
        weir__chat_template *t = NULL;
        weir_error error = {0};
        if (weir__chat_source_parse(model, source, false, 0, &t, &error) != WEIR_OK) { printf("%s: %s\n", walk.name, error.message); continue; }
        for (int tools = 0; tools < 2; tools++) {
            unsigned refused = 0;
            struct timespec a, b; clock_gettime(CLOCK_MONOTONIC, &a);
            weir_status st = weir__chat_probe(t, tools, WEIR__CHAT_STACK_GIVEN, &refused, &error);
            clock_gettime(CLOCK_MONOTONIC, &b);
            printf("%-45s %d %7.1f ms:", tools ? "" : walk.name, st, (double)(b.tv_sec-a.tv_sec)*1e3+(double)(b.tv_nsec-a.tv_nsec)/1e6);
            for (int i = 0; i < 14; i++) if (refused >> i & 1) printf(" %s", names[i]);
            printf("\n");
        }
        weir__chat_template_release(t);
        free(source);
    }
}

int main(void)
{
    const struct CMUnitTest all[] = {cmocka_unit_test(explore)};
    return cmocka_run_group_tests(all, load, unload);
}
