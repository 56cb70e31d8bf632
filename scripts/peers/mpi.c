/* Measures an MPI's collectives as hcomm-bench measures ours; built once with each MPI's compiler. See bench.h.
 *
 * Besides the collectives: sendrecv (to the next rank, from the one before), ping_pong (half a round trip between
 * ranks 0 and 1), one_way (rank 0 to rank 1), and startup (a line after the first barrier).
 */
#include "bench.h"

#include <mpi.h>

static int rank, ranks;

struct call {
    const char *collective;
    size_t count, block; /* elements: of the whole, and of one rank's part */
    float *input, *output;
};

static int is(const struct call *call, const char *name) { return !strcmp(call->collective, name); }

/* Elements that come and go, or -1 where the collective is not known. */
static long input_elements(const struct call *call) {
    static const char *const whole[] = {"all_reduce", "broadcast", "reduce",    "sendrecv", "ping_pong",
                                        "one_way",    "scatter",   "all_to_all", "reduce_scatter"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (is(call, whole[i])) return (long)call->count;
    if (is(call, "all_gather") || is(call, "gather")) return (long)call->block;
    return is(call, "barrier") ? 0 : -1;
}

static void run(struct call *call) {
    int count = (int)call->count, block = (int)call->block;
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    MPI_Comm world = MPI_COMM_WORLD;
    switch (call->collective[0]) {
    case 'a':
        if (is(call, "all_reduce")) MPI_Allreduce(call->input, call->output, count, MPI_FLOAT, MPI_SUM, world);
        else if (is(call, "all_gather")) MPI_Allgather(call->input, block, MPI_FLOAT, call->output, block, MPI_FLOAT, world);
        else MPI_Alltoall(call->input, block, MPI_FLOAT, call->output, block, MPI_FLOAT, world);
        break;
    case 'b':
        if (is(call, "barrier")) MPI_Barrier(world);
        else MPI_Bcast(call->output, count, MPI_FLOAT, 0, world);
        break;
    case 'r':
        if (is(call, "reduce")) MPI_Reduce(call->input, call->output, count, MPI_FLOAT, MPI_SUM, 0, world);
        else MPI_Reduce_scatter_block(call->input, call->output, block, MPI_FLOAT, MPI_SUM, world);
        break;
    case 'g':
        MPI_Gather(call->input, block, MPI_FLOAT, call->output, block, MPI_FLOAT, 0, world);
        break;
    case 's':
        if (is(call, "scatter")) MPI_Scatter(call->input, block, MPI_FLOAT, call->output, block, MPI_FLOAT, 0, world);
        else
            MPI_Sendrecv(call->input, count, MPI_FLOAT, next, 0, call->output, count, MPI_FLOAT, previous, 0, world,
                         MPI_STATUS_IGNORE);
        break;
    case 'p':
        if (rank == 0) {
            MPI_Send(call->input, count, MPI_FLOAT, 1, 0, world);
            MPI_Recv(call->output, count, MPI_FLOAT, 1, 0, world, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(call->output, count, MPI_FLOAT, 0, 0, world, MPI_STATUS_IGNORE);
            MPI_Send(call->input, count, MPI_FLOAT, 0, 0, world);
        }
        break;
    case 'o':
        if (rank == 0) MPI_Send(call->input, count, MPI_FLOAT, 1, 0, world);
        else if (rank == 1) MPI_Recv(call->output, count, MPI_FLOAT, 0, 0, world, MPI_STATUS_IGNORE);
        break;
    }
}

/* Inputs are all ones: sums are the number of ranks, copies are one. A peer that is wrong is no peer. */
static void check(const struct call *call, size_t elements) {
    int sums = is(call, "all_reduce") || is(call, "reduce") || is(call, "reduce_scatter");
    int only_root = is(call, "reduce") || is(call, "gather");
    int pair = is(call, "ping_pong") || is(call, "one_way");
    if (!elements || (only_root && rank != 0) || (pair && (rank > 1 || (is(call, "one_way") && rank == 0)))) return;
    float expected = sums ? (float)ranks : 1;
    for (size_t i = 0; i < elements; i++)
        if (call->output[i] != expected) {
            fprintf(stderr, "%s: element %zu is %g instead of %g\n", call->collective, i, call->output[i], expected);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
}

static void measure(const char *collective, size_t bytes, int iterations, int warm_up) {
    struct call call = {collective, bytes / sizeof(float), bytes / sizeof(float) / ranks, NULL, NULL};
    if (is(&call, "all_gather") || is(&call, "reduce_scatter") || is(&call, "all_to_all") || is(&call, "gather") ||
        is(&call, "scatter"))
        call.count = call.block * ranks;
    long elements = input_elements(&call);
    if (elements < 0) bench_die("no such collective");
    if (!elements && !is(&call, "barrier")) return;
    size_t results = is(&call, "reduce_scatter") || is(&call, "scatter") ? call.block : is(&call, "barrier") ? 0 : call.count;
    call.input = bench_buffer(elements, 1);
    call.output = bench_buffer(results, is(&call, "broadcast") && rank == 0 ? 1 : 0);
    double *times = malloc(iterations * sizeof(double)), *slowest = malloc(iterations * sizeof(double));

    for (int i = 0; i < warm_up; i++) run(&call);
    MPI_Barrier(MPI_COMM_WORLD);
    double cpu = bench_cpu_us(), start = bench_now_us(), last = start;
    for (int i = 0; i < iterations; i++) {
        run(&call);
        double now = bench_now_us();
        times[i] = now - last;
        last = now;
    }
    cpu = (bench_cpu_us() - cpu) / iterations;
    double share = is(&call, "ping_pong") ? 0.5 : 1;
    double mean = (last - start) / iterations, greatest = 0, total_cpu = 0;
    check(&call, results);
    MPI_Reduce(times, slowest, iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&mean, &greatest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&cpu, &total_cpu, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        bench_print(collective, bytes, iterations, greatest * share, bench_median(slowest, iterations) * share,
                    total_cpu / ranks * share);
    free(call.input);
    free(call.output);
    free(times);
    free(slowest);
}

int main(int argc, char **argv) {
    if (argc != 5) bench_die("needs COLLECTIVES SIZES ITERATIONS WARM-UP");
    struct bench_arguments arguments = bench_parse(argv + 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2) bench_die("needs two ranks");
    for (char *name = strtok(arguments.collectives, ","); name; name = strtok(NULL, ",")) {
        if (!strcmp(name, "startup")) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 0) bench_print("startup", 0, 1, 0, 0, 0);
        } else {
            int sizes = strcmp(name, "barrier") ? arguments.size_count : 1;
            for (int i = 0; i < sizes; i++)
                measure(name, sizes == 1 && !strcmp(name, "barrier") ? 0 : arguments.sizes[i], arguments.iterations,
                        arguments.warm_up);
        }
    }
    MPI_Finalize();
    return 0;
}
