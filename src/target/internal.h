/* target/internal.h -- shared by the files of target/ only. */
#ifndef NNC_TARGET_INTERNAL_H
#define NNC_TARGET_INTERNAL_H

#include "target/target.h"

/* Sets the vector width and the instructions that generated code may use. */
void target_instructions(nnc_target *t);
/* Appends what identifies this machine's instruction set (CPU model and feature words). */
void target_host_signature(nnc_text *t);

#endif
