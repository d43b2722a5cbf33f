/* tests/plan/hostile.c -- plans that lie: chosen lies are named by the verifier, random damage
 * to the text never crashes. */
#include "help.h"

static const char net[] = "graph @t {\n"
                          "%x = input : f32[1,8,16,16]\n"
                          "%w = param : f32[8,8,3,3] = gen(\"w\", seed=1, scale=0.1)\n"
                          "%b = param : f32[8] = name \"b\" [1,2,3,4,5,6,7,8]\n"
                          "%p = conv %x, %w, %b {pads=[1,1,1,1]} loc \"/p\"\n"
                          "%q = conv %x, %w, %b {pads=[1,1,1,1]} loc \"/q\"\n"
                          "%r = relu %p loc \"/r\"\n"
                          "%s = softmax %q {axis=1} loc \"/s\"\n"
                          "%m = maxpool %r {kernel=[2,2], strides=[2,2]} loc \"/m\"\n"
                          "%a = add %r, %s loc \"/a\"\n"
                          "return %a as \"a\", %m as \"m\" }";

#define LIE(streams, why, ...) HELP_LIE(net, streams, why, __VA_ARGS__)

TEST(hostile_rows)
{
    LIE(1, "does not lie inside its space", p->tensor[0].offset = p->device[0].arena_bytes);
    LIE(1, "tensor 0: at: 9223372036854775744", p->tensor[0].offset = INT64_MAX - 63);
    LIE(1, "tensor 0: arena, persist or init: 3", p->tensor[0].space = 3);
    LIE(1, "cmd 0: a text is missing", p->cmd[0].reason = NULL);
    LIE(1, "does not lie inside its space", p->tensor[0].offset += 4);
    LIE(1, "does not lie inside its space", p->device[0].arena_bytes -= 64);
    LIE(1, "its bytes are not those of its type", p->tensor[0].bytes = 64);
    LIE(1, "its type is malformed", p->tensor[0].type.order[0] = 3);
    LIE(1, "its type is malformed", p->tensor[0].type.dim[0] = INT64_MAX);
    LIE(1, "no such device", p->tensor[0].device = 1);
    LIE(1, "shares the memory of no earlier tensor", p->tensor[0].alias_of = 0);
    LIE(1, "device 0: arena: 9223372036854775807 is out of range (0 to 281474976710656)",
        p->device[0].arena_bytes = INT64_MAX);
    LIE(1, "kernel 0: scratch: ", p->kernel[0].scratch_bytes = INT64_MAX);
    LIE(1, "no such object", p->kernel[0].object = 0);
    LIE(1, "its text does not parse", p->kernel[0].ir = "kernel");
    LIE(1, "its text has another domain", p->kernel[0].domain++);
    LIE(1, "kernel 0: grain: ", p->kernel[0].grain = INT64_MAX);
    LIE(1, "its text has another name", p->kernel[0].symbol = "system");
    LIE(1, "kernel 0: its function's sizes are not read", p->kernel[0].code = "k_x i64 d4");
    LIE(1, "kernel 0: its function's sizes are not read", p->kernel[0].code = "k_x ");
    LIE(1, "kernel 0: its function has no name", p->kernel[0].code = "");
    LIE(1, "weights and kernel extents differ", p->call[0].kernel[0] = 5);
    LIE(1, "the result's extents are not those of the windows", p->call[0].stride[1] = 0);
    LIE(1, "the result's extents are not those of the windows", p->call[0].pad_lo[0] = 9);
    LIE(1, "channels, groups and weights", p->call[0].groups = 3);
    LIE(1, "the bias is not one number a channel", p->call[0].bias.dim[0] = 1 << 20);
    LIE(1, "it has more threads than its device", p->kernel[0].threads = p->device[0].threads + 1);
}

/* A copy of device 0 under another name and target; nothing runs on it. */
static nnc_plan_device *second_device(nnc_plan *p, const char *name, const char *target)
{
    nnc_plan_device *d = ARENA_NEW(&p->arena, nnc_plan_device, 2);
    d[0] = p->device[0];
    d[1] = (nnc_plan_device){.name = name, .target = target, .threads = 1, .streams = 1};
    p->device = d;
    p->n_device = 2;
    return d;
}

/* Moves everything to a GPU: 256-byte places, the same code. */
static void move_to_gpu(nnc_plan *p)
{
    p->device[0].name = "cuda:0";
    p->device[0].target = "cuda:sm_90#0";
    p->device[0].arena_bytes = p->device[0].persist_bytes = p->device[0].init_bytes = 1 << 24;
    for (int i = 0; i < p->n_tensor; i++)
        if (p->tensor[i].alias_of < 0)
            p->tensor[i].offset *= 4;
        else
            p->tensor[i].offset = p->tensor[p->tensor[i].alias_of].offset;
}

TEST(hostile_devices)
{
    static const char elf[24] = "\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\1\0\276"; /* of a GPU */
    nnc_blob object = {elf, sizeof elf};
    LIE(1, "device 0: its name is not a kind and a number", p->device[0].name = "cpu");
    LIE(1, "device 0: its name is not a kind and a number", p->device[0].name = ":0");
    LIE(1, "device 0: its name is not a kind and a number", p->device[0].name = "cpu:");
    LIE(1, "device 0: its name is not a kind and a number", p->device[0].name = "cpu:0x");
    LIE(1, "device 0: threads: 0 is out of range (1 to 1024)", p->device[0].threads = 0);
    LIE(1, "device 0: a text is missing", p->device[0].target = NULL);
    LIE(1, "device 0: its target is of another kind", p->device[0].target = "cuda:sm_90#0");
    LIE(1, "device 1: its target is of another kind", second_device(p, "cuda:0", "cpu#0"));
    LIE(1, "device 1: another device has its name", second_device(p, "cpu:0", "cpu#0"));
    /* each stream would have a thread */
    LIE(1, "device 0: no command uses stream 1 of 1024", p->device[0].streams = 1024);
    LIE(1, "device 0: no command uses stream 1 of 1024", p->device[0].streams = 1024;
        p->cmd[p->n_cmd - 1].stream = 1023);
    LIE(1, "its kernel has a CPU's schedule, its device is a GPU", move_to_gpu(p);
        p->engine[0] = p->engine[1] = "both");
    LIE(1, "its engine works on CPUs, its device is a GPU", move_to_gpu(p); p->engine[0] = "llvm");
    LIE(1, "its engine works on GPUs, its device is none", p->engine[0] = "cudnn");
    LIE(1, "its engine works on GPUs, its device is none", p->engine[1] = "cuda");
    LIE(1, "its machine code is for another kind of device", p->object = &object; p->n_object = 1;
        p->kernel[0].object = 0);
    /* code for one device's target is not run on another's */
    nnc_plan *p = help_plan_text("graph @t {\n%x = input : f32[64]\n"
                                 "%a = relu %x device 0 loc \"/a\"\n"
                                 "%b = relu %x device 1 loc \"/b\"\nreturn %a, %b }",
        1, 2);
    CHECK(p && help_cmd(p, "/a")->item == help_cmd(p, "/b")->item);
    if (p) {
        p->device[1].target = "cpu#1";
        help_rejected(p, "also runs on a device of another target");
    }
    nnc_plan_destroy(p);
}

TEST(hostile_commands)
{
    LIE(1, "no such tensor", p->cmd[help_at(p, "/r")].arg[0] = 1000000);
    LIE(1, "no such kernel", p->cmd[help_at(p, "/r")].item = 99);
    LIE(1, "differs from its kernel's", p->cmd[help_at(p, "/r")].n_arg = 1);
    LIE(1, "differs from its call's", p->cmd[help_at(p, "/p")].n_arg = 3);
    LIE(1, "bytes are not those of the kernel's buffer",
        p->cmd[help_at(p, "/r")].arg[0] = p->cmd[0].arg[0] * 0 + p->cmd[help_at(p, "/m")].arg[1]);
    LIE(1, "bytes are not those of the call's type", p->cmd[help_at(p, "/p")].arg[2] = p->input[0]);
    LIE(1, "its workspace is too small",
        p->call[p->cmd[help_at(p, "/p")].item].work_bytes = 1 << 20);
    LIE(1, "no such device or stream", p->cmd[help_at(p, "/p")].stream = 1);
    LIE(1, "no such engine", p->cmd[help_at(p, "/p")].engine = 2);
    LIE(1, "the sections are not", p->end[SEC_init] = p->n_cmd + 1);
    LIE(1, "the sections are not", p->end[SEC_step]--);
    LIE(1, "weights are loaded in init", p->end[SEC_init] = 0);
    LIE(1, "is in the memory of another section", p->tensor[p->cmd[0].arg[0]].space = SP_init;
        p->device[0].init_bytes = p->device[0].persist_bytes);
    LIE(1, "the weight's size is not its tensor's", p->weight[p->n_weight - 1].size--);
    LIE(1, "1 tensors are inputs", p->n_input = 0);
    LIE(1, "its tensor is not an output", p->output[0] = p->input[0]);
    LIE(2, "is recorded twice",
        for (int i = 0; i < p->n_cmd; i++) p->cmd[i].kind =
            p->cmd[i].kind == CMD_wait ? CMD_record : p->cmd[i].kind);
}

static const char residual[] = "graph @t {\n"
                               "%x = input : f32[1,8,16,16]\n"
                               "%w = param : f32[8,8,1,1] = gen(\"w\", seed=1, scale=0.1)\n"
                               "%h = exp %x loc \"/h\"\n"
                               "%f = fused %x, %w, %h {\n"
                               "  %1 = input : f32[1,8,16,16]\n"
                               "  %2 = input : f32[8,8,1,1]\n"
                               "  %3 = input : f32[1,8,16,16]\n"
                               "  %c = conv %1, %2\n"
                               "  %4 = add %3, %c\n"
                               "  return %4\n"
                               "} loc \"/sum\"\n"
                               "return %f as \"y\" }";

/* What a call sums in place is no argument, and read all the same. */
TEST(hostile_sum_in_place)
{
    fake_in_place = true;
    nnc_plan *p = help_plan_text(residual, 1, 1);
    fake_in_place = false;
    if (p) {
        help_check(p);
        int h = help_at(p, "/h"), f = help_at(p, "/sum");
        nnc_cmd c = p->cmd[h];
        p->cmd[h] = p->cmd[f];
        p->cmd[f] = c;
        help_rejected(p, "is read before it is written");
    }
    nnc_plan_destroy(p);
}

TEST(hostile_memory)
{
    LIE(1, "is read before it is written",
        p->cmd[help_at(p, "/r")].arg[0] = p->cmd[help_at(p, "/a")].arg[2]);
    LIE(1, "is an input, and written", p->cmd[help_at(p, "/p")].arg[3] = p->input[0]);
    LIE(1, "tensor 0 (x) is two inputs", p->input = (int32_t[]){p->input[0], p->input[0]};
        p->input_name = (const char *[]){"x", "y"}; p->n_input = 2;
        p->tensor[p->cmd[help_at(p, "/p")].arg[3]].is_input = true);
    LIE(1, "is written twice", p->cmd[help_at(p, "/q")].arg[3] = p->cmd[help_at(p, "/p")].arg[3]);
    LIE(1, "another live range than", p->tensor[0].last--);
    LIE(2, "does not wait for its write", help_drop_waits(p));
    /* two tensors alive together at one place */
    LIE(1, "memory was reused",
        p->tensor[p->cmd[help_at(p, "/q")].arg[3]].offset =
            p->tensor[p->cmd[help_at(p, "/p")].arg[3]].offset;
        p->device[0].arena_bytes += 1 << 20);
    LIE(1, "written over an operand of the same command",
        p->tensor[p->cmd[help_at(p, "/m")].arg[1]].offset =
            p->tensor[p->cmd[help_at(p, "/m")].arg[0]].offset;
        p->device[0].arena_bytes += 1 << 20);
}

/* Every tensor laid over every other: whatever the verifier says of memory is said of one of these. */
TEST(hostile_overlaps)
{
    static const char *const says[] = {"is written over memory that another stream may still use",
        "is an input, but its memory is reused",
        "is an output, but never written, or its memory is reused",
        "is read after its memory was reused", "is written over an operand"};
    static const char apart[] =
        "graph @t {\n%x = input : f32[64]\n%y = exp %x\n%z = sin %x\nreturn %y, %z }";
    int said[NNC_COUNT(says)] = {0}, n = 2, accepted = 0;
    for (int t = 0; t < n; t++)
        for (int k = 0; k < 4 * n; k++) {
            nnc_plan *p = help_plan_text(k / 2 % 2 ? apart : net, 1 + k % 2, 1);
            if (!p)
                break;
            n = p->n_tensor > n ? p->n_tensor : n;
            p->tensor[k / 4 % p->n_tensor].offset = p->tensor[t % p->n_tensor].offset;
            p->device[0].arena_bytes += 1 << 20;
            nnc_sink_clear(test_sink);
            accepted += nnc_plan_verify(p, test_sink) == NNC_OK;
            for (size_t i = 0; i < NNC_COUNT(says); i++)
                said[i] += test_has_diag(says[i]);
            nnc_plan_destroy(p);
        }
    CHECK(accepted > 0);
    for (size_t i = 0; i < NNC_COUNT(says); i++)
        if (!said[i])
            test_fail(__FILE__, __LINE__, "never said: %s", says[i]);
}

static const char stateful[] = "graph @t {\n"
                               "%x = input : f32[64]\n"
                               "%w = param : f32[64] = gen(\"w\", seed=1, scale=1)\n"
                               "%u = param : f32[64] = gen(\"u\", seed=1, scale=1)\n"
                               "%y = mul %x, %w loc \"/y\"\n"
                               "%z = mul %y, %u loc \"/z\"\n"
                               "%w2 = sub %w, %z loc \"/w2\"\n"
                               "return %y as \"y\"\n"
                               "update %w <- %w2\n"
                               "update %u <- %x }";

TEST(hostile_updates)
{
#define LIE_OF_STATE(why, ...) HELP_LIE(stateful, 1, why, __VA_ARGS__)
    LIE_OF_STATE("written by a run that does not update it", p->n_update = 1);
    LIE_OF_STATE("written by a run that does not update it",
        p->end[SEC_main] = p->end[SEC_accumulate] = p->end[SEC_step]);
    LIE_OF_STATE("update 0: no such tensor", p->update[0].state = p->n_tensor);
    LIE_OF_STATE("its one new value takes over", p->update[1] = p->update[0]);
    LIE_OF_STATE("its one new value takes over", p->update[0].value = p->input[0]);
    /* the other state is read by /z: its new value may not come before */
    LIE_OF_STATE("is read after its memory was reused", nnc_cmd last = p->cmd[p->n_cmd - 1];
                 int z = help_at(p, "/z");
                 memmove(p->cmd + z + 1, p->cmd + z, (size_t)(p->n_cmd - 1 - z) * sizeof last);
                 p->cmd[z] = last);
}

TEST(hostile_text)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "expected plan"},
        {"plan f32 events=0 objects=0 init=0 main=0 accumulate=0 step=0", "expected end"},
        {"plan f32 events=99999999999 end", "out of range"},
        {"plan f32 events=0 objects=9999999 end", "out of range"},
        {"plan f32 events=0 objects=0 init=0 main=0 accumulate=0 step=0\nengine 1 \"x\" end",
            "1 is out of range: 0 to 0"},
        {"plan f32 events=0 objects=0 init=0 main=0 accumulate=0 step=0\nweight 0 inline \"w\" "
         "size=3 \"0102\" "
         "end",
            "two hex digits"},
        {"plan f32 events=0 objects=0 init=0 main=0 accumulate=0 step=0\nweight 0 inline \"w\" "
         "size=2000000000000 "
         "\"0102\" end",
            "two hex digits"},
        {"plan f32 events=0 objects=0 init=0 main=0 accumulate=0 step=0\ncmd 0 jump",
            "the name of a command"},
    };
    for (size_t i = 0; i < NNC_COUNT(bad); i++) {
        nnc_scan s;
        nnc_sink_clear(test_sink);
        nnc_scan_init(&s, "plan", bad[i].text, strlen(bad[i].text));
        nnc_plan *p = nnc_plan_parse(&s, test_sink);
        CHECK(p == NULL);
        nnc_plan_destroy(p);
        CHECK_DIAG(bad[i].says);
    }
}

static const char *const numbers[] = {"0", "-1", "1", "64", "63", "9223372036854775807",
    "-9223372036854775808", "2147483647", "-2147483648", "4096", "1000000000000"};

/* One random change of text in place; returns the new length. buf has room for n + 64. */
static size_t damage(char *buf, size_t n, uint64_t key, uint64_t *i)
{
    size_t at = nnc_rng_u32(key, ++*i) % n;
    switch (nnc_rng_u32(key, ++*i) % 4) {
    case 0: /* a byte */ buf[at] = (char)nnc_rng_u32(key, ++*i); return n;
    case 1: { /* a cut */
        size_t len = nnc_rng_u32(key, ++*i) % 40;
        len = at + len > n ? n - at : len;
        memmove(buf + at, buf + at + len, n - at - len);
        return n - len ? n - len : n;
    }
    default: { /* a number becomes another */
        while (at < n && !(buf[at] >= '0' && buf[at] <= '9'))
            at++;
        size_t end = at;
        while (end < n && buf[end] >= '0' && buf[end] <= '9')
            end++;
        const char *v = numbers[nnc_rng_u32(key, ++*i) % NNC_COUNT(numbers)];
        size_t len = strlen(v);
        memmove(buf + at + len, buf + end, n - end);
        memcpy(buf + at, v, len);
        return n - (end - at) + len;
    }
    }
}

static void fuzz(const char *graph, int streams, int rounds, int *parsed, int *accepted)
{
    nnc_plan *p = help_plan_text(graph, streams, 1);
    nnc_text t = {0};
    if (!p)
        return;
    nnc_plan_print(&t, p);
    char *buf = nnc_malloc(t.n + 256);
    uint64_t key = nnc_rng_key("damage", test_seed), at = 0;
    for (int r = 0; buf && r < rounds; r++) {
        size_t n = t.n;
        memcpy(buf, t.s, n);
        for (unsigned k = 1 + nnc_rng_u32(key, ++at) % 2; k > 0; k--)
            n = damage(buf, n, key, &at);
        nnc_scan s;
        nnc_sink_clear(test_sink);
        nnc_scan_init(&s, "plan", buf, n);
        nnc_plan *q = nnc_plan_parse(&s, test_sink);
        *parsed += q != NULL;
        if (!q && nnc_sink_errors(test_sink) == 0)
            test_fail(__FILE__, __LINE__, "rejected without a word (seed %llu, round %d)",
                (unsigned long long)test_seed, r);
        nnc_status status = q ? nnc_plan_verify(q, test_sink) : NNC_E_MODEL;
        *accepted += status == NNC_OK;
        if (q && status != NNC_OK && nnc_sink_errors(test_sink) == 0)
            test_fail(__FILE__, __LINE__, "unverified without a word (seed %llu, round %d)",
                (unsigned long long)test_seed, r);
        nnc_plan_destroy(q);
    }
    nnc_free(buf);
    nnc_text_deinit(&t);
    nnc_plan_destroy(p);
    nnc_sink_clear(test_sink);
}

TEST(hostile_damage)
{
    int parsed = 0, accepted = 0;
    fuzz(net, 1, 1500, &parsed, &accepted);
    fuzz(net, 3, 1500, &parsed, &accepted);
    /* most damage is seen; names, costs and numbers of generators are free */
    CHECK_USUAL(parsed > 300);
    CHECK(accepted < parsed);
}
