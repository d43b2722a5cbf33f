/* plugins/onednn/watch.h -- detects a NaN that oneDNN's maxima met during a run. x86's MAXPS and MINPS raise the Invalid flag of MXCSR for
 * a NaN operand, quiet ones too (Intel SDM vol. 2, MAXPS: "SIMD floating-point exceptions: Invalid (including QNaN source operand)"), and
 * the flag stays up until it is cleared. So the flags of all threads of a team, cleared before the work and read after it, say that no
 * maximum or minimum met a NaN: for two short parallel regions a run instead of a pass over each result. Other invalid operations
 * (inf - inf, 0 inf) raise it too: a false alarm, never a missed one. */
#ifndef NNC_ONEDNN_WATCH_H
#define NNC_ONEDNN_WATCH_H

#include <stdbool.h>

/* Can work of oneDNN on `threads` threads be watched here? Tried once per process on a convolution full of NaN, because there are
 * many reasons why not: another architecture, an emulator that keeps no flags, a oneDNN with threads of its own (TBB, another
 * OpenMP). Any thread. */
bool dn_watch_works(int threads);

/* Takes down the flags of the calling thread's team. */
void dn_watch_begin(int threads);
/* true: since dn_watch_begin with the same number on the same calling thread, a thread of the team did an invalid operation; or
 * the team's threads are not all those of the beginning, and whoever left took its flag along. The calling thread gets back a flag
 * that was up before. */
bool dn_watch_end(int threads);

#endif
