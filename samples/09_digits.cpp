// Trains a small convolutional network on handwritten digits with nothing but graphs of this
// library: forward pass, every gradient and the parameter update are one graph, planned once and
// executed once a batch. Data: data/README.md.
//
//   x/16 -> conv 3x3 -> bias, relu -> maxpool 2x2 -> conv 3x3 -> bias, relu -> matmul, bias ->
//   softmax
#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>

#include "common.hpp"

using namespace samples;
using sinter::Device, sinter::Dims, sinter::Graph, sinter::Tensor;

namespace {

constexpr int kBatch = 48, kTrain = 1437, kTest = 360, kEpochs = 10;
constexpr int kChannels1 = 8, kChannels2 = 16, kFlat = kChannels2 * 16, kClasses = 10;
constexpr double kMomentum = 0.9, kRequired = 0.95;

constexpr int kParameters = 6;
constexpr const char* kNames[kParameters] = {"w1", "b1", "w2", "b2", "w3", "b3"};
const Dims kDims[kParameters] = {
    {kChannels1, 1, 3, 3}, {1, kChannels1, 1, 1}, {kChannels2, kChannels1, 3, 3},
    {1, kChannels2, 1, 1}, {kFlat, kClasses},     {1, kClasses}};

// ---- the graphs

const sinter::ConvAttributes kSame{.pre_padding = {1, 1}, .post_padding = {1, 1}};
const sinter::ResampleAttributes kPool{.mode = sinter::ResampleMode::maxpool,
                                       .window = {2, 2},
                                       .stride = {2, 2},
                                       .generate_index = true};

struct Forward {
  Tensor x, z1, pooled, index, z2, flat, logits;
};

std::array<Tensor, kParameters> declare_parameters(Graph& graph) {
  std::array<Tensor, kParameters> p;
  for (int i = 0; i < kParameters; ++i) p[i] = graph.tensor({.name = kNames[i], .dim = kDims[i]});
  return p;
}

Forward forward(Graph& graph, int batch, const std::array<Tensor, kParameters>& p) {
  Forward f;
  f.x = graph.tensor({.name = "images", .dim = {batch, 1, 8, 8}}) * (1.0 / 16);
  f.z1 = conv_fprop(f.x, p[0], kSame) + p[1];
  const auto pool = resample(relu(f.z1), kPool);
  f.pooled = pool.y;
  f.index = pool.index;
  f.z2 = conv_fprop(f.pooled, p[2], kSame) + p[3];
  f.flat = reshape(relu(f.z2), {batch, kFlat});
  f.logits = matmul(f.flat, p[4]) + p[5];
  return f;
}

// The gradient of each parameter, from that of the logits.
std::array<Tensor, kParameters> backward(const Forward& f, Tensor dlogits,
                                         const std::array<Tensor, kParameters>& p) {
  const auto sum_to = [](Tensor t, Dims dim) {
    return reduction(t, sinter::ReductionMode::add, dim);
  };
  std::array<Tensor, kParameters> g;
  g[4] = matmul(transpose(f.flat, {1, 0}), dlogits);
  g[5] = sum_to(dlogits, kDims[5]);
  auto dflat = matmul(dlogits, transpose(p[4], {1, 0}));
  auto dz2 = relu_backward(reshape(dflat, f.z2.dim()), f.z2);
  g[2] = conv_wgrad(dz2, f.pooled, kDims[2], kSame);
  g[3] = sum_to(dz2, kDims[3]);
  auto dpooled = conv_dgrad(dz2, p[2], f.pooled.dim(), kSame);
  auto dz1 = relu_backward(resample_backward(dpooled, kPool, f.z1.dim(), f.index), f.z1);
  g[0] = conv_wgrad(dz1, f.x, kDims[0], kSame);
  g[1] = sum_to(dz1, kDims[1]);
  return g;
}

// One step of stochastic gradient descent with momentum on one batch.
void describe_step(Graph& graph) {
  const auto p = declare_parameters(graph);
  const auto f = forward(graph, kBatch, p);
  auto labels = graph.tensor({.name = "labels", .dim = {kBatch, 1}});
  auto rate = graph.scalar_input("rate");  // a scalar of each call, not of the plan

  // Cross-entropy of the softmax: log sum exp(logits) - logits[label]. Its gradient is p - onehot.
  auto onehot = equal(gen_index(f.logits, 1), labels);
  auto [probability, log_sum] = softmax(f.logits, {.axis = 1, .stats = true});
  auto right = reduction(f.logits * onehot, sinter::ReductionMode::add, {kBatch, 1});
  graph.output(reduction(log_sum - right, sinter::ReductionMode::avg, {1, 1}), "loss");

  const auto g = backward(f, (probability - onehot) * (1.0 / kBatch), p);
  for (int i = 0; i < kParameters; ++i) {
    const std::string name = kNames[i];
    auto velocity = graph.tensor({.name = "velocity_" + name, .dim = kDims[i]});
    auto next = velocity * kMomentum + g[i];
    graph.output(next, "next_velocity_" + name);
    graph.output(p[i] - rate * next, "next_" + name);
  }
}

// ---- the data

struct Images {
  std::vector<float> pixels, labels;
};

// Reads all images and deals them out: a fixed shuffle, then the first kTrain and the rest.
bool read_images(Images& train, Images& test) {
  std::ifstream file("samples/data/optdigits.txt");  // in the source tree, wherever that lies now
  if (!file) file.open(SAMPLE_DATA);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.size() != 66 || line[65] < '0' || line[65] > '9') return false;
    lines.push_back(line);
  }
  if (lines.size() != kTrain + kTest) return false;
  std::mt19937 generator(1);
  for (std::size_t i = lines.size() - 1; i > 0; --i)
    std::swap(lines[i], lines[generator() % (i + 1)]);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto& part = i < kTrain ? train : test;
    for (int k = 0; k < 64; ++k) part.pixels.push_back(static_cast<float>(lines[i][k] - 'a'));
    part.labels.push_back(static_cast<float>(lines[i][65] - '0'));
  }
  return true;
}

Images shuffled(const Images& images, std::mt19937& generator) {
  std::vector<std::size_t> order(images.labels.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size() - 1; i > 0; --i)
    std::swap(order[i], order[generator() % (i + 1)]);
  Images result;
  for (auto i : order) {
    result.pixels.insert(result.pixels.end(), &images.pixels[i * 64], &images.pixels[i * 64] + 64);
    result.labels.push_back(images.labels[i]);
  }
  return result;
}

// ---- training

// Parameters and velocities twice: a step reads one set and writes the other.
struct State {
  std::vector<Array<float>> parameter, velocity;
  explicit State(Device device) {
    for (int i = 0; i < kParameters; ++i) {
      const auto n = static_cast<std::size_t>(count(kDims[i]));
      const auto inputs = static_cast<float>(i == 0 ? 9 : i == 2 ? 9 * kChannels1 : kFlat);
      const float scale = i % 2 == 1 ? 0 : std::sqrt(6 / inputs);  // He et al., 2015
      parameter.emplace_back(device, uniform(n, scale, 100 + static_cast<unsigned>(i)));
      velocity.emplace_back(device, std::vector<float>(n));
    }
  }
};

class Trainer {
 public:
  Trainer(Device device, sinter::Executable step, sinter::Executable test)
      : device_(device),
        step_(std::move(step)),
        test_(std::move(test)),
        step_scratch_(step_),
        test_scratch_(test_),
        from_(device),
        to_(device) {}

  // The mean loss over an epoch.
  double train(const Images& images, float rate) {
    pixels_.set(images.pixels);
    labels_.set(images.labels);
    double sum = 0;
    constexpr int steps = kTrain / kBatch;
    for (int s = 0; s < steps; ++s) {
      std::vector<sinter::Binding> bindings = {{"images", pixels_.data() + s * kBatch * 64},
                                               {"labels", labels_.data() + s * kBatch},
                                               {"rate", rate},
                                               {"loss", loss_}};
      for (int i = 0; i < kParameters; ++i) {
        bindings.emplace_back(kNames[i], from_.parameter[i].data());
        bindings.emplace_back(kVelocity[i], from_.velocity[i].data());
        bindings.emplace_back(kNext[i], to_.parameter[i].data());
        bindings.emplace_back(kNextVelocity[i], to_.velocity[i].data());
      }
      need(step_.execute(nullptr, bindings, step_scratch_));
      need(sinter::synchronize(device_));
      sum += loss_.get()[0];
      std::swap(from_, to_);
    }
    return sum / steps;
  }

  // The fraction of the test images that are read rightly.
  double accuracy(const Images& images) {
    test_pixels_.set(images.pixels);
    std::vector<sinter::Binding> bindings = {{"images", test_pixels_}, {"logits", logits_}};
    for (int i = 0; i < kParameters; ++i)
      bindings.emplace_back(kNames[i], from_.parameter[i].data());
    need(test_.execute(nullptr, bindings, test_scratch_));
    need(sinter::synchronize(device_));
    const auto logits = logits_.get();
    int right = 0;
    for (int i = 0; i < kTest; ++i) {
      const float* row = &logits[i * kClasses];
      right += std::max_element(row, row + kClasses) - row == images.labels[i];
    }
    return static_cast<double>(right) / kTest;
  }

 private:
  static constexpr const char* kVelocity[] = {"velocity_w1", "velocity_b1", "velocity_w2",
                                              "velocity_b2", "velocity_w3", "velocity_b3"};
  static constexpr const char* kNext[] = {"next_w1", "next_b1", "next_w2",
                                          "next_b2", "next_w3", "next_b3"};
  static constexpr const char* kNextVelocity[] = {"next_velocity_w1", "next_velocity_b1",
                                                  "next_velocity_w2", "next_velocity_b2",
                                                  "next_velocity_w3", "next_velocity_b3"};
  Device device_;
  sinter::Executable step_, test_;
  Scratch step_scratch_, test_scratch_;
  State from_, to_;
  Array<float> pixels_{device_, kTrain * 64}, labels_{device_, kTrain}, loss_{device_, 1},
      test_pixels_{device_, kTest * 64}, logits_{device_, kTest*kClasses};
};

}  // namespace

int main(int argc, char** argv) {
  const auto device = device_from(argc, argv);
  Images train, test;
  if (!read_images(train, test)) {
    std::fprintf(stderr, "error: %s is missing or not as data/README.md says\n", SAMPLE_DATA);
    return 1;
  }

  Graph step_graph({.name = "digits_step"}), test_graph({.name = "digits_test"});
  describe_step(step_graph);
  test_graph.output(forward(test_graph, kTest, declare_parameters(test_graph)).logits, "logits");
  Trainer trainer(device, need(sinter::compile(step_graph, device)),
                  need(sinter::compile(test_graph, device)));
  std::printf("%zu operations a training step; %d training and %d test images\n",
              step_graph.nodes().size(), kTrain, kTest);

  std::mt19937 generator(2);
  const auto start = std::chrono::steady_clock::now();
  double accuracy = 0;
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    const float rate = epoch <= 2 * kEpochs / 3 ? 0.1f : 0.02f;
    const double loss = trainer.train(shuffled(train, generator), rate);
    accuracy = trainer.accuracy(test);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    std::printf("epoch %2d  loss %.4f  test accuracy %.2f %%  %.1f s\n", epoch, loss,
                100 * accuracy, elapsed.count());
    std::fflush(stdout);
  }
  const bool good = accuracy >= kRequired;
  std::printf("%s 09_digits: test accuracy %.2f %%, required %.0f %%\n", good ? "OK" : "FAILED",
              100 * accuracy, 100 * kRequired);
  return good ? 0 : 1;
}
