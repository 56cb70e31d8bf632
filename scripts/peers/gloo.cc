// Measures Gloo's collectives over TCP as hcomm-bench measures ours. See bench.h for the last four arguments.
//
//     gloo RANK RANKS STORE-DIRECTORY INTERFACE ALGORITHM COLLECTIVES SIZES ITERATIONS WARM-UP
//
// ALGORITHM, for all_reduce and reduce_scatter (Gloo has one of each other): of the newer interface `ring` and `bcube`;
// of the older `old_ring`, `ring_chunked`, `halving_doubling` and `old_bcube`, which can end in `+poll`: pairs are then
// read in the calling thread, by polling. The older interface works in place.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include "bench.h"

namespace {

using Shared = std::shared_ptr<gloo::rendezvous::Context>;

struct Buffers {
  std::unique_ptr<float, void (*)(void*)> input{nullptr, free}, output{nullptr, free};
  size_t results = 0;  // elements of the output that hold a result on this rank
  float expected = 1;
};

// One collective on one size, ready to be run any number of times.
struct Operation {
  Buffers buffers;
  std::function<void()> run;
};

Shared connect(int rank, int ranks, gloo::rendezvous::Store& store, const std::string& interface,
               const std::string& name) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = interface;
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::PrefixStore prefixed(name, store);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(prefixed, device);
  return context;
}

std::function<void()> older(std::shared_ptr<gloo::Algorithm> algorithm) {
  return [algorithm] { algorithm->run(); };
}

std::function<void()> all_reduce(const Shared& context, const std::string& algorithm, float* in, float* out,
                                 size_t count) {
  std::vector<float*> place{out};
  if (algorithm == "old_ring") return older(std::make_shared<gloo::AllreduceRing<float>>(context, place, count));
  if (algorithm == "ring_chunked")
    return older(std::make_shared<gloo::AllreduceRingChunked<float>>(context, place, count));
  if (algorithm == "halving_doubling")
    return older(std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, place, count));
  if (algorithm == "old_bcube") return older(std::make_shared<gloo::AllreduceBcube<float>>(context, place, count));
  auto options = std::make_shared<gloo::AllreduceOptions>(context);
  options->setAlgorithm(algorithm == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                             : gloo::AllreduceOptions::Algorithm::RING);
  options->setInput(in, count);
  options->setOutput(out, count);
  options->setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  return [options] { gloo::allreduce(*options); };
}

// Empty where Gloo has no such collective, or the size is too small for it.
std::function<void()> other(const Shared& context, const std::string& name, float* in, float* out, size_t count,
                            size_t block) {
  if (name == "all_gather") {
    auto options = std::make_shared<gloo::AllgatherOptions>(context);
    options->setInput(in, block);
    options->setOutput(out, count);
    return [options] { gloo::allgather(*options); };
  }
  if (name == "broadcast") {
    auto options = std::make_shared<gloo::BroadcastOptions>(context);
    options->setRoot(0);
    options->setOutput(out, count);
    return [options] { gloo::broadcast(*options); };
  }
  if (name == "reduce") {
    auto options = std::make_shared<gloo::ReduceOptions>(context);
    options->setRoot(0);
    options->setInput(in, count);
    options->setOutput(out, count);
    options->setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    return [options] { gloo::reduce(*options); };
  }
  if (name == "all_to_all") {
    auto options = std::make_shared<gloo::AlltoallOptions>(context);
    options->setInput(in, count);
    options->setOutput(out, count);
    return [options] { gloo::alltoall(*options); };
  }
  if (name == "gather") {
    auto options = std::make_shared<gloo::GatherOptions>(context);
    options->setRoot(0);
    options->setInput(in, block);
    if (context->rank == 0) options->setOutput(out, count);
    return [options] { gloo::gather(*options); };
  }
  if (name == "scatter") {
    auto options = std::make_shared<gloo::ScatterOptions>(context);
    options->setRoot(0);
    if (context->rank == 0) {
      std::vector<float*> blocks;
      for (int i = 0; i < context->size; i++) blocks.push_back(in + i * block);
      options->setInputs(blocks, block);
    }
    options->setOutput(out, block);
    return [options] { gloo::scatter(*options); };
  }
  if (name == "reduce_scatter") {
    std::vector<int> counts(context->size, static_cast<int>(block));
    return older(std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(context, std::vector<float*>{out},
                                                                             static_cast<int>(count), counts));
  }
  if (name == "barrier") {
    auto options = std::make_shared<gloo::BarrierOptions>(context);
    return [options] { gloo::barrier(*options); };
  }
  return {};
}

Operation prepare(const Shared& context, const std::string& name, const std::string& algorithm, size_t bytes) {
  size_t count = bytes / sizeof(float), block = count / context->size;
  if (name != "all_reduce" && name != "broadcast" && name != "reduce") count = block * context->size;
  Operation operation;
  if (!count && name != "barrier") return operation;
  Buffers& buffers = operation.buffers;
  bool root = context->rank == 0, in_place = name == "reduce_scatter" || name == "all_reduce";
  buffers.input.reset(bench_buffer(count, 1));
  buffers.output.reset(bench_buffer(count, in_place || (name == "broadcast" && root) ? 1 : 0));
  buffers.results = name == "reduce_scatter" || name == "scatter" ? block : count;
  if (name == "barrier" || (!root && (name == "reduce" || name == "gather"))) buffers.results = 0;
  if (name == "all_reduce" || name == "reduce" || name == "reduce_scatter") buffers.expected = context->size;
  float *in = buffers.input.get(), *out = buffers.output.get();
  operation.run = name == "all_reduce" ? all_reduce(context, algorithm, in, out, count)
                                       : other(context, name, in, out, count, block);
  return operation;
}

// Of each value, the greatest on any rank.
void greatest(const Shared& control, std::vector<double>& values) {
  gloo::AllreduceOptions options(control);
  options.setOutput(values.data(), values.size());
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::max<double>));
  gloo::allreduce(options);
}

double sum_over_ranks(const Shared& control, double value) {
  gloo::AllreduceOptions options(control);
  options.setOutput(&value, 1);
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<double>));
  gloo::allreduce(options);
  return value;
}

void barrier(const Shared& control) {
  gloo::BarrierOptions options(control);
  gloo::barrier(options);
}

void measure(const Shared& data, const Shared& control, const std::string& name, const std::string& algorithm,
             size_t bytes, int iterations, int warm_up) {
  Operation operation = prepare(data, name, algorithm, bytes);
  if (!operation.run) return;
  // The first run alone has inputs of ones: what works in place adds to its own results afterwards.
  operation.run();
  for (size_t i = 0; i < operation.buffers.results; i++)
    if (operation.buffers.output.get()[i] != operation.buffers.expected) bench_die("a result is wrong");
  for (int i = 1; i < warm_up; i++) operation.run();

  std::vector<double> times(iterations);
  barrier(control);
  double cpu = bench_cpu_us(), start = bench_now_us(), last = start;
  for (double& time : times) {
    operation.run();
    double now = bench_now_us();
    time = now - last;
    last = now;
  }
  cpu = sum_over_ranks(control, (bench_cpu_us() - cpu) / iterations) / data->size;
  std::vector<double> mean{(last - start) / iterations};
  greatest(control, mean);
  greatest(control, times);
  if (data->rank == 0)
    bench_print(name.c_str(), bytes, iterations, mean[0], bench_median(times.data(), iterations), cpu);
}

}  // namespace

int main(int count, char** words) {
  if (count != 10) bench_die("needs RANK RANKS STORE INTERFACE ALGORITHM COLLECTIVES SIZES ITERATIONS WARM-UP");
  int rank = atoi(words[1]), ranks = atoi(words[2]);
  std::string algorithm = words[5];
  bool poll = algorithm.size() > 5 && algorithm.substr(algorithm.size() - 5) == "+poll";
  if (poll) algorithm.resize(algorithm.size() - 5);
  bench_arguments arguments = bench_parse(words + 6);
  gloo::rendezvous::FileStore store(words[3]);
  Shared data = connect(rank, ranks, store, words[4], "data");
  std::string collectives = arguments.collectives;
  if (collectives == "startup") {
    prepare(data, "barrier", "", 0).run();
    if (rank == 0) bench_print("startup", 0, 1, 0, 0, 0);
    return 0;
  }
  Shared control = connect(rank, ranks, store, words[4], "control");
  if (poll)
    for (int i = 0; i < ranks; i++)
      if (i != rank) data->getPair(i)->setSync(true, true);
  for (char* name = strtok(arguments.collectives, ","); name; name = strtok(nullptr, ",")) {
    if (!strcmp(name, "barrier")) {
      measure(data, control, name, algorithm, 0, arguments.iterations, arguments.warm_up);
    } else {
      for (int i = 0; i < arguments.size_count; i++)
        measure(data, control, name, algorithm, arguments.sizes[i], arguments.iterations, arguments.warm_up);
    }
  }
  barrier(control);
  return 0;
}
