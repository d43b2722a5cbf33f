/* target/internal.h -- shared by the files of target/ only. */
#ifndef NNC_TARGET_INTERNAL_H
#define NNC_TARGET_INTERNAL_H

#include "base/fields.h"
#include "target/target.h"

/* Sets the vector width and the instructions that generated code may use. */
void target_instructions(nnc_target *t);
/* Appends what identifies this machine's instruction set (CPU model and feature words). */
void target_host_signature(nnc_text *t);
/* libraries.c. Sets the versions that the architecture has by default; a CPU has none. */
void target_default_libraries(nnc_target *t);
/* Reads the member "libraries" of a machine file, which may be missing, and takes away the engines of libraries that are null. */
nnc_status target_read_libraries(const nnc_field_reader *r, const nnc_item *machine, nnc_target *t) NNC_MUST;

#endif
