/* profile/verdict.c -- sums up a profile in a few sentences: what bounds the run, by how much, and where to look. */
#include "profile/profile.h"
#include "session/session.h"
#include <math.h>
#include <string.h>

#define LEAST \
    0.01 /* share that is worth a word: of the time, and of what of it is above the least */

/* A command shorter than so many launches of its target is largely launch: starting threads and meeting them again. */
#define LAUNCHES 4
/* Below this share of its limit something else takes the time: functions, index arithmetic, latencies. Products on a CPU reach 0.41 to 0.49
 * of what its threads compute (bench/results/sweep-2026-11-30.txt), and are bound by it. */
#define FAR 0.4
/* Other programs took most of the time if this one's share of the CPU, and the least time's share of its time, are below this. Then
 * others have as many threads for the cores as this program. */
#define CROWDED 0.5
/* Linux leaves a thread the core for at least so long: most runs of one thread that are shorter meet no other program. */
#define SLICE_MS 0.75

typedef struct sums {
    double least, bound[LEVEL__COUNT], brief, busy, gap;
    int n_brief;
} sums;

static double gap_of(const nnc_profile_cmd *c)
{
    return fmax(c->ms - c->least_ms, 0);
}

static double short_ms(const nnc_profile *p)
{
    return LAUNCHES * 1e-6 * (double)p->target->launch_ns;
}

static sums add_up(const nnc_profile *p)
{
    sums s = {0};
    for (int i = 0; i < p->n; i++) {
        const nnc_profile_cmd *c = &p->cmd[i];
        s.least += c->least_ms;
        s.bound[c->bound] += c->least_ms;
        s.busy += c->ms;
        s.gap += gap_of(c);
        if (c->ms < short_ms(p) && c->ms > 2 * c->least_ms) {
            s.brief += c->ms;
            s.n_brief++;
        }
    }
    return s;
}

/* Share of the CPU that the threads had when they needed it; 1: unknown, or other programs do not change the usual run. */
static double own_share(const nnc_profile *p)
{
    const nnc_plan *plan = p->artifact->plan;
    bool slow = p->wall_ms > SLICE_MS || p->lanes > 1;
    for (int i = 0; i < p->n && !slow; i++) {
        const nnc_cmd *c = &plan->cmd[p->cmd[i].cmd];
        slow = c->kind == CMD_kernel && plan->kernel[c->item].threads > 1;
    }
    return slow && !isnan(p->cpu_share) ? p->cpu_share : 1;
}

/* Did other programs take most of the time? Runs that come near their least time were not disturbed by them. */
static bool is_crowded(const nnc_profile *p, const sums *s)
{
    return own_share(p) < CROWDED && s->least < CROWDED * s->busy;
}

/* Prints what bounds the time: the first of several reasons that holds. */
static void put_reason(const nnc_profile *p, const sums *s, nnc_text *out)
{
    const double own = own_share(p);
    const double moved = s->least - s->bound[LEVEL_arithmetic];
    nnc_shares all = {0};
    nnc_sum_shares(&all, p->device, p->artifact->plan->n_device);
    const double total = (double)nnc_max64(nnc_shares_total(&all), 1),
                 computing = (double)nnc_shares_computing(&all), idle = (double)all.idle,
                 exposed = (double)(all.part[PART_communication] + all.waits);
    if (is_crowded(p, s))
        nnc_puts(out, "Bound by other programs.");
    else if (exposed > fmax(computing, idle))
        nnc_printf(out,
            "Bound by communication: copies between devices and collectives that computing does "
            "not hide take %.0f %% of the devices' time.",
            100 * exposed / total);
    else if (idle > computing)
        nnc_printf(out, "Bound by waiting: no command runs for %.0f %% of the devices' time.",
            100 * idle / total);
    else if (s->brief > 0.5 * s->busy)
        nnc_printf(out,
            "Bound by launches: %d command%s of less than %.0f us %s %.0f %% of the time.",
            s->n_brief, nnc_plural(s->n_brief, "s"), short_ms(p) * 1e3,
            s->n_brief == 1 ? "takes" : "take", 100 * s->brief / s->busy);
    else if (s->least > NNC_TOO_FAST * s->busy)
        nnc_puts(out, p->rates.since_s
                          ? "Faster than the limits: this machine was busy while its rates were "
                            "measured."
                          : "Faster than the limits: these count each op as written, and at the "
                            "target's usual rates.");
    else if (s->least < FAR * own * s->busy)
        nnc_printf(
            out, "At no limit: its commands take %.3g times their least time.", s->busy / s->least);
    else
        nnc_printf(
            out, "Bound by %s.", s->bound[LEVEL_arithmetic] > moved ? "arithmetic" : "memory");
    if (own < NNC_BUSY)
        nnc_printf(out,
            " Its threads had the CPU for %.0f %% of the time that they needed it, other programs "
            "for the rest%s.",
            100 * own, is_crowded(p, s) ? ": repeat it when they have ended" : "");
}

static void put_bound(const nnc_profile *p, const sums *s, nnc_text *out)
{
    const double moved = s->least - s->bound[LEVEL_arithmetic];
    put_reason(p, s, out);
    nnc_puts(out, " The least time of its commands is ");
    nnc_put_ms(out, s->least, 0);
    nnc_printf(out, " ms, %.0f %% of theirs (%.0f %% of it arithmetic, %.0f %% memory and caches).",
        100 * s->least / s->busy, 100 * s->bound[LEVEL_arithmetic] / s->least,
        100 * moved / s->least);
}

/* Whether all of a remark's layers are among `layers`, joined by +. */
static bool is_about(const nnc_remark *r, const char *layers)
{
    int n = 0;
    for (int i = 0; i < r->n_layers; i++)
        for (const char *s = layers; *s; s += strcspn(s, "+"), s += *s == '+') {
            const size_t length = strlen(r->layer[i]);
            if (strcspn(s, "+") == length && !strncmp(s, r->layer[i], length)) {
                n++;
                break;
            }
        }
    return n == r->n_layers;
}

/* The last declined remark about exactly the layers of a command. */
static const nnc_remark *declined_of(const nnc_artifact *a, const char *layers)
{
    const nnc_remark *found = NULL;
    for (size_t i = 0; layers && i < a->remarks.n; i++)
        if (!a->remarks.at[i].applied && is_about(&a->remarks.at[i], layers))
            found = &a->remarks.at[i];
    return found;
}

/* The commands with the largest times above their least, and what was declined about each. */
static void put_worst(const nnc_profile *p, const sums *s, nnc_text *out)
{
    enum { WORST = 3 };
    const nnc_profile_cmd *worst[WORST] = {0};
    for (int i = 0; i < p->n; i++) {
        const nnc_profile_cmd *c = &p->cmd[i];
        for (int k = 0; k < WORST && c; k++)
            if (!worst[k] || gap_of(c) > gap_of(worst[k])) {
                const nnc_profile_cmd *was = worst[k];
                worst[k] = c;
                c = was;
            }
    }
    const nnc_remark *said = NULL;
    if (s->gap < LEAST * s->busy)
        return;
    nnc_puts(out, " Furthest above the least:");
    for (int k = 0; k < WORST && worst[k] && gap_of(worst[k]) >= LEAST * s->gap; k++) {
        const nnc_cmd *c = &p->artifact->plan->cmd[worst[k]->cmd];
        nnc_puts(out, k ? "; " : " ");
        nnc_put_layers(out, c->layers && *c->layers ? c->layers : c->op_class, 70);
        nnc_printf(out, " (%.0f %% of all such time", 100 * gap_of(worst[k]) / s->gap);
        const nnc_remark *r = declined_of(p->artifact, c->layers);
        if (r && (!said || strcmp(said->reason, r->reason) != 0))
            nnc_printf(out, "; %s: declined, %s", r->rule, r->reason);
        said = r;
        nnc_puts(out, ")");
    }
    nnc_puts(out, ". nnc explain lists all decisions.");
}

void nnc_profile_verdict(const nnc_profile *p, nnc_text *out)
{
    const sums s = add_up(p);
    if (s.busy <= 0 || s.least <= 0) {
        nnc_puts(out, "Nothing is computed.");
        return;
    }
    put_bound(p, &s, out);
    if (!is_crowded(p, &s)) /* else it is chance which commands took long */
        put_worst(p, &s, out);
}
