/* tests/plan/help.h -- a fake library and a fake kernel engine, so that plans are made without running anything. */
#ifndef NNC_TESTS_PLAN_HELP_H
#define NNC_TESTS_PLAN_HELP_H

#include "plan/make.h"
#include "test.h"

/* Takes every call; wants weights packed into 128 bytes more; workspace of 1000 bytes. */
extern const nnc_engine fake_library;
extern const nnc_engine fake_kernels; /* named "interp" */
extern bool fake_declines;            /* the library takes nothing */
extern bool fake_alone;               /* the target has no engine that runs kernels */
extern bool fake_in_place;            /* it takes sums in place only */

/* A described machine with the two engines: independent of the host. */
void help_target(nnc_target *t, int threads);
nnc_graph *help_graph(const char *text);
/* NULL when planning failed (reported to test_sink). */
nnc_plan *help_plan(const nnc_graph *g, int streams, int devices);
nnc_plan *help_plan_text(const char *graph, int streams, int devices);
/* Verifies, prints, parses, prints again and compares; verifies what was parsed. */
void help_check(const nnc_plan *p);
const nnc_cmd *help_cmd(const nnc_plan *p, const char *layers); /* of main, by layers; NULL */
int help_at(const nnc_plan *p, const char *layers);              /* its index; 0: there is none */
int help_count(const nnc_plan *p, nnc_cmd_kind kind);           /* in all */
/* Fails the test unless the verifier rejects p and says `why`. */
void help_rejected(nnc_plan *p, const char *why);
/* Every wait becomes a record that nobody waits for. */
void help_drop_waits(nnc_plan *p);

/* The graph's plan, changed by the statements that follow, is rejected with a message that contains `why`. */
#define HELP_LIE(graph, streams, why, ...) \
    do { \
        nnc_plan *p = help_plan_text(graph, streams, 1); \
        if (p) { \
            __VA_ARGS__; \
            help_rejected(p, why); \
        } \
        nnc_plan_destroy(p); \
    } while (0)

#endif
