/* tests/data/augment.c -- augmentation against formulas that are computed independently in double precision, and numbers of PyTorch and
 * Pillow. */
#include "help.h"
#include <math.h>
#include <stdlib.h>

static void fill(nnc_scratch *s, int c, int h, int w)
{
    CHECK_OK(nnc_picture_size(&s->now, c, h, w, test_sink));
    for (int i = 0; i < c * h * w; i++)
        s->now.at[i] = nnc_rng_uniform(3, (uint64_t)i);
}

static double triangle(double x)
{
    return fmax(0, 1 - fabs(x));
}

/* Output (y, x): the mean of all inputs, weighted by the product of two triangles. */
static double resized(const float *p, int h, int w, int to_h, int to_w, int y, int x)
{
    const double sy = (double)h / to_h, sx = (double)w / to_w;
    double sum = 0, weights = 0;
    for (int j = 0; j < h; j++)
        for (int i = 0; i < w; i++) {
            const double k = triangle((j + 0.5 - (y + 0.5) * sy) / fmax(sy, 1)) *
                             triangle((i + 0.5 - (x + 0.5) * sx) / fmax(sx, 1));
            sum += k * (double)p[j * w + i];
            weights += k;
        }
    return sum / weights;
}

TEST(resize_by_its_formula)
{
    static const int sizes[][4] = {{5, 7, 3, 2}, {5, 7, 10, 21}, {8, 8, 8, 3}, {1, 1, 4, 4},
        {13, 9, 1, 1}, {30, 40, 7, 11}, {6, 6, 12, 5}, {2, 50, 3, 49}};
    for (size_t k = 0; k < NNC_COUNT(sizes); k++) {
        const int *z = sizes[k];
        float from[3 * 30 * 40];
        nnc_scratch s = {0};
        fill(&s, 3, z[0], z[1]);
        memcpy(from, s.now.at, (size_t)(3 * z[0] * z[1]) * sizeof(float));
        CHECK_OK(nnc_resize(z[2], z[3], &s, test_sink));
        CHECK(s.now.h == z[2] && s.now.w == z[3]);
        double most = 0;
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < z[2]; y++)
                for (int x = 0; x < z[3]; x++)
                    most = fmax(
                        most, fabs((double)s.now.at[(c * z[2] + y) * z[3] + x] -
                                   resized(from + c * z[0] * z[1], z[0], z[1], z[2], z[3], y, x)));
        CHECK(most < 1e-6);
        nnc_scratch_deinit(&s);
    }
}

/* torch.nn.functional.interpolate(torch.arange(24.).reshape(1, 1, 4, 6), size, mode="bilinear", antialias=True); Pillow's mode F gives the
 * same numbers. */
TEST(resize_as_pytorch_and_pillow)
{
    static const double smaller[] = {
        5.00000048, 6.78571463, 8.5714283, 14.4285727, 16.2142868, 18.0000019};
    static const double larger[] = {0, 0.785714269, 1.64285707, 2.5, 3.35714293, 4.21428585, 5,
        4.20000029, 4.98571444, 5.84285736, 6.70000029, 7.55714369, 8.41428661, 9.20000076, 9,
        9.78571415, 10.6428566, 11.5, 12.3571434, 13.2142868, 14, 13.7999992, 14.5857143,
        15.4428558, 16.2999992, 17.1571426, 18.014286, 18.7999992, 18, 18.7857151, 19.6428566, 20.5,
        21.3571434, 22.2142868, 23};
    nnc_scratch s = {0};
    CHECK_OK(nnc_picture_size(&s.now, 1, 4, 6, test_sink));
    for (int i = 0; i < 24; i++)
        s.now.at[i] = (float)i;
    CHECK_OK(nnc_resize(2, 3, &s, test_sink));
    for (int i = 0; i < 6; i++)
        CHECK_NEAR((double)s.now.at[i], smaller[i], 4e-6);
    CHECK_OK(nnc_picture_size(&s.now, 1, 4, 6, test_sink));
    for (int i = 0; i < 24; i++)
        s.now.at[i] = (float)i;
    CHECK_OK(nnc_resize(5, 7, &s, test_sink));
    for (int i = 0; i < 35; i++)
        CHECK_NEAR((double)s.now.at[i], larger[i], 4e-6);
    nnc_scratch_deinit(&s);
}

/* ---- random choices -------------------------------------------------------------------------- */

/* Applies options to a 1-channel picture whose numbers are 1 + their index. */
static void apply(const nnc_data_options *o, uint64_t sample, bool train, int h, int w, int to_h,
    int to_w, nnc_scratch *s)
{
    nnc_augment a;
    const char *why;
    const nnc_draws r = {nnc_rng_key("augment", 1), sample * NNC_DRAWS, train};
    CHECK_OK(nnc_augment_read(o, &a, test_sink));
    CHECK_OK(nnc_picture_size(&s->now, 1, h, w, test_sink));
    for (int i = 0; i < h * w; i++)
        s->now.at[i] = (float)(i + 1);
    CHECK_OK(nnc_augment_apply(&a, &r, to_h, to_w, s, &why, test_sink));
    CHECK(!why && s->now.h == to_h && s->now.w == to_w);
}

/* Every place of a random crop occurs, and is a copy with zeros outside. */
TEST(crops)
{
    const nnc_data_options o = {.crop = NNC_CROP_random, .pad = 2};
    int met[25] = {0};
    nnc_scratch s = {0};
    for (uint64_t sample = 0; sample < 600; sample++) {
        apply(&o, sample, true, 6, 6, 6, 6, &s);
        const float *p = s.now.at;
        int dy = 9, dx = 9, wrong = 0;
        for (int i = 0; i < 36; i++)
            if (p[i] != 0) {
                dy = ((int)p[i] - 1) / 6 - i / 6;
                dx = ((int)p[i] - 1) % 6 - i % 6;
            }
        for (int i = 0; i < 36; i++) {
            const int y = i / 6 + dy, x = i % 6 + dx;
            const bool in = y >= 0 && x >= 0 && y < 6 && x < 6;
            wrong += p[i] != (in ? (float)(y * 6 + x + 1) : 0.0f);
        }
        CHECK_INT(wrong, 0);
        CHECK(abs(dy) <= 2 && abs(dx) <= 2);
        if (abs(dy) <= 2 && abs(dx) <= 2)
            met[(dy + 2) * 5 + dx + 2]++;
    }
    for (int i = 0; i < 25; i++)
        CHECK(met[i] > 5);
    apply(&o, 0, false, 6, 6, 6, 6, &s); /* in validation: the centre */
    CHECK(s.now.at[0] == 1 && s.now.at[35] == 36);
    const nnc_data_options centre = {.crop = NNC_CROP_centre};
    apply(&centre, 0, true, 7, 8, 3, 4, &s);
    CHECK(s.now.at[0] == 2 * 8 + 2 + 1 && s.now.at[11] == 4 * 8 + 5 + 1);
    nnc_scratch_deinit(&s);
}

TEST(flips)
{
    const nnc_data_options o = {.flip = true};
    int flipped = 0;
    nnc_scratch s = {0};
    for (uint64_t sample = 0; sample < 1000; sample++) {
        apply(&o, sample, true, 2, 3, 2, 3, &s);
        const float *p = s.now.at;
        const bool is = p[0] == 3;
        flipped += is;
        CHECK(is ? p[1] == 2 && p[2] == 1 && p[3] == 6 && p[5] == 4 : p[0] == 1 && p[5] == 6);
        apply(&o, sample, false, 2, 3, 2, 3, &s);
        CHECK(s.now.at[0] == 1);
    }
    CHECK(flipped > 400 && flipped < 600);
    nnc_scratch_deinit(&s);
}

/* A rotation keeps the centre and turns counter-clockwise about it by an angle of the range; against bilinear samples of the formula. */
TEST(rotations)
{
    const nnc_data_options o = {.rotate = 30};
    nnc_scratch s = {0};
    double least = 0, most = 0;
    for (uint64_t sample = 0; sample < 200; sample++) {
        const uint32_t r = nnc_rng_u32(nnc_rng_key("augment", 1), sample * NNC_DRAWS + 3);
        const double angle = 30 * (2 * (r * 0x1p-32) - 1), u = angle * M_PI / 180;
        least = fmin(least, angle);
        most = fmax(most, angle);
        apply(&o, sample, true, 9, 7, 9, 7, &s);
        CHECK_NEAR((double)s.now.at[4 * 7 + 3], 4 * 7 + 3 + 1, 1e-4);
        /* One pixel above the centre comes from where the angle says; the numbers are linear, so their interpolation is exact. */
        const double fy = 4 - cos(u), fx = 3 + sin(u);
        CHECK_NEAR((double)s.now.at[3 * 7 + 3], fy * 7 + fx + 1, 1e-3);
    }
    CHECK(least < -25 && most > 25);
    nnc_scratch_deinit(&s);
}

TEST(normalisation)
{
    const nnc_data_options o = {.mean = "2", .std = "0.5"};
    nnc_scratch s = {0};
    apply(&o, 0, false, 2, 2, 2, 2, &s);
    CHECK(s.now.at[0] == -2 && s.now.at[3] == 4);
    nnc_scratch_deinit(&s);
}

TEST(options_that_are_wrong)
{
    static const struct {
        nnc_data_options o;
        const char *says;
    } cases[] = {
        {{.resize = "0"}, "--resize: expected"},
        {{.resize = "12x"}, "--resize: expected"},
        {{.resize = "12x13x"}, "--resize: expected"},
        {{.resize = "99999"}, "--resize: expected"},
        {{.mean = "1,"}, "--mean: expected"},
        {{.mean = "1,2,3,4,5"}, "--mean: expected"},
        {{.mean = "nan"}, "--mean: expected"},
        {{.std = "0"}, "--std: expected one positive"},
        {{.std = "1,-1"}, "--std: expected one positive"},
        {{.std = ""}, "--std: expected one positive"},
        {{.pad = 2}, "needs --crop"},
    };
    for (size_t i = 0; i < NNC_COUNT(cases); i++) {
        nnc_augment a;
        CHECK_INT(nnc_augment_read(&cases[i].o, &a, test_sink), NNC_E_USAGE);
        CHECK_DIAG(cases[i].says);
    }
}
