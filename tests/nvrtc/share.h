/* tests/nvrtc/share.h -- budgets of a plan's launches that follow from registers, shared memory and waits: see share.c. Thread-safe. */
#ifndef TEST_NVRTC_SHARE_H
#define TEST_NVRTC_SHARE_H

struct nnc_plan;
void share_plan(const char *what, const struct nnc_plan *p, const char *target);
void share_print(void);
void share_reset(void);

#endif
