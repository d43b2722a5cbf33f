/* nnc.h -- nnc's C API: describe a machine, compile a model, load it, run it; and the questions that nnc answers about models.
 *
 *     nnc_sink *sink = nnc_sink_create();
 *     nnc_env *env;  nnc_artifact *a;  nnc_session *s;
 *     nnc_env_create(NULL, &env, sink);
 *     nnc_model *m = nnc_model_open("vgg16.json", NULL, sink);
 *     nnc_compile(env, m, NULL, &a, sink);
 *     nnc_session_create(env, a, &s, sink);
 *     nnc_session_input(s, 0, pixels, sink);  nnc_session_run(s, sink);  nnc_session_output(s, 0, logits, sink);
 *
 * Functions that can fail return a status and append located messages to the caller's sink (NULL: dropped). The caller owns objects that
 * create, open, compile and load return, and destroys them in reverse order. One thread at a time uses an env; its sessions run
 * concurrently, each from one thread. A forked process may use objects that no other thread was in, on a CPU. Options may be NULL for the
 * defaults. All types are opaque: a program built with this header runs with every later library of the same major version. */
#ifndef NNC_H
#define NNC_H

#include "base/codes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, "0.1.0". */
NNC_API const char *nnc_version(void);

typedef struct nnc_env nnc_env;           /* a machine: target, engines, kernel cache */
typedef struct nnc_graph nnc_model;       /* a model as the user wrote it (the graph IR) */
typedef struct nnc_artifact nnc_artifact; /* a compiled model: graph, plan, kernels, weight references, remarks */
typedef struct nnc_session nnc_session;   /* an artifact loaded on devices, ready to run */

typedef enum nnc_format { NNC_TEXT, NNC_JSON, NNC_CSV } nnc_format; /* of reports */

/* ---- options ------------------------------------------------------------------------------------------------------- */

/* Options are set by name, with the value as text, as the program's flags are: nnc_compile_options_set(o, "math", "fast", sink). A name
 * that is unknown or a value out of range is NNC_E_USAGE, and the message says what would be right. Flags without a value take "1" or
 * "0". Strings are copied. create: NULL when out of memory.
 *
 *     env      threads, target (one, or between commas one for each device), cache-dir, no-cache, tuning, tune, no-llvm
 *     open     set (NAME=VALUE, once a name), seed, weights, rename (NAME=NAME of a tensor of that file and its weight),
 *              shapes (of ONNX inputs: NAME:1x3x224x224, between commas), input (names of ONNX inputs with a default, an initializer,
 *              that will be given), train (for nnc_trainer_create: the file's section "train"
 *              sets args and options), replace-head (classes of a new head)
 *     compile  O (0..3), math (exact, ulp2, fast), precision (f32, tf32, f16, bf16), skip (passes between commas), memory-budget
 *              (of a training step: bytes, or a share of the usual: 60%), join-siblings, streams, streams-by, devices, jobs
 *     compare  those of compile; seed, warmup, iterations, duration (ms), no-steps, no-reference, tolerance, input (NAME=FILE),
 *              inputs (FILE)
 *     train    those of compile; loss, label-smoothing, class-axis, ignore-index, optimizer, momentum, nesterov, beta1, beta2, eps,
 *              weight-decay, clip-norm, accumulate, grad-inputs, bn, freeze, train-only, loss-scale, scale-growth, lr, schedule,
 *              warmup-steps, decay-every, decay-at, gamma, min-lr, steps, steps-per-epoch, on-nan, strategy, micro-batches, replicas,
 *              chunks, zero, bucket-mb, seed, as the flags of nnc train (docs/training.md) */
typedef struct nnc_env_options nnc_env_options;
typedef struct nnc_open_options nnc_open_options;
typedef struct nnc_compile_options nnc_compile_options;
typedef struct nnc_compare_options nnc_compare_options;
typedef struct nnc_train_options nnc_train_options;
NNC_API nnc_env_options *nnc_env_options_create(void);
NNC_API nnc_open_options *nnc_open_options_create(void);
NNC_API nnc_compile_options *nnc_compile_options_create(void);
NNC_API nnc_compare_options *nnc_compare_options_create(void);
NNC_API nnc_train_options *nnc_train_options_create(void);
NNC_API nnc_status nnc_env_options_set(nnc_env_options *o, const char *name, const char *value, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_open_options_set(nnc_open_options *o, const char *name, const char *value, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_compile_options_set(nnc_compile_options *o, const char *name, const char *value, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_compare_options_set(nnc_compare_options *o, const char *name, const char *value, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_train_options_set(nnc_train_options *o, const char *name, const char *value, nnc_sink *sink) NNC_MUST;
/* Adds a weight in the caller's memory, row-major, to those that are used instead of a file "weights". It is read in place by
 * nnc_session_create, so it outlives the models, artifacts and sessions; name and shape are copied. dtype: "f32", "bf16", ... */
NNC_API nnc_status nnc_open_options_tensor(nnc_open_options *o, const char *name, const char *dtype, int rank,
    const int64_t *dim, const void *data, nnc_sink *sink) NNC_MUST;
NNC_API void nnc_env_options_destroy(nnc_env_options *o);
NNC_API void nnc_open_options_destroy(nnc_open_options *o);
NNC_API void nnc_compile_options_destroy(nnc_compile_options *o);
NNC_API void nnc_compare_options_destroy(nnc_compare_options *o);
NNC_API void nnc_train_options_destroy(nnc_train_options *o);

/* ---- the machine --------------------------------------------------------------------------------------------------- */

NNC_API nnc_status nnc_env_create(const nnc_env_options *o, nnc_env **out, nnc_sink *sink) NNC_MUST;
NNC_API void nnc_env_destroy(nnc_env *e);
NNC_API int nnc_env_threads(const nnc_env *e);
NNC_API const char *nnc_env_target(const nnc_env *e); /* of several, between commas */

/* ---- models -------------------------------------------------------------------------------------------------------- */

/* Reads a model (.json, .onnx), a text graph, or "-" for stdin. NULL: rejected, reason in the sink. */
NNC_API nnc_model *nnc_model_open(const char *file, const nnc_open_options *o, nnc_sink *sink);
/* The same with a status, for a model in memory: `size` bytes of JSON, graph text or ONNX, which messages call `name`. The bytes of an
 * ONNX model hold its weights and outlive the artifacts and sessions. data NULL: reads the file `name`. *out: NULL after a failure. */
NNC_API nnc_status nnc_model_read(const char *name, const void *data, size_t size, const nnc_open_options *o,
    nnc_model **out, nnc_sink *sink) NNC_MUST;
NNC_API void nnc_model_close(nnc_model *m);
NNC_API void nnc_print_model(const nnc_model *m, nnc_text *out); /* the graph IR's text form */

/* ---- compiling ----------------------------------------------------------------------------------------------------- */

NNC_API nnc_status nnc_compile(
    nnc_env *e, const nnc_model *m, const nnc_compile_options *o, nnc_artifact **out, nnc_sink *sink) NNC_MUST;
NNC_API void nnc_artifact_destroy(nnc_artifact *a);
/* Writes one file: readable manifest, graph, plan, kernels, remarks; with `embed` the weights, otherwise references to their files.
 * Atomic. NNC_E_USAGE: references to weights in the caller's memory. */
NNC_API nnc_status nnc_artifact_save(const nnc_artifact *a, const char *file, bool embed, nnc_sink *sink) NNC_MUST;
/* Rejects damaged and truncated files and other formats (NNC_E_MODEL), and files for another machine than e (NNC_E_DEVICE). e NULL:
 * only for inspection, for any machine; no session can be made of it. */
NNC_API nnc_status nnc_artifact_load(nnc_env *e, const char *file, nnc_artifact **out, nnc_sink *sink) NNC_MUST;
/* Checks that the files of its weights exist and are those it was compiled with. Reads each weight's last element. */
NNC_API nnc_status nnc_artifact_check_weights(const nnc_artifact *a, nnc_sink *sink) NNC_MUST;
/* Reads the weights that lie in a file beside the artifact from this file instead, and checks it. */
NNC_API nnc_status nnc_artifact_use_weights(nnc_artifact *a, const char *file, nnc_sink *sink) NNC_MUST;
/* True when the file starts like an artifact. */
NNC_API bool nnc_is_artifact(const char *file);
/* A stage of a compiled model as text: "graph", "plan", "kernels", "dot", "remarks"; "onnx" (bytes). Only of a CPU's: "llvm", "asm".
 * Only of a GPU's: "cuda", "ptx", "cubin" (bytes). Unknown stages are NNC_E_USAGE. */
NNC_API nnc_status nnc_emit_text(
    nnc_env *e, const nnc_artifact *a, const char *stage, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* The same written to a file. "onnx": if the weights take more than 2000 MiB, all from 1 KiB on are written to FILE.data. */
NNC_API nnc_status nnc_emit_file(
    nnc_env *e, const nnc_artifact *a, const char *stage, const char *file, nnc_sink *sink) NNC_MUST;
/* Writes every stage into the folder `dir`, which is created if missing: graph.txt, plan.txt, kernels.txt, remarks.json, and
 * kernels.ll and kernels.s or, for a GPU, unit<N>.cu, .ptx, .cubin and code.txt (registers, instructions, access widths). */
NNC_API nnc_status nnc_dump(nnc_env *e, const nnc_artifact *a, const char *dir, nnc_sink *sink) NNC_MUST;
/* Names and types of inputs and outputs, in the order of a session's; NULL after the last. Outputs without elements come last; inputs
 * without elements, which no op reads, are not among them. */
NNC_API const char *nnc_artifact_input_name(const nnc_artifact *a, int i);
NNC_API const char *nnc_artifact_output_name(const nnc_artifact *a, int i);
NNC_API const nnc_type *nnc_artifact_input_type(const nnc_artifact *a, int i);
NNC_API const nnc_type *nnc_artifact_output_type(const nnc_artifact *a, int i);
/* Work of one run of the artifact: floating-point operations, bytes moved, launches. Each may be NULL. */
NNC_API void nnc_artifact_work(const nnc_artifact *a, int64_t *flops, int64_t *bytes, int64_t *launches);

/* ---- other args and shapes: an artifact keeps its model (a graph in text form has fixed shapes) ----
 *
 *     nnc_open_options_set(o, "set", "batch=7", sink);          // of an ONNX model: "shapes", "x:7x3x224x224"
 *     nnc_artifact_for(env, a, o, &seven, sink);
 *     nnc_session_create(env, seven, &s, sink);                 // beside the sessions of a; they share the weights
 *     ...
 *     nnc_session_destroy(s);  nnc_artifact_destroy(seven);  nnc_artifact_destroy(a);
 */
/* The model of `a` planned for the args ("set") and shapes of o, with the flags that a was compiled with. Args and extents missing in
 * o are those of a. Weights are read from where a has them. NNC_E_DEVICE: e is another machine than a was compiled for, or has other
 * plug-ins. The caller owns *out and destroys it like every artifact, before or after a. `a` keeps the 8 plans requested last: such a
 * plan is returned at once, even after its earlier owners destroyed theirs. If `a` was itself made for other shapes, the model, args
 * and recent plans are those of its original artifact. Called by the thread that uses e; others may run sessions of a and destroy
 * artifacts at the same time. */
NNC_API nnc_status nnc_artifact_for(
    nnc_env *e, nnc_artifact *a, const nnc_open_options *o, nnc_artifact **out, nnc_sink *sink) NNC_MUST;
/* Lets sessions of a, of which there are none yet, share weights with those of `with`, another model. Packed and folded weights are shared,
 * too. For graphs in text form, compiled once for each shape. Weights in the caller's memory count as equal if name and address are; they
 * must not change. */
NNC_API void nnc_artifact_share(nnc_artifact *a, nnc_artifact *with);
/* Returns the artifact's model, to be compiled with other flags or inspected. The caller closes it, before it destroys a. NULL:
 * rejected, reason in the sink. */
NNC_API nnc_model *nnc_artifact_model(const nnc_artifact *a, const nnc_open_options *o, nnc_sink *sink);

/* ---- running ------------------------------------------------------------------------------------------------------- */

/* Allocates exactly the memory that nnc_report_memory reports; reads or generates the weights; runs `init`. NNC_E_FIT when it does not
 * fit. The artifact must outlive the session. Sessions of one artifact, and of those made from it for other shapes, share equal weights
 * and packed weights, so less memory is allocated. */
NNC_API nnc_status nnc_session_create(nnc_env *e, const nnc_artifact *a, nnc_session **out, nnc_sink *sink) NNC_MUST;
/* The same, sharing states (see below) with another session. States of equal name and type use the same memory, so each session sees the
 * other's steps. For evaluating weights in training. The two may be destroyed in any order; they must not run at the same time. */
NNC_API nnc_status nnc_session_create_with(
    nnc_env *e, const nnc_artifact *a, nnc_session *with, nnc_session **out, nnc_sink *sink) NNC_MUST;
NNC_API void nnc_session_destroy(nnc_session *s);
NNC_API int nnc_session_inputs(const nnc_session *s);
NNC_API int nnc_session_outputs(const nnc_session *s);
/* By index; NULL after the last. */
NNC_API const char *nnc_session_input_name(const nnc_session *s, int i);
NNC_API const char *nnc_session_output_name(const nnc_session *s, int i);
NNC_API const nnc_type *nnc_session_input_type(const nnc_session *s, int i);
NNC_API const nnc_type *nnc_session_output_type(const nnc_session *s, int i);
/* Copies row-major data of the input's type to the device; it stays there for all later runs. NNC_E_MODEL: an index is outside the table
 * of the gather or embedding that reads it (-n to n - 1 for n rows). The check reads an integer input that is all indices once, on the
 * host. */
NNC_API nnc_status nnc_session_input(nnc_session *s, int i, const void *data, nnc_sink *sink) NNC_MUST;
/* Memory for access without copies, row-major. The caller writes an input's and then passes it to nnc_session_input; an output's is that
 * of the last run, valid until the next. NULL: the host cannot access it. */
NNC_API void *nnc_session_input_memory(nnc_session *s, int i);
NNC_API const void *nnc_session_output_memory(nnc_session *s, int i);
NNC_API nnc_status nnc_session_run(nnc_session *s, nnc_sink *sink) NNC_MUST; /* returns when the run is complete */
/* ---- state: a model whose text graph ends in `update %w <- %w2` (docs/graph-ir.md) has state w, initially the parameter's weights ----
 *
 *     for (int i = 0; i < steps; i++) {
 *         nnc_session_input(s, 0, batch[i], sink);
 *         nnc_session_step(s, sink);             // outputs from the old weights; then the new ones take their place
 *     }
 *     nnc_session_state(s, 0, weights, sink);    // for a checkpoint
 */
/* Runs the model, then replaces all states by their new values, in place; nnc_session_run leaves them. Outputs are those of the old state.
 * A model without state is run. After a failure states may be partly updated. */
NNC_API nnc_status nnc_session_step(nnc_session *s, nnc_sink *sink) NNC_MUST;
/* The same for states of `accumulate %g <- %g2` only; the others keep their values. For steps over several batches: accumulates the
 * gradients of all but the last, whose step uses their sum. */
NNC_API nnc_status nnc_session_accumulate(nnc_session *s, nnc_sink *sink) NNC_MUST;
NNC_API int nnc_session_states(const nnc_session *s);
/* By index, in the order of the updates; NULL after the last. If several devices have copies of a model, names on device d > 0 are the
 * first one's followed by `.deviced`. */
NNC_API const char *nnc_session_state_name(const nnc_session *s, int i);
NNC_API const nnc_type *nnc_session_state_type(const nnc_session *s, int i);
/* Copy a state to row-major host memory, and from there: checkpoints. */
NNC_API nnc_status nnc_session_state(nnc_session *s, int i, void *data, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_session_set_state(nnc_session *s, int i, const void *data, nnc_sink *sink) NNC_MUST;

/* ---- training ---------------------------------------------------------------------------------------------------------
 *
 *     nnc_train_options_set(o, "optimizer", "adamw", sink);
 *     nnc_trainer_create(env, model, o, &t, sink);
 *     for (int i = 0; i < steps; i++) {
 *         const void *batch[] = {pixels[i], classes[i]};     // by nnc_trainer_input_name: the model's inputs, and "target"
 *         nnc_trainer_step(t, batch, sink);
 *         printf("%g\n", nnc_trainer_loss(t));
 *     }
 *     nnc_trainer_save(t, "w.safetensors", sink);             // what nnc_open_options_set(o, "weights", ...) reads
 *     nnc_trainer_destroy(t);
 *
 * These are the steps of nnc train, with the same numbers; the caller provides the data. A trainer copies what it needs of the model and
 * the options, which may be closed and destroyed at once; the env must outlive it. As a session, it is used by one thread at a time, beside
 * other trainers and sessions of its env. nnc_trainer_create and the first nnc_trainer_evaluate compile: they are called by the thread that
 * uses the env. Data are copied before a function returns. */
typedef struct nnc_trainer nnc_trainer;
/* Makes the training step of m, compiles it, and sets weights and states to their initial values. NNC_E_USAGE: options that contradict
 * each other; NNC_E_MODEL: the model cannot be trained, or its loss does not fit its prediction; NNC_E_FIT: too little memory. *out: NULL
 * after a failure. */
NNC_API nnc_status nnc_trainer_create(
    nnc_env *e, const nnc_model *m, const nnc_train_options *o, nnc_trainer **out, nnc_sink *sink) NNC_MUST;
NNC_API void nnc_trainer_destroy(nnc_trainer *t);
/* The inputs of a batch: those of the model, and "target" (of cross_entropy: class indices, i64). Their first dimension is the number of
 * samples, with micro-batches or several devices that of all of them. By index; NULL after the last. */
NNC_API int nnc_trainer_inputs(const nnc_trainer *t);
NNC_API const char *nnc_trainer_input_name(const nnc_trainer *t, int i);
NNC_API const nnc_type *nnc_trainer_input_type(const nnc_trainer *t, int i);
/* Takes a step with a batch: batch[i], row-major, for input i. With accumulate=N every Nth batch ends a step of N. NNC_E_DIFFERS: the loss
 * is NaN or infinite; no weight has changed, and the next batch begins a step. With on-nan=skip that is no failure: the step is left out
 * and every state is as before it. NNC_E_MODEL: an index is outside its table or classes. After another failure states may be partly
 * updated: nnc_trainer_read_checkpoint makes them whole. */
NNC_API nnc_status nnc_trainer_step(nnc_trainer *t, const void *const *batch, nnc_sink *sink) NNC_MUST;
/* Computes loss and predictions of a batch with the current weights, with running statistics and without dropout. Changes no state. */
NNC_API nnc_status nnc_trainer_evaluate(nnc_trainer *t, const void *const *batch, nnc_sink *sink) NNC_MUST;
/* The loss of the last batch, of a step or an evaluation, and how many of its targets have the largest prediction. That number is NaN
 * if the loss has no classes. Both are NaN before the first batch. */
NNC_API double nnc_trainer_loss(const nnc_trainer *t);
NNC_API double nnc_trainer_correct(const nnc_trainer *t);
/* With the option grad-inputs: the gradient of the loss of nnc_trainer_step's last batch with respect to input i, of that input's type.
 * With several replicas or micro-batches it is that of each one's own loss. NNC_E_USAGE: without the option, before the first step, or
 * for an input that is not a float input of the model. */
NNC_API nnc_status nnc_trainer_gradient(const nnc_trainer *t, int i, void *data, nnc_sink *sink) NNC_MUST;
/* Steps so far, including those before the checkpoint; steps that on-nan=skip left out in this trainer. */
NNC_API int64_t nnc_trainer_steps(const nnc_trainer *t);
NNC_API int64_t nnc_trainer_skipped(const nnc_trainer *t);
/* Gets or sets the learning rate of the next step. A rate that was set replaces the schedule's; checkpoints do not keep it. */
NNC_API double nnc_trainer_rate(const nnc_trainer *t);
NNC_API nnc_status nnc_trainer_set_rate(nnc_trainer *t, double rate, nnc_sink *sink) NNC_MUST;
/* Writes the weights and running statistics by their names: .safetensors or .npz. */
NNC_API nnc_status nnc_trainer_save(nnc_trainer *t, const char *file, nnc_sink *sink) NNC_MUST;
/* Checkpoints have all that the next step depends on but the data. They are written atomically after a whole step, and read into a
 * trainer of the same model and options. Steps then have the same bits as if there had been one trainer. NNC_E_USAGE: in the middle of a
 * step (accumulate). NNC_E_DIFFERS: a state is not finite, and nothing was written. NNC_E_MODEL: the file is damaged or of another
 * training; the message lists what differs. Then read a good one before the next step, or destroy the trainer. */
NNC_API nnc_status nnc_trainer_write_checkpoint(nnc_trainer *t, const char *file, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_trainer_read_checkpoint(nnc_trainer *t, const char *file, nnc_sink *sink) NNC_MUST;

/* ---- outputs and files ---- */

/* Copies an output, or bytes offset.. of it, to row-major host memory. */
NNC_API nnc_status nnc_session_output(nnc_session *s, int i, void *data, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_session_output_part(
    nnc_session *s, int i, int64_t offset, int64_t bytes, void *data, nnc_sink *sink) NNC_MUST;
/* Reads a tensor file as row-major data of type `want` for input `name`; the caller frees *data with nnc_free. Files: .npy; .npz or
 * .safetensors with a tensor of this name; .bin or .raw of row-major numbers. FILE:TENSOR names a tensor of another name. */
NNC_API nnc_status nnc_read_input(
    const char *file, const char *name, const nnc_type *want, void **data, nnc_sink *sink) NNC_MUST;
/* Writes it in the format of the file's extension: .npy, .npz, .safetensors, .bin, .raw. */
NNC_API nnc_status nnc_write_output(
    const char *file, const nnc_type *t, const void *data, nnc_sink *sink) NNC_MUST;
/* Writes all outputs by their names (.npz, .safetensors; a single one also .npy, .bin, .raw). */
NNC_API nnc_status nnc_session_write(nnc_session *s, const char *file, nnc_sink *sink) NNC_MUST;
/* Writes the weights of the model, read or generated, by their names, in these formats. */
NNC_API nnc_status nnc_model_write_weights(
    const nnc_model *m, const char *file, nnc_sink *sink) NNC_MUST;
/* Fills input i, row-major and of its full type, with numbers that depend only on its name, type and seed. Indices are valid for
 * their tables. */
NNC_API nnc_status nnc_artifact_fill_input(const nnc_artifact *a, int i, uint64_t seed, void *data, nnc_sink *sink) NNC_MUST;
/* Fills an input with numbers that depend only on its name, type and seed: uniform in [-1, 1); integers 0..9; bool. */
NNC_API void nnc_fill_input(const char *name, const nnc_type *t, uint64_t seed, void *data);

/* ---- questions ------------------------------------------------------------------------------------------------------ */

/* Compares fused, unfused and float64. *agrees: all within tolerance. The report is appended to `out`. */
NNC_API nnc_status nnc_compare(nnc_env *e, const nnc_model *m, const nnc_compare_options *o, nnc_format f, nnc_text *out,
    bool *agrees, nnc_sink *sink) NNC_MUST;
NNC_API nnc_status nnc_report_explain(const nnc_artifact *a, nnc_format f, bool verbose, nnc_text *out) NNC_MUST;
NNC_API nnc_status nnc_report_memory(nnc_env *e, const nnc_artifact *a, nnc_format f, nnc_text *out, bool *fits) NNC_MUST;
NNC_API nnc_status nnc_report_show(const nnc_model *m, nnc_format f, nnc_text *out) NNC_MUST;
NNC_API nnc_status nnc_report_doctor(nnc_env *e, nnc_format f, nnc_text *out) NNC_MUST;
NNC_API nnc_status nnc_report_devices(nnc_env *e, nnc_format f, nnc_text *out) NNC_MUST;
/* A described machine (models/hardware/, docs/hardware.md): devices, links, bandwidths, times of collectives. */
NNC_API nnc_status nnc_report_hardware(const char *file, nnc_format f, nnc_text *out, nnc_sink *sink) NNC_MUST;
/* Tables of layer types, ops and passes, with their documentation. */
NNC_API void nnc_report_layers(nnc_format f, nnc_text *out);
NNC_API void nnc_report_ops(nnc_format f, nnc_text *out);
NNC_API void nnc_report_passes(nnc_format f, nnc_text *out);

#ifdef __cplusplus
}
#endif

#endif
