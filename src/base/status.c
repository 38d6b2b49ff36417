/* status.c: names and texts of statuses.
 * SPDX-License-Identifier: Apache-2.0 */
#include <weir/weir.h>

const char *weir_status_name(weir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                 \
    case WEIR_##name: return "WEIR_" #name;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

const char *weir_status_text(weir_status status)
{
    switch (status) {
#define X(name, value, text)                                                                                 \
    case WEIR_##name: return text;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}
