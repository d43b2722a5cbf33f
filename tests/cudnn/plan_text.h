/* tests/cudnn/plan_text.h -- a plan's text is read again; for the tests of GPUs, which make plans in different ways. */
#ifndef NNC_TESTS_CUDNN_PLAN_TEXT_H
#define NNC_TESTS_CUDNN_PLAN_TEXT_H

#include "plan/plan.h"
#include "test.h"

/* Verifies p, prints it, parses that and prints it again: the same text. */
static inline void check_plan_text(const nnc_plan *p)
{
    nnc_text once = {0}, twice = {0};
    nnc_scan s;
    CHECK_OK(nnc_plan_verify(p, test_sink));
    nnc_plan_print(&once, p);
    nnc_scan_init(&s, "plan", nnc_text_str(&once), once.n);
    nnc_plan *again = nnc_plan_parse(&s, test_sink);
    CHECK(again != NULL);
    if (again)
        nnc_plan_print(&twice, again);
    CHECK_STR(nnc_text_str(&twice), nnc_text_str(&once));
    nnc_plan_destroy(again);
    nnc_text_deinit(&once);
    nnc_text_deinit(&twice);
}

#endif
