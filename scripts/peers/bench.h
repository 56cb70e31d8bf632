/* What the MPI and the Gloo program share, so that both measure alike: arguments, clocks, the loop, the printed line.
 *
 *     PROGRAM COLLECTIVES SIZES ITERATIONS WARM-UP      lists are comma separated, sizes in bytes
 *
 * Elements are f32, operations sum. A size is that of the larger of a rank's two buffers, as nccl-tests count it: a
 * block of all_gather, reduce_scatter, all_to_all, gather and scatter is size / ranks. Iterations follow each other
 * without a barrier between them.
 *
 * Printed by rank 0, a line a size: collective bytes iterations mean_us median_us cpu_us
 *     mean_us    the loop's time on the slowest rank, by iterations (OSU's figure)
 *     median_us  median over iterations of the slowest rank's time in each
 *     cpu_us     processor time of a rank in one iteration, all its threads, user and system, mean over ranks
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define MOST_SIZES 64

struct bench_arguments {
    char *collectives; /* comma separated */
    size_t sizes[MOST_SIZES];
    int size_count;
    int iterations;
    int warm_up;
};

static inline double bench_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static inline double bench_cpu_us(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static inline void bench_die(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(2);
}

static inline struct bench_arguments bench_parse(char **words) {
    struct bench_arguments parsed;
    memset(&parsed, 0, sizeof parsed);
    parsed.collectives = words[0];
    for (char *size = strtok(words[1], ","); size; size = strtok(NULL, ",")) {
        if (parsed.size_count == MOST_SIZES) bench_die("too many sizes");
        parsed.sizes[parsed.size_count++] = strtoull(size, NULL, 10);
    }
    parsed.iterations = atoi(words[2]);
    parsed.warm_up = atoi(words[3]);
    if (!parsed.size_count || parsed.iterations < 1) bench_die("needs a size and an iteration");
    return parsed;
}

static inline int bench_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double bench_median(double *values, int count) {
    qsort(values, count, sizeof *values, bench_ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static inline float *bench_buffer(size_t elements, float value) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, (elements ? elements : 1) * sizeof(float))) bench_die("out of memory");
    for (size_t i = 0; i < elements; i++) ((float *)memory)[i] = value;
    return (float *)memory;
}

static inline void bench_print(const char *collective, size_t bytes, int iterations, double mean_us, double median_us,
                               double cpu_us) {
    printf("%s %zu %d %.3f %.3f %.3f\n", collective, bytes, iterations, mean_us, median_us, cpu_us);
    fflush(stdout);
}
