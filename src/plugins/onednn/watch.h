/* plugins/onednn/watch.h -- detects a NaN that oneDNN's maxima met. x86's MAXPS and MINPS raise the Invalid flag of MXCSR for a NaN
 * operand, quiet ones too (Intel SDM vol. 2, MAXPS: "SIMD floating-point exceptions: Invalid (including QNaN source operand)"), and the
 * flag stays up until it is cleared. So the flag, cleared before a call and read after it, says that no maximum or minimum met a NaN: in a
 * few nanoseconds instead of a pass over the result. The threads of a parallel region hand their flags to the one that opened it
 * (openmp.c). Other invalid operations (inf - inf, 0 inf) raise the flag too: a false alarm, never a missed one. */
#ifndef NNC_ONEDNN_WATCH_H
#define NNC_ONEDNN_WATCH_H

#include <stdbool.h>

/* Can work of oneDNN on `threads` threads be watched here? Tried once per process on a convolution full of NaN, because there are
 * many reasons why not: another architecture, an emulator that keeps no flags, a oneDNN with threads of its own (TBB, another
 * OpenMP). Any thread. */
bool dn_watch_works(int threads);

/* Clears the calling thread's flag; was it up? */
bool dn_flag_lower(void);
/* Is it up? Raises it when it was up `before`. */
bool dn_flag_restore(bool before);

#endif
