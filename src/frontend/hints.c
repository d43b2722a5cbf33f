/* frontend/hints.c -- maps names of layer types and keys in PyTorch, Keras and ONNX to nnc's, for error messages. */
#include "frontend/internal.h"
#include <ctype.h>
#include <string.h>

/* From the other name, as normalised by `plain`, to nnc's. Names that differ only in case, _ and 2d need no row. */
static const char *const types[][2] = {{"amax", "reduce_max"}, {"amin", "reduce_min"},
    {"arange", "iota"}, {"argsort", "sort"}, {"averagepool", "avgpool"},
    {"averagepooling", "avgpool"}, {"batchnormalization", "batchnorm"}, {"bitwiseand", "bit_and"},
    {"bitwiseleftshift", "shl"}, {"bitwiseor", "bit_or"}, {"bitwiserightshift", "shr"},
    {"bitwisexor", "bit_xor"}, {"bmm", "matmul"}, {"cat", "concat"}, {"chunk", "split"},
    {"clamp", "clip"}, {"concatenate", "concat"}, {"constantpad", "pad"}, {"convolution", "conv"},
    {"deconv", "conv_transpose"}, {"deconvolution", "conv_transpose"}, {"dense", "linear"},
    {"depthwiseconv", "depthwise"}, {"dot", "matmul"}, {"expand", "broadcast"}, {"fc", "linear"},
    {"float", "cast"}, {"fullyconnected", "linear"}, {"gemm", "linear"},
    {"globalaveragepool", "global_avgpool"}, {"globalaveragepooling", "global_avgpool"},
    {"half", "cast"}, {"hardtanh", "clip"}, {"indexselect", "gather"},
    {"instancenorm", "groupnorm"}, {"layernormalization", "layernorm"}, {"logicaland", "and"},
    {"logicalnot", "not"}, {"logicalor", "or"}, {"maximum", "max"}, {"maxpooling", "maxpool"},
    {"mean", "reduce_mean"}, {"minimum", "min"}, {"mm", "matmul"}, {"multiply", "mul"},
    {"narrow", "slice"}, {"negative", "neg"}, {"parameter", "param"}, {"permute", "transpose"},
    {"power", "pow"}, {"prod", "reduce_prod"}, {"reciprocal", "recip"}, {"reflectionpad", "pad"},
    {"resize", "interpolate"}, {"scatterelements", "scatter"},
    {"scaleddotproductattention", "attention"}, {"stack", "concat"}, {"subtract", "sub"},
    {"sum", "reduce_sum"}, {"swapaxes", "transpose"}, {"swish", "silu"}, {"t", "transpose"},
    {"take", "gather"}, {"takealongdim", "gather_elements"}, {"to", "cast"},
    {"unflatten", "reshape"}, {"upsample", "interpolate"}, {"upsamplingbilinear", "interpolate"},
    {"upsamplingnearest", "interpolate"}, {"view", "reshape"}, {"where", "select"},
    {"zeropad", "pad"}};

/* Layers that nnc lacks, and what to write instead. */
static const char *const missing[][2] = {{"einsum", "write it as transpose, reshape and matmul"},
    {"pixelshuffle", "write it as reshape, transpose and reshape"},
    {"sequential", "a list of layers is run in order: write {\"layers\": [...]}"},
    {"modulelist", "write {\"layers\": [...]}"}};

/* Keys: nnc's name, or a sentence. If several rows have one name, the first whose key the layer has is used. */
static const char *const keys[][2] = {{"hidden_size", "hidden"}, {"nonlinearity", "activation"},
    {"axis", "axes"}, {"axis", "dim"}, {"axes", "axis"}, {"begins", "starts"},
    {"ceil_mode", "ceil"}, {"chunks", "parts"}, {"dilation_rate", "dilation"},
    {"dilations", "dilation"}, {"dim", "axis"}, {"dim", "axes"}, {"dims", "perm"}, {"dims", "axes"},
    {"dtype", "to"}, {"elementwise_affine", "affine"}, {"embedding_dim", "channels"},
    {"end", "ends"}, {"epsilon", "eps"}, {"filters", "channels"}, {"is_causal", "causal"},
    {"keepdim", "keepdims"}, {"kernel_size", "kernel"}, {"kernel_shape", "kernel"}, {"max", "hi"},
    {"max_val", "hi"}, {"min", "lo"}, {"min_val", "lo"}, {"negative_slope", "alpha"},
    {"normalized_shape", "axis"}, {"nhead", "heads"}, {"num", "parts"}, {"num_embeddings", "rows"},
    {"num_groups", "groups"}, {"num_heads", "heads"}, {"num_parameters", "slopes"},
    {"order", "perm"}, {"other", "value"}, {"p", "alpha"}, {"out_channels", "channels"},
    {"out_features", "out"}, {"padding", "pad"}, {"padding", "pads"}, {"pads", "pad"},
    {"pad", "pads"}, {"pool_size", "kernel"}, {"size", "kernel"}, {"size", "shape"},
    {"slope", "alpha"}, {"split_size", "sizes"}, {"start", "starts"}, {"start_dim", "axis"},
    {"step", "steps"}, {"strides", "stride"}, {"transA", "transpose_a"}, {"transB", "transpose_b"},
    {"units", "out"}, {"use_bias", "bias"}};
static const char *const left_out[][2] = {{"in_channels", "the input has them"},
    {"in_features", "the input has them"}, {"input_shape", "the input has it"},
    {"num_channels", "the input has them"}, {"num_features", "the input has them"},
    {"attn_mask", "the mask is the last input"}, {"batch_first", "the batch is dimension 0"},
    {"embed_dim", "the input has them"}, {"end_dim", "flatten goes to the last dimension"},
    {"output_size",
        "global pooling leaves extent 1; others are adaptive_avgpool and adaptive_maxpool"},
    {"inplace", "nnc decides what is in place"}, {"momentum", "training uses 0.1"},
    {"track_running_stats", "the statistics are stored"},
    {"padding_mode", "conv and pooling pad with zeros; a pad layer before them has other modes"},
    {"activation", "write the activation as the next layer"},
    {"padding_idx", "training treats that row as any other"}};

/* Normalises a name: lower case, without a prefix such as "nn.", without _ and a 1d, 2d or 3d suffix. */
static void plain(const char *s, char out[40])
{
    const char *dot = strrchr(s, '.');
    size_t n = 0;
    for (s = dot ? dot + 1 : s; *s && n < 39; s++)
        if (*s != '_')
            out[n++] = (char)tolower((unsigned char)*s);
    n -= n > 2 && out[n - 1] == 'd' && strchr("123", out[n - 2]) ? 2 : 0;
    out[n] = 0;
}

static const char *look_up(const char *const (*table)[2], size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(table[i][0], word))
            return table[i][1];
    return NULL;
}

const char *fe_type_hint(fe *f, const char *op, const char *const *names, size_t n)
{
    char word[40], other[40];
    plain(op, word);
    const char *is = look_up(types, NNC_COUNT(types), word),
               *no = look_up(missing, NNC_COUNT(missing), word), *near = NULL;
    for (size_t i = 0; !is && i < n; i++) {
        plain(names[i], other);
        is = strcmp(other, word) ? NULL : names[i];
    }
    if (!is && !no)
        near = nnc_nearest(op, names, n);
    const char *s =
        is     ? nnc_arena_printf(&f->a, "; nnc calls it `%s`", is)
        : no   ? nnc_arena_printf(&f->a, ": nnc has no such layer%s%s", *no ? "; " : "", no)
        : near ? nnc_arena_printf(&f->a, "; did you mean `%s`?", near)
               : " (`nnc layers` lists them)";
    return s ? s : "";
}

const char *fe_key_hint(fe *f, const char *key, const char *const *names, size_t n)
{
    const char *s = NULL, *why = look_up(left_out, NNC_COUNT(left_out), key);
    for (size_t i = 0; i < NNC_COUNT(keys) && !s; i++)
        for (size_t k = 0; k < n && !s && !strcmp(keys[i][0], key); k++)
            if (!strcmp(names[k], keys[i][1]))
                s = nnc_arena_printf(&f->a, "; nnc calls it `%s`", names[k]);
    if (!s && why)
        s = nnc_arena_printf(&f->a, "; leave it out: %s", why);
    return s ? s : fe_hint(f, key, names, n);
}
