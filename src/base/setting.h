/* base/setting.h -- options that are set by name from text, for the program's flags and for nnc.h. A row gives a value's place in a
 * struct and the values allowed. */
#ifndef NNC_BASE_SETTING_H
#define NNC_BASE_SETTING_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

typedef enum nnc_setting_kind {
    NNC_SET_INT,    /* int, lo..hi */
    NNC_SET_SEED,   /* uint64_t */
    NNC_SET_REAL,   /* double, lo..hi; hi 0: no greatest */
    NNC_SET_BOOL,   /* bool: "1" or "0" */
    NNC_SET_UNSET,  /* bool, inverted */
    NNC_SET_TEXT,   /* const char * */
    NNC_SET_FILE,   /* the same: the path of a file or folder */
    NNC_SET_CHOICE, /* an enum: lo + the value's place in `expected`, or its place in `names` */
    NNC_SET_LIST,   /* array of const char *, count at `more`: words between commas, added to those before */
    NNC_SET_PAIRS,  /* array of nnc_arg, count at `more`; lo 0: each name has one value */
} nnc_setting_kind;

typedef struct nnc_setting {
    const char *name;
    nnc_setting_kind kind;
    size_t at, more; /* offsets in the struct */
    int64_t lo, hi;
    const char *expected; /* for messages; of a choice the words, "text|json" */
    bool none;            /* 0 is stored as -1, "none": in the field 0 is the default */
    const char *const *names; /* of a choice: its words and others, by value; NULL: the words have values from lo on */
} nnc_setting;

/* Groups of flags, in the order in which --help prints them. A command takes all flags of its groups. */
typedef enum nnc_flag_group {
    FLAGS_model,
    FLAGS_passes,
    FLAGS_place, /* devices of layers */
    FLAGS_sharing, /* ops over devices */
    FLAGS_mode,
    FLAGS_training, /* the graph of a step */
    FLAGS_loop, /* the training loop */
    FLAGS_job, /* its files and devices */
    FLAGS_compiling,
    FLAGS_planning, /* after the passes */
    FLAGS_partition,
    FLAGS_fit, /* search for the largest that fits */
    FLAGS_limit, /* memory that runs may use */
    FLAGS_calibrate,
    FLAGS_profile,
    FLAGS_sweep,
    FLAGS_report,
    FLAGS_debugging,
    FLAGS_artifact,
    FLAGS_picture, /* of memory */
    FLAGS_trace,
    FLAGS_inputs,
    FLAGS_outputs,
    FLAGS_timing,
    FLAGS_percentile,
    FLAGS_compare,
    FLAGS_tolerance,
    FLAGS_layers, /* layer by layer */
    FLAGS_onnx_tests,
    FLAGS_machine,
    FLAGS_ranks,
    FLAGS_hardware, /* describes another machine */
    FLAGS_format, /* --format with csv */
    FLAGS_json, /* --format without csv */
    FLAGS_both, /* the report in two formats */
    FLAGS_verbose,
    FLAGS_help, /* all commands */
    FLAGS_file, /* keys of a model file that are no flags of train */
    FLAGS__COUNT
} nnc_flag_group;
#define NNC_FLAGS(group) (UINT64_C(1) << FLAGS_##group) /* a set of groups */

/* A flag of the program: its group, value and help text. */
typedef struct nnc_flag { nnc_flag_group group; nnc_setting value; const char *doc; } nnc_flag;

typedef struct nnc_arg { const char *name, *value; } nnc_arg;

/* Sets the field of `o`; strings and arrays are copied to `strings`. NNC_E_USAGE: "KIND NAME: expected ..., found `VALUE`". */
nnc_status nnc_setting_set(const nnc_setting *s, const char *kind, void *o, const char *value, nnc_arena *strings,
    nnc_sink *sink) NNC_MUST;
/* The same for a value that stands in a file: NNC_E_MODEL at loc. */
nnc_status nnc_setting_read(const nnc_setting *s, nnc_loc loc, void *o, const char *value, nnc_arena *strings,
    nnc_sink *sink) NNC_MUST;
/* Appends the value as nnc_setting_set reads it; nothing for a switch that is off, a missing text, and pairs. */
void nnc_setting_put(const nnc_setting *s, const void *o, nnc_text *out);

#endif
