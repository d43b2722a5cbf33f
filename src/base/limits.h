/* base/limits.h -- memory and CPUs that this process may use. Limits come from control groups, which containers, Slurm and systemd set, and
 * from the process (ulimit). */
#ifndef NNC_LIMITS_H
#define NNC_LIMITS_H

#include <stddef.h>
#include <stdint.h>

/* The least limits of the process's control groups, version 1 and 2, and of all groups above them that are mounted. `root`: a folder in
 * front of all paths ("": the system's). */
typedef struct nnc_groups {
    int64_t memory; /* bytes: memory.max, memory.high, memory.limit_in_bytes; INT64_MAX: no limit */
    int cpus; /* of CPU time, rounded up: cpu.max, cpu.cfs_quota_us; 0: no limit */
} nnc_groups;
nnc_groups nnc_groups_read(const char *root);

typedef struct nnc_memory {
    int64_t bytes;
    const char *by; /* "its control group", "ulimit -v" or "-d"; NULL: the machine has no more */
} nnc_memory;
/* Memory that this process may have in all. */
nnc_memory nnc_memory_limit(void);
/* How much of it is not in use, by this process and, as the system says, by others. */
nnc_memory nnc_memory_free(void);
/* Memory that the process's own limits leave; INT64_MAX: no limits. Allocates nothing: signal handlers may call it. */
nnc_memory nnc_memory_of_ulimit(void);

#endif
