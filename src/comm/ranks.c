/* comm/ranks.c -- finds this process among the ranks of its job, from the variables that launchers set. */
#include "comm/comm.h"
#include <stdlib.h>
#include <string.h>

/* A launcher's variables; NULL: it has none for this. The first row whose rank and world are both set counts. */
static const struct launcher {
    const char *by, *rank, *world, *local_rank, *local_size;
    bool mpi;
} launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE", true},
    /* MPICH's mpiexec starts one process on each host with Slurm's srun, and the ranks inherit that process's Slurm variables: PMI's
     * are the rank's own. */
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true},
    /* Slurm sets variables of a step in processes that srun starts, those of the job (SLURM_NTASKS) also in a batch script. With an
     * MPI plug-in it sets PMI_ or PMIX_ variables as well; PMIX_ ones lack the number of ranks. */
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, true},
    {"PMIx", "PMIX_RANK", "PMIX_SIZE", NULL, NULL, true},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false},
};

enum { MOST_RANKS = 1 << 20, TORCHRUN = NNC_COUNT(launchers) - 1 };

/* The number in variable `name`; false: not set. */
static bool get(const char *name, int *out, bool *bad)
{
    const char *text = name ? getenv(name) : NULL;
    char *end = NULL;
    if (!text || !*text)
        return false;
    const long v = strtol(text, &end, 10);
    *bad = *bad || *end || v < 0 || v > MOST_RANKS;
    *out = (int)v;
    return true;
}

static nnc_status fail_ranks(const nnc_ranks *r, nnc_sink *sink)
{
    return nnc_fail0(sink, NNC_E_USAGE,
        "rank %d of %d (%s): expected ranks 0 to N-1 of N processes, N at most %d", r->rank,
        r->world, r->by, MOST_RANKS);
}

/* Ranks of this host in a step of Slurm: its entry of a list as "4(x2),3", three hosts with 4, 4 and 3. 1: unknown. */
static int slurm_local_size(void)
{
    const char *at = getenv("SLURM_STEP_TASKS_PER_NODE"), *node = getenv("SLURM_NODEID");
    long host = node ? strtol(node, NULL, 10) : 0;
    for (char *end; at && *at; at = *end == ',' ? end + 1 : NULL) {
        const long ranks = strtol(at, &end, 10);
        const long hosts = strncmp(end, "(x", 2) ? 1 : strtol(end + 2, &end, 10);
        end += *end == ')';
        if (host < hosts)
            return ranks > 0 && ranks <= MOST_RANKS ? (int)ranks : 1;
        host -= hosts;
    }
    return 1;
}

static nnc_status read_launcher(
    const struct launcher *l, nnc_ranks *out, bool *found, nnc_sink *sink)
{
    nnc_ranks r = {.by = l->by, .mpi = l->mpi, .local_size = 1};
    bool bad = false;
    *found = get(l->rank, &r.rank, &bad) && get(l->world, &r.world, &bad);
    if (!*found)
        return NNC_OK;
    get(l->local_rank, &r.local_rank, &bad);
    get(l->local_size, &r.local_size, &bad);
    if (bad || r.world < 1 || r.rank >= r.world)
        return fail_ranks(&r, sink);
    if (!strcmp(l->rank, "SLURM_PROCID")) {
        r.local_size = slurm_local_size();
        /* srun --mpi=none: where rank 0 is said to be, the ranks need no MPI */
        r.mpi = getenv("PMIX_RANK") || !getenv("MASTER_ADDR");
    }
    *out = r;
    return NNC_OK;
}

/* --rank and --world, which a launcher's variables may not contradict; but one process alone is what a user may want of any. */
static nnc_status take_given(int rank, int world, nnc_ranks *r, nnc_sink *sink)
{
    if (rank < 0 && world < 0)
        return NNC_OK;
    rank = rank < 0 && world == 1 ? 0 : rank;
    const nnc_ranks given = {.rank = rank, .world = world, .by = "--rank, --world"};
    if (rank < 0 || world < 0)
        return nnc_fail0(sink, NNC_E_USAGE, "%s is given without %s: a rank is one of a number",
            rank < 0 ? "--world" : "--rank", rank < 0 ? "--rank" : "--world");
    if (world < 1 || rank >= world)
        return fail_ranks(&given, sink);
    if (world != 1 && r->world > 1 && (r->rank != rank || r->world != world))
        return nnc_fail0(sink, NNC_E_USAGE,
            "--rank=%d --world=%d, but %s says rank %d of %d: leave --rank and --world out, or "
            "give --world=1 to run this process alone",
            rank, world, r->by, r->rank, r->world);
    if (world == 1 || r->world <= 1)
        *r = (nnc_ranks){rank, world, rank, world, "--rank, --world", false};
    return NNC_OK;
}

nnc_status nnc_ranks_find(int rank, int world, nnc_ranks *out, nnc_sink *sink)
{
    bool found = false;
    nnc_ranks r = {.world = 1, .local_size = 1, .by = "no launcher"};
    /* mpirun or srun may start torchrun on each host, whose ranks inherit that process's variables */
    for (size_t i = getenv("TORCHELASTIC_RUN_ID") ? TORCHRUN : 0;
         i < NNC_COUNT(launchers) && !found; i++)
        NNC_TRY(read_launcher(&launchers[i], &r, &found, sink));
    NNC_TRY(take_given(rank, world, &r, sink));
    *out = r;
    return NNC_OK;
}
