/* tests/codegen/ops.c -- every op that becomes a kernel, for every type it takes, over shapes
 * with and without broadcast and memory orders, against the reference. Bound for f32: 8 ulp of
 * the result (libm's float functions have up to 3; sums of n elements are given n/8 more),
 * stated where another is needed. */
#include "help.h"

static const char *const all_types[] = {
    "f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"};
static const char *const float_types[] = {"f64", "f32", "f16", "bf16"};

static const ck_bound ulps = {1e-6, 1e-6};
static const ck_bound sums = {4e-6, 1e-5};

static bool check(ck_bound b, const char *fmt, ...) NNC_PRINTF(2, 3);
static bool check(ck_bound b, const char *fmt, ...)
{
    nnc_text t = {0};
    va_list ap;
    va_start(ap, fmt);
    nnc_vprintf(&t, fmt, ap);
    va_end(ap);
    bool ok = ck_text(nnc_text_str(&t), b);
    nnc_text_deinit(&t);
    return ok;
}

static void one_op(const char *op, int n_in, const char *attrs, const char *type, const char *dims)
{
    const char *d2 = strcmp(dims, "[3,1,70]{2,0,1}") == 0 ? "[4,70]" : dims;
    if (n_in == 1)
        check(ulps, "graph @t {\n%%a = input : %s%s\n%%r = %s %%a %s\nreturn %%r }", type, dims, op,
            attrs);
    else
        check(ulps,
            "graph @t {\n%%a = input : %s%s\n%%b = input : %s%s\n%%r = %s %%a, %%b %s\nreturn %%r "
            "}",
            type, dims, type, d2, op, attrs);
}

static const char *const shapes[] = {"[]", "[1000]", "[3,1,70]{2,0,1}", "[2,5,3,4]{0,2,3,1}"};

TEST(elementwise)
{
    for (int op = 0; op < OP__COUNT; op++) {
        const nnc_op_info *o = &nnc_ops[op];
        if ((o->cls != CL_ewise && o->cls != CL_ecomp) || op == OP_cast || op == OP_select ||
            op == OP_not || op == OP_and || op == OP_or || op == OP_xor)
            continue;
        for (size_t t = 0; t < NNC_COUNT(all_types); t++) {
            if (o->flags & (t < NNC_COUNT(float_types) ? OF_int : OF_float))
                continue;
            for (size_t s = 0; s < NNC_COUNT(shapes); s++)
                one_op(o->name, o->n_min, op == OP_clip ? "{lo=-1, hi=1}" : "", all_types[t],
                    shapes[s]);
        }
    }
    for (size_t s = 0; s < NNC_COUNT(shapes); s++) {
        one_op("not", 1, "", "bool", shapes[s]);
        one_op("and", 2, "", "bool", shapes[s]);
        one_op("or", 2, "", "bool", shapes[s]);
        one_op("xor", 2, "", "bool", shapes[s]);
    }
    check(ulps,
        "graph @t {\n%%a = input : f32[3,100]\n%%r = gelu %%a {approximate=tanh}\nreturn %%r }");
}

TEST(casts_and_selects)
{
    for (size_t f = 0; f <= NNC_COUNT(all_types); f++)
        for (size_t t = 0; t <= NNC_COUNT(all_types); t++) {
            const char *from = f < NNC_COUNT(all_types) ? all_types[f] : "bool";
            const char *to = t < NNC_COUNT(all_types) ? all_types[t] : "bool";
            check(ulps, "graph @t {\n%%a = input : %s[7,30]\n%%r = cast %%a {to=%s}\nreturn %%r }",
                from, to);
        }
    for (size_t t = 0; t < NNC_COUNT(all_types); t++)
        check(ulps,
            "graph @t {\n%%c = input : bool[7,1]\n%%a = input : %s[7,30]\n%%b = input : %s[]\n"
            "%%r = select %%c, %%a, %%b\nreturn %%r }",
            all_types[t], all_types[t]);
}

TEST(reductions)
{
    static const char *const ops[] = {
        "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"};
    static const char *const how[] = {"f: [5,300]; {axes=[1]}", "f: [5,300]; {axes=[0]}",
        "f: [5,300]; {axes=[0,1]}", "f: [2,6,5,7]; {axes=[2,3], keepdims=0}",
        "f: [2,6,5,7]{0,2,3,1}; {axes=[2,3]}", "f: [2,6,5,7]{0,2,3,1}; {axes=[1], keepdims=0}",
        "f: [3,1,4]; {axes=[1]}", "f: [2,3,4,5]; {axes=[0,2]}"};
    for (size_t o = 0; o < NNC_COUNT(ops); o++)
        for (size_t t = 0; t < NNC_COUNT(all_types); t++)
            for (size_t h = 0; h < NNC_COUNT(how); h++) {
                if (strcmp(ops[o], "reduce_mean") == 0 && t >= NNC_COUNT(float_types))
                    continue;
                if (strcmp(ops[o], "reduce_prod") == 0 && h < 5 && t < NNC_COUNT(float_types))
                    continue; /* a product of hundreds of floats over- or underflows */
                const char *semi = strchr(how[h], ';');
                check(sums, "graph @t {\n%%a = input : %s%.*s\n%%r = %s %%a %s\nreturn %%r }",
                    all_types[t], (int)(semi - how[h] - 3), how[h] + 3, ops[o], semi + 1);
            }
}

TEST(arg_reductions)
{
    for (int mode = 0; mode < 2; mode++)
        for (size_t t = 0; t < NNC_COUNT(all_types); t++) {
            const char *op = mode ? "argmax" : "argmin";
            check(ulps, "graph @t {\n%%a = input : %s[4,3000]\n%%r = %s %%a {axis=1}\nreturn %%r }",
                all_types[t], op);
            check(ulps,
                "graph @t {\n%%a = input : %s[40,30]\n%%r = %s %%a {axis=0, keepdims=0}\nreturn "
                "%%r }",
                all_types[t], op);
            check(ulps,
                "graph @t {\n%%a = input : %s[2,9,4,5]{0,2,3,1}\n%%r = %s %%a {axis=1}\nreturn %%r "
                "}",
                all_types[t], op);
        }
}

TEST(movement)
{
    static const char *const cases[] = {"[4,6] reshape {shape=[2,2,6]}",
        "[4,6] reshape {shape=[3,8]}", "[2,6,4,4]{0,2,3,1} reshape {shape=[2,96]}",
        "[2,6,4,4] reshape {shape=[2,3,2,16]}", "[6,4]{1,0} reshape {shape=[24]}",
        "[3,40] transpose {perm=[1,0]}", "[2,3,4,5] transpose {perm=[0,2,3,1]}",
        "[2,3,4,5] transpose {perm=[3,1,0,2]}", "[3,1,5] broadcast {shape=[2,3,4,5]}",
        "[] broadcast {shape=[40]}",
        "[9,20] slice {axes=[0,1], starts=[1,3], ends=[8,19], steps=[2,3]}",
        "[9,20] slice {axes=[1], starts=[4], ends=[12]}", "[5,6] pad {pads=[1,2,0,3]}",
        "[5,6] pad {pads=[1,2,0,3], value=1.5}", "[5,6] pad {pads=[2,2,3,4], mode=reflect}",
        "[5,6] pad {pads=[2,9,3,8], mode=edge}",
        "[2,3,5,6]{0,2,3,1} pad {pads=[0,0,1,2,0,0,3,1], mode=reflect}", "[5,6] flip {axes=[1]}",
        "[5,6,2] flip {axes=[0,2]}", "[2,3,4,5] relayout {order=[0,2,3,1]}",
        "[2,3,4,5]{0,2,3,1} relayout {order=[0,1,2,3]}"};
    for (size_t t = 0; t < NNC_COUNT(all_types); t++)
        for (size_t c = 0; c < NNC_COUNT(cases); c++) {
            const char *sp = strchr(cases[c], ' ');
            const char *at = strchr(sp + 1, ' ');
            bool relayout = strstr(cases[c], "order=") != NULL;
            check(ulps, "graph @t {\n%%a = input : %s%.*s\n%%r = %.*s %%a %s%s%s%s\nreturn %%r }",
                all_types[t], (int)(sp - cases[c]), cases[c], (int)(at - sp - 1), sp + 1, at + 1,
                relayout ? " : " : "", relayout ? all_types[t] : "",
                !relayout                      ? ""
                : strstr(cases[c], "0,2,3,1]") ? "[2,3,4,5]{0,2,3,1}"
                                               : "[2,3,4,5]");
        }
}

TEST(concat_split_gather)
{
    for (size_t t = 0; t < NNC_COUNT(all_types); t++) {
        const char *d = all_types[t];
        for (int axis = 0; axis < 2; axis++)
            check(ulps,
                "graph @t {\n%%a = input : %s[4,4]\n%%b = input : %s[4,4]\n%%c = input : %s[4,4]\n"
                "%%r = concat %%a, %%b, %%c {axis=%d}\nreturn %%r }",
                d, d, d, axis);
        check(ulps,
            "graph @t {\n%%a = input : %s[2,3,4,5]{0,2,3,1}\n%%b = input : %s[2,1,4,5]\n"
            "%%r = concat %%a, %%b {axis=1} : %s[2,4,4,5]{0,2,3,1}\nreturn %%r }",
            d, d, d);
        check(ulps,
            "graph @t {\n%%a = input : %s[3,20]\n%%l, %%m, %%r = split %%a {axis=1, "
            "sizes=[4,1,15]}\n"
            "return %%l, %%m, %%r }",
            d);
        for (int axis = 0; axis < 2; axis++)
            check(ulps,
                "graph @t {\n%%a = input : %s[7,6]\n%%i = input : i32[2,50]\n%%k = constant : "
                "i32[] = [6]\n"
                "%%j = mod %%i, %%k\n%%r = gather %%a, %%j {axis=%d}\nreturn %%r }",
                d, axis);
    }
}

TEST(pooling)
{
    static const char *const cases[] = {"{kernel=[2,2], strides=[2,2]}",
        "{kernel=[3,3], strides=[2,2], pads=[1,1,1,1]}",
        "{kernel=[3,2], strides=[1,2], pads=[1,0,0,1]}",
        "{kernel=[3,3], strides=[2,2], ceil_mode=1}",
        "{kernel=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1}",
        "{kernel=[1,1], strides=[2,2]}"};
    static const char *const shape[] = {
        "[2,3,9,8]", "[2,3,9,8]{0,2,3,1}", "[1,20,8,8]", "[1,20,8,8]{0,2,3,1}"};
    for (size_t c = 0; c < NNC_COUNT(cases); c++)
        for (size_t s = 0; s < NNC_COUNT(shape); s++)
            for (size_t t = 0; t < NNC_COUNT(all_types); t++) {
                check(ulps, "graph @t {\n%%a = input : %s%s\n%%r = maxpool %%a %s\nreturn %%r }",
                    all_types[t], shape[s], cases[c]);
                if (t >= NNC_COUNT(float_types))
                    continue;
                check(sums, "graph @t {\n%%a = input : %s%s\n%%r = avgpool %%a %s\nreturn %%r }",
                    all_types[t], shape[s], cases[c]);
                check(sums,
                    "graph @t {\n%%a = input : %s%s\n%%r = avgpool %%a {count_include_pad=1, "
                    "%s\nreturn %%r }",
                    all_types[t], shape[s], cases[c] + 1);
            }
    check(ulps, "graph @t {\n%%a = input : f32[2,3,30]\n%%r = maxpool %%a {kernel=[3], "
                "dilations=[2], strides=[2], "
                "pads=[1,1]}\nreturn %%r }");
    check(sums, "graph @t {\n%%a = input : f32[1,2,6,5,7]\n%%r = avgpool %%a {kernel=[2,3,2], "
                "strides=[2,1,2], "
                "pads=[1,1,1,1,1,1]}\nreturn %%r }");
}

TEST(composites)
{
    static const char *const shape[] = {"[3,200]", "[2,8,5,6]", "[2,8,5,6]{0,2,3,1}", "[1,8,1,1]"};
    for (size_t t = 0; t < NNC_COUNT(float_types); t++)
        for (size_t s = 0; s < NNC_COUNT(shape); s++) {
            const char *d = float_types[t], *y = shape[s];
            check(sums, "graph @t {\n%%a = input : %s%s\n%%r = softmax %%a {axis=1}\nreturn %%r }",
                d, y);
            check(sums,
                "graph @t {\n%%a = input : %s%s\n%%r = log_softmax %%a {axis=0}\nreturn %%r }", d,
                y);
            if (s == 0) {
                check(sums,
                    "graph @t {\n%%a = input : %s[3,200]\n%%g = input : %s[200]\n%%b = input : "
                    "%s[200]\n"
                    "%%r = layernorm %%a, %%g, %%b\nreturn %%r }",
                    d, d, d);
                check(sums,
                    "graph @t {\n%%a = input : %s[3,200]\n%%g = input : %s[200]\n"
                    "%%r = rmsnorm %%a, %%g\nreturn %%r }",
                    d, d);
                continue;
            }
            check(sums, "graph @t {\n%%a = input : %s%s\n%%r = global_avgpool %%a\nreturn %%r }", d,
                y);
            check(sums, "graph @t {\n%%a = input : %s%s\n%%r = global_maxpool %%a\nreturn %%r }", d,
                y);
            check(sums,
                "graph @t {\n%%a = input : %s%s\n%%r = layernorm %%a {axis=1}\nreturn %%r }", d, y);
            check(sums,
                "graph @t {\n%%a = input : %s%s\n%%g = input : %s[8]\n%%b = input : %s[8]\n"
                "%%r = groupnorm %%a, %%g, %%b {num_groups=%d}\nreturn %%r }",
                d, y, d, d, s == 3 ? 2 : 4);
            check(sums,
                "graph @t {\n%%a = input : %s%s\n%%g = input : %s[8]\n%%b = input : %s[8]\n%%m = "
                "input : %s[8]\n"
                "%%w = input : %s[8]\n%%v = square %%w\n%%r = batchnorm %%a, %%g, %%b, %%m, %%v "
                "{eps=0.1}\n"
                "return %%r }",
                d, y, d, d, d, d);
        }
}

TEST(iota)
{
    check(ulps, "graph @t {\n%%r = iota {dim=1} : i64[3,40]\nreturn %%r }");
    check(ulps, "graph @t {\n%%r = iota {dim=0} : f32[30,4]\nreturn %%r }");
    check(ulps, "graph @t {\n%%r = iota {dim=0} : u8[300]\nreturn %%r }");
}

/* Running sums and products: every type, axis, direction and memory order. */
TEST(scans)
{
    static const char *const how[] = {"f: [300]; {axis=0}", "f: [5,37]; {axis=1}",
        "f: [37,5]; {axis=0}", "f: [2,6,5,7]; {axis=2}", "f: [2,6,5,7]{0,2,3,1}; {axis=1}",
        "f: [3,1,40]; {axis=1}", "f: [9,1]; {axis=0}", "f: [2,19,33]; {axis=1}"};
    static const char *const way[] = {
        "", ", exclusive=1", ", reverse=1", ", exclusive=1, reverse=1"};
    for (size_t t = 0; t < NNC_COUNT(all_types); t++)
        for (size_t h = 0; h < NNC_COUNT(how); h++)
            for (size_t w = 0; w < NNC_COUNT(way); w++) {
                const char *semi = strchr(how[h], ';'), *end = strchr(semi, '}');
                for (int product = 0; product < 2; product++)
                    check(sums,
                        "graph @t {\n%%a = input : %s%.*s\n%%r = %s %%a %.*s%s}\nreturn %%r }",
                        all_types[t], (int)(semi - how[h] - 3), how[h] + 3,
                        product ? "cumprod" : "cumsum", (int)(end - semi - 2), semi + 2, way[w]);
            }
}

/* Updates of 16-bit floats, each rounded. */
TEST(narrow_updates)
{
    static const char *const how[] = {"add", "mul"};
    for (int t = 2; t < 4; t++)
        for (size_t h = 0; h < NNC_COUNT(how); h++)
            check((ck_bound){3e-2, 3e-2},
                "graph @t {\n%%x = input : %s[5,7]\n%%i = input : u8[4,7]\n%%u = input : %s[4,7]\n"
                "%%r = scatter %%x, %%i, %%u {axis=0, reduction=%s}\nreturn %%r }",
                float_types[t], float_types[t], how[h]);
}
