/* tests/plan/parts.c -- tensors that consist of parts: lies about them are named by the verifier. */
#include "help.h"

/* %y consists of the columns of %a and %b; %x's memory is not needed any more when they are written */
static const char parts[] = "graph @t {\n"
                            "%i = input : f32[8,4]\n"
                            "%x = sin %i loc \"/x\"\n"
                            "%a = exp %x : f32[8,4/8] loc \"/a\"\n"
                            "%b = cos %x : f32[8,4/8] loc \"/b\"\n"
                            "%y = concat %a, %b {axis=1, in_place=1} loc \"/y\"\n"
                            "%r = tanh %y loc \"/r\"\n"
                            "%s = sqrt %r loc \"/s\"\n"
                            "return %s as \"s\" }";

static nnc_ptensor *result(const nnc_plan *p, const char *layers)
{
    const nnc_cmd *c = help_cmd(p, layers);
    return &p->tensor[c ? c->arg[c->n_arg - 1] : 0];
}

TEST(hostile_parts)
{
#define LIE_OF_PARTS(streams, why, ...) HELP_LIE(parts, streams, why, __VA_ARGS__)
    LIE_OF_PARTS(1, "at a whole element", result(p, "/b")->offset += 2);
    LIE_OF_PARTS(1, "inside the tensor whose memory it shares", result(p, "/b")->offset += 4);
    LIE_OF_PARTS(1, "inside the tensor whose memory it shares", result(p, "/a")->alias_of = 1);
    LIE_OF_PARTS(1, "overlaps another part", result(p, "/b")->offset -= 4);
    LIE_OF_PARTS(1, "overlaps another part", result(p, "/b")->offset -= 16);
    LIE_OF_PARTS(1, "its parts leave elements out", p->cmd[help_at(p, "/b")].kind = CMD_record;
                 p->cmd[help_at(p, "/b")].n_arg = 0; p->cmd[help_at(p, "/b")].item = 0;
                 p->n_event = 1);
    LIE_OF_PARTS(1, "tensor 2 (y) is read before it is written", int i = help_at(p, "/b");
                 nnc_cmd b = p->cmd[i]; p->cmd[i] = p->cmd[i + 1]; p->cmd[i + 1] = b);
    LIE_OF_PARTS(1, "its bytes are not those of its type", result(p, "/a")->type.gap[1] = 3);
    LIE_OF_PARTS(1, "its type is malformed", result(p, "/a")->type.gap[1] = -1);
    LIE_OF_PARTS(1, "its type is malformed", result(p, "/a")->type.gap[1] = INT64_MAX);
    LIE_OF_PARTS(1, "inputs and outputs are contiguous", result(p, "/a")->is_output = true);
    LIE_OF_PARTS(2, "does not wait for its write", help_drop_waits(p));
    LIE_OF_PARTS(1, "is an input, but its memory is reused",
        p->tensor[p->input[0]].offset = p->tensor[result(p, "/b")->alias_of].offset + 64);
    /* /x's memory, which /b reads, is given to /a's part of %y */
    LIE_OF_PARTS(1, "is written over an operand of the same command",
        result(p, "/x")->offset = p->tensor[result(p, "/b")->alias_of].offset);
}

/* %y's memory is given to %z between its two parts. */
TEST(parts_whose_memory_is_taken)
{
    static const char text[] = "graph @t {\n"
                               "%i = input : f32[8,4]\n"
                               "%a = exp %i : f32[8,4/8] loc \"/a\"\n"
                               "%z = sin %i loc \"/z\"\n"
                               "%b = cos %i : f32[8,4/8] loc \"/b\"\n"
                               "%y = concat %a, %b {axis=1, in_place=1} loc \"/y\"\n"
                               "return %y as \"y\", %z as \"z\" }";
    nnc_plan *p = help_plan_text(text, 1, 1);
    if (p) {
        CHECK(help_at(p, "/a") < help_at(p, "/z") && help_at(p, "/z") < help_at(p, "/b"));
        result(p, "/z")->offset = p->tensor[result(p, "/b")->alias_of].offset;
        help_rejected(p, "is written after its memory was reused");
    }
    nnc_plan_destroy(p);
}

/* %p is written by the stream of %a, %q by another, which does not wait for the last reader of %a: %y may not lie where %a does. */
static const char streams[] =
    "graph @t {\n"
    "%i = input : f32[64,64]\n"
    "%j = input : f32[64,64]\n"
    "%k = input : f32[64,32]\n"
    "%a = exp %i loc \"/a\"\n"
    "%b = reduce_max %a {axes=[1], keepdims=1} loc \"/b\"\n"
    "%p = add %b, %k : f32[64,32/64] loc \"/p\"\n"
    "%c = sin %j loc \"/c\"\n"
    "%q = slice %c {axes=[1], starts=[0], ends=[32]} : f32[64,32/64] loc \"/q\"\n"
    "%y = concat %p, %q {axis=1, in_place=1} loc \"/y\"\n"
    "%r = tanh %y loc \"/r\"\n"
    "return %r as \"r\" }";

TEST(parts_on_streams)
{
    nnc_plan *p = help_plan_text(streams, 2, 1);
    CHECK(p != NULL);
    if (p) {
        help_check(p);
        CHECK(help_at(p, "/p") < help_at(p, "/q"));
        int64_t to = result(p, "/a")->offset, from = result(p, "/p")->offset;
        CHECK(to != from);
        result(p, "/p")->offset += to - from;
        result(p, "/q")->offset += to - from;
        p->tensor[result(p, "/p")->alias_of].offset = to;
        help_rejected(p, "(q) is written over memory that another stream may still use");
    }
    nnc_plan_destroy(p);
}

/* A concat in place is read on another device: it is copied there whole, once its last part is written, and its readers wait. */
TEST(parts_read_on_another_device)
{
    static const char text[] = "graph @t {\n"
                               "%i = input : f32[8,4]\n"
                               "%a = exp %i : f32[8,4/8] loc \"/a\"\n"
                               "%b = cos %i : f32[8,4/8] loc \"/b\"\n"
                               "%y = concat %a, %b {axis=1, in_place=1} loc \"/y\"\n"
                               "%r = tanh %y device 1 loc \"/r\"\n"
                               "%s = sqrt %y loc \"/s\"\n"
                               "return %r as \"r\", %s as \"s\" }";
    for (int n = 1; n < 3; n++) {
        nnc_plan *p = help_plan_text(text, n, 2);
        int copies = 0;
        for (int i = 0; p && i < p->n_cmd; i++)
            copies += p->cmd[i].kind == CMD_copy;
        CHECK_INT(copies, 1);
        if (p)
            help_check(p);
        nnc_plan_destroy(p);
    }
}
