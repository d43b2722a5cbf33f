/* target/internal.h -- shared by the files of target/ only. */
#ifndef NNC_TARGET_INTERNAL_H
#define NNC_TARGET_INTERNAL_H

#include "target/target.h"

/* Appends what identifies this machine's instruction set (CPU model and feature words). */
void target_host_signature(nnc_text *t);
/* On x86: which registers the system saves on a task switch (XCR0). Those that it does not save may not be used. */
uint64_t target_saved_state(void);

#endif
