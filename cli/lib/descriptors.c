/* descriptors.c: raises the soft limit of the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "descriptors.h"

#include <sys/resource.h>

size_t cli_descriptors_raise(size_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &limit);
        if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    }
    return (size_t)limit.rlim_cur;
}
