/* process.c: metrics of the process (from the kernel) and of the build, under the names that Prometheus'
 * client libraries give them. SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "metrics.h"

static void add_metric(weir__text *text, const char *name, const char *kind, const char *help, double value)
{
    weir__text_printf(text, "# HELP %s %s\n# TYPE %s %s\n%s %.15g\n", name, help, name, kind, name, value);
}

/* Pages of the address space and of memory; false: unknown on this system. */
static bool read_pages(double *all, double *resident)
{
    FILE *file = fopen("/proc/self/statm", "re");
    bool ok = file != NULL && fscanf(file, "%lf %lf", all, resident) == 2;
    if (file != NULL) fclose(file);
    return ok;
}

/* Entries of a folder of the process; -1: this system has none. */
static int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;
    if (folder == NULL) return -1;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

static void add_files(weir__text *text)
{
    struct rlimit limit;
    int n = count_entries("/proc/self/fd");
    if (n > 0)
        add_metric(text, "process_open_fds", "gauge", "open file descriptors",
                   n - 1); /* without the folder's own */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        add_metric(text, "process_max_fds", "gauge", "limit of open file descriptors",
                   (double)limit.rlim_cur);
}

static double to_seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

void serve_process_metrics(const serve_server *server, weir__text *text)
{
    struct rusage usage;
    double page = (double)sysconf(_SC_PAGESIZE), all, resident;
    int n_threads = count_entries("/proc/self/task");
    weir__text_add_string(
        text,
        "# HELP weir_build_info always 1; the versions are in the labels\n# TYPE weir_build_info gauge\n");
    weir__text_printf(text, "weir_build_info{version=\"%s\",llama_cpp=\"%s\"} 1\n", weir_version(),
                      weir_backend_version());
    add_metric(text, "process_start_time_seconds", "gauge", "start of the server, in Unix time",
               (double)server->created_s);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        add_metric(text, "process_cpu_seconds_total", "counter", "processor time of all threads",
                   to_seconds(usage.ru_utime) + to_seconds(usage.ru_stime));
    if (read_pages(&all, &resident)) {
        add_metric(text, "process_virtual_memory_bytes", "gauge", "virtual memory", all * page);
        add_metric(text, "process_resident_memory_bytes", "gauge", "resident memory, mapped files included",
                   resident * page);
    }
    if (n_threads > 0) add_metric(text, "process_threads", "gauge", "threads", n_threads);
    add_files(text);
}
