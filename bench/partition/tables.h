/* bench/partition/tables.h -- published iteration times of GPT models, typed in. */
#ifndef BENCH_PARTITION_TABLES_H
#define BENCH_PARTITION_TABLES_H

typedef struct published {
    const char *name;
    int hidden, layers, heads;
    int tensor, pipeline, gpus, batch, micro; /* micro-batch; 0: not published */
    double tflops;  /* of a GPU, by the source's count of FLOPs; 0: seconds are published */
    double seconds;
} published;

/* Megatron-LM, README of 2021 (github.com/NVIDIA/Megatron-LM, d693034ecf) and Narayanan et al. 2021, table 1: A100 80 GB, sequences of
 * 2,048, vocabulary of 51,200, f16, recomputation of whole layers; FLOPs with the recomputation. Heads, layers, hidden: table 1 there. */
static const published megatron_a100[] = {
    {"1.7B", 2304, 24, 24, 1, 1, 32, 512, 0, 137, 0},
    {"3.6B", 3072, 30, 32, 2, 1, 64, 512, 0, 138, 0},
    {"7.5B", 4096, 36, 32, 4, 1, 128, 512, 0, 142, 0},
    {"18B", 6144, 40, 48, 8, 1, 256, 1024, 0, 135, 0},
    {"39B", 8192, 48, 64, 8, 2, 512, 1536, 0, 138, 0},
    {"76B", 10240, 60, 80, 8, 4, 1024, 1792, 0, 140, 0},
    {"145B", 12288, 80, 96, 8, 8, 1536, 2304, 0, 148, 0},
    {"310B", 16384, 96, 128, 8, 16, 1920, 2160, 0, 155, 0},
    {"530B", 20480, 105, 128, 8, 35, 2520, 2520, 0, 163, 0},
    {"1T", 25600, 128, 160, 8, 64, 3072, 3072, 0, 163, 0},
};

/* Megatron-LM, README of 2024 (d98e8a64dd): H100, sequences of 4,096, vocabulary of 131,072, bf16, replicas 48; FLOPs without
 * recomputation. Heads are not published: 128 channels each. */
static const published megatron_h100[] = {
    {"1.7B", 2048, 24, 16, 1, 1, 48, 192, 0, 408.8, 0},
    {"7.1B", 4096, 30, 32, 2, 1, 96, 192, 0, 465.9, 0},
    {"16B", 6144, 32, 48, 4, 1, 192, 192, 0, 489.1, 0},
    {"32B", 7168, 48, 56, 8, 1, 384, 192, 0, 459.6, 0},
    {"70B", 8192, 84, 64, 8, 2, 768, 384, 0, 419.7, 0},
    {"119B", 10240, 92, 80, 8, 4, 1536, 768, 0, 420.5, 0},
    {"177B", 12288, 96, 96, 8, 6, 2304, 1152, 0, 432.8, 0},
    {"314B", 16384, 96, 128, 8, 8, 3072, 1536, 0, 474.4, 0},
    {"462B", 18432, 112, 144, 8, 16, 6144, 3072, 0, 459.9, 0},
};

/* vTrain (Bang et al., MICRO 2024; github.com/VIA-Research/vTrain f8dda8473a, data/ground_truth_multi.csv, MIT licence): every fifth of
 * its 109 iteration times of Megatron-LM on up to 512 A100, 1F1B, recomputation of whole layers, sequences of 2,048. */
static const published vtrain_multi[] = {
    {"3.6B", 3072, 30, 32, 1, 1, 64, 512, 8, 0, 3.5665},
    {"3.6B", 3072, 30, 32, 2, 1, 64, 512, 4, 0, 4.0782},
    {"3.6B", 3072, 30, 32, 4, 1, 64, 512, 4, 0, 4.764},
    {"3.6B", 3072, 30, 32, 8, 1, 64, 512, 64, 0, 9.8389},
    {"3.6B", 3072, 30, 32, 8, 1, 64, 512, 2, 0, 8.8809},
    {"3.6B", 3072, 30, 32, 16, 1, 64, 512, 2, 0, 13.4722},
    {"18.4B", 6144, 40, 48, 4, 2, 256, 1024, 8, 0, 10.8563},
    {"18.4B", 6144, 40, 48, 8, 2, 256, 1024, 2, 0, 10.4348},
    {"18.4B", 6144, 40, 48, 8, 8, 256, 1024, 32, 0, 16.2414},
    {"39.1B", 8192, 48, 64, 4, 4, 512, 1536, 4, 0, 15.6256},
    {"39.1B", 8192, 48, 64, 2, 16, 512, 1536, 3, 0, 26.1888},
    {"39.1B", 8192, 48, 64, 8, 2, 512, 1536, 4, 0, 14.7573},
    {"39.1B", 8192, 48, 64, 4, 16, 512, 1536, 4, 0, 15.5855},
    {"39.1B", 8192, 48, 64, 8, 4, 512, 1536, 6, 0, 15.2494},
    {"39.1B", 8192, 48, 64, 4, 16, 512, 1536, 6, 0, 20.0441},
    {"39.1B", 8192, 48, 64, 2, 8, 512, 1536, 6, 0, 23.0629},
    {"39.1B", 8192, 48, 64, 2, 16, 512, 1536, 6, 0, 27.2284},
    {"39.1B", 8192, 48, 64, 4, 16, 512, 1536, 12, 0, 27.8103},
    {"175B", 12288, 96, 96, 4, 32, 512, 1536, 2, 0, 53.9096},
    {"175B", 12288, 96, 96, 8, 8, 512, 1536, 2, 0, 55.1096},
    {"175B", 12288, 96, 96, 8, 16, 512, 1536, 3, 0, 55.6775},
    {"175B", 12288, 96, 96, 8, 16, 512, 1536, 6, 0, 60.5192},
};

#endif
