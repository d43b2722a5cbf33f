/* cluster/buffers.c -- device memory that NCCL takes for its buffers, by estimate: sizes, channels and connections as in NCCL 2.28
 * (src/init.cc: computeBuffSizes; src/transport/p2p.cc and nvls.cc; src/graph). NCCL connects an algorithm when it first uses it, so that
 * these are the most. Its variables (NCCL_BUFFSIZE, NCCL_MAX_NCHANNELS, ...) are not looked at. */
#include "cluster/internal.h"

#define MIB (INT64_C(1) << 20)
enum {
    /* a channel's connection, in blocks of 2 MiB: flags of the sender; at the receiver 0.5 MiB of protocol LL, 4.7 of LL128, 4 of Simple */
    SENDER_MIB = 2,
    RECEIVER_MIB = 10,
    SWITCH_CHANNELS = 24, /* of an A100 or H100 behind NVSwitch */
    OLD_SWITCH_CHANNELS = 12, /* of a V100 */
    SWITCH_PEER_CHANNELS = 32,
    PAIRS = 2, /* NCCL doubles the rings that it finds */
    HEAD_MIB = 32, /* in-switch reductions: 16 channels of 1 MiB for each GPU and direction */
};

/* GPUs of servers with NVLink, whose SXM forms most have; others have PCIe. */
static bool is_linked(const nnc_target *t)
{
    return t->sm >= 60 && t->sm < 120 && t->sm % 10 == 0;
}

static int nodes_of(const nnc_cluster *c, const int32_t *device, int n)
{
    int nodes = 1;
    for (int i = 1; c && i < n; i++)
        nodes += nnc_cluster_node(c, device[i]) != nnc_cluster_node(c, device[i - 1]);
    return nodes;
}

/* Channels of a group's rings. */
static int channels(const nnc_cluster *c, const nnc_target *t, const int32_t *device, int n)
{
    const int fast = t->sm < 80 ? OLD_SWITCH_CHANNELS : SWITCH_CHANNELS;
    bool relayed;
    if (!c)
        return is_linked(t) ? fast : PAIRS;
    if (nodes_of(c, device, n) > 1)
        return PAIRS * (int)nnc_max64(c->fabric->n_nic, 1);
    if (c->fabric->has_nvswitch)
        return fast;
    return PAIRS * (int)nnc_max64(nnc_cluster_rings(c, device, n, &relayed), 1);
}

int64_t nnc_group_buffers(
    const nnc_cluster *c, const nnc_target *t, const int32_t *device, int n, bool allreduce)
{
    const int64_t each = (SENDER_MIB + RECEIVER_MIB) * MIB * channels(c, t, device, n);
    if (!allreduce || n < 3) /* a tree of two has the connections of the ring */
        return each;
    const int heads = n / nodes_of(c, device, n);
    const bool in_switch = heads > 2 && (c ? c->fabric->has_nvswitch && c->fabric->reduce_bytes_s
                                           : t->sm >= 90 && is_linked(t));
    return 2 * each + (in_switch ? HEAD_MIB * MIB * heads : 0);
}

int64_t nnc_peer_buffers(
    const nnc_cluster *c, const nnc_target *t, int32_t from, int32_t to, bool receives)
{
    const int32_t pair[] = {from, to};
    const bool fast = c ? c->fabric->has_nvswitch && nodes_of(c, pair, 2) == 1 : is_linked(t);
    return (receives ? RECEIVER_MIB : SENDER_MIB) * MIB * (fast ? SWITCH_PEER_CHANNELS : PAIRS);
}
