/* plan/words.h -- the words of the plan's text form, shared by print.c and parse.c. Internal to plan/. */
#ifndef NNC_PLAN_WORDS_H
#define NNC_PLAN_WORDS_H

#include "plan/plan.h"

static const char *const plan_space_word[] = {
    [SP_arena] = "arena", [SP_persist] = "persist", [SP_init] = "init"};
static const char *const plan_cmd_word[] = {[CMD_weight] = "weight", [CMD_kernel] = "kernel",
    [CMD_call] = "call", [CMD_copy] = "copy", [CMD_record] = "record", [CMD_wait] = "wait"};
static const char *const plan_call_word[] = {[CALL_conv] = "conv",
    [CALL_conv_transpose] = "conv_transpose", [CALL_matmul] = "matmul", [CALL_maxpool] = "maxpool",
    [CALL_avgpool] = "avgpool", [CALL_pack] = "pack"};
static const char *const plan_post_word[] = {[PO_sum] = "sum", [PO_relu] = "relu",
    [PO_clip] = "clip", [PO_leaky] = "leaky", [PO_gelu_erf] = "gelu_erf",
    [PO_gelu_tanh] = "gelu_tanh", [PO_silu] = "silu", [PO_sigmoid] = "sigmoid", [PO_tanh] = "tanh",
    [PO_hardswish] = "hardswish"};
static const char *const plan_weight_word[] = {
    [NNC_W_inline] = "inline", [NNC_W_file] = "file", [NNC_W_gen] = "gen"};
_Static_assert(NNC_COUNT(plan_cmd_word) == CMD__COUNT, "a word for each command");
_Static_assert(NNC_COUNT(plan_call_word) == CALL__COUNT, "a word for each call");
_Static_assert(NNC_COUNT(plan_post_word) == PO__COUNT, "a word for each post-operation");

/* Number of spatial dimensions whose window numbers are printed. */
static inline int plan_window_dims(const nnc_call *c)
{
    return c->spatial <= 3 ? c->spatial : 3;
}

#endif
